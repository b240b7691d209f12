//! How the tests run the command: with a cache of their own, in a folder, after limits were set; and what it printed, as values.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_memfit");

/// The command. All tests share one cache of measured costs, so that the user's cache stays as it is.
pub fn command(arguments: &[&str]) -> Command {
    with_cache(Command::new(PROGRAM), arguments)
}

/// The command, started by a shell that does something first, such as `ulimit -v 1000000`.
pub fn command_after(first: &str, arguments: &[&str]) -> Command {
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("{first} && exec \"$0\" \"$@\""), PROGRAM]);
    with_cache(shell, arguments)
}

fn with_cache(mut command: Command, arguments: &[&str]) -> Command {
    command.args(arguments).env("XDG_CACHE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"));
    command
}

pub fn memfit(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

pub fn memfit_in(folder: &Path, arguments: &[&str]) -> Output {
    command(arguments).current_dir(folder).output().unwrap()
}

/// What was printed on standard error.
pub fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Standard output of a run that succeeds.
pub fn text(output: &Output) -> String {
    assert!(output.status.success(), "{:?}: {}", output.status, errors(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The objects that a run with `--json` printed, one a line.
pub fn lines(output: &Output) -> Vec<Value> {
    let parsed = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"));
    text(output).lines().map(parsed).collect()
}

/// The losses of all steps among the objects that training printed.
pub fn losses(events: &[Value]) -> Vec<f64> {
    let steps = events.iter().filter(|event| event["event"] == "step");
    steps.map(|step| step["loss"].as_f64().unwrap()).collect()
}

/// Standard error of a run that ends with this exit code, in words and without a panic.
pub fn ended_with(output: &Output, code: i32) -> String {
    let said = errors(output);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "{said} {printed}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

/// A job of the `examples` folder.
pub fn example(name: &str) -> String {
    repository().join("examples").join(name).display().to_string()
}

/// A model file that Keras wrote.
pub fn reference(name: &str) -> PathBuf {
    repository().join("references/keras").join(name)
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Writes a `.npy` file of version 1: numbers of NumPy's type `description`, in rows of these dimensions.
pub fn write_npy(path: &Path, description: &str, dims: &[usize], body: &[u8]) {
    let dims: String = dims.iter().map(|size| format!("{size},")).collect();
    let header = format!("{{'descr': '{description}', 'fortran_order': False, 'shape': ({dims}), }}");
    // Magic, version and length are 10 bytes; a line feed ends the header at a multiple of 64.
    let padded = (10 + header.len() + 1).next_multiple_of(64) - 11;
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend(u16::try_from(padded + 1).unwrap().to_le_bytes());
    file.extend(format!("{header:<padded$}\n").as_bytes());
    file.extend(body);
    fs::write(path, file).unwrap();
}

/// The bytes of these floats.
pub fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}
