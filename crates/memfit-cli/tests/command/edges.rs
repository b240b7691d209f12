//! The command at the edges of its surroundings: full outputs, closed pipes, small limits, refusals as JSON.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::harness::{command, command_after, errors, reference};

const JOB: &str = r#"
[[model.layers]]
class = "Input"
shape = [6]
[[model.layers]]
class = "Dense"
units = 400
[train]
loss = "mean_squared_error"
optimizer = "sgd"
batch = 4
steps = 3
[data]
rows = 8
"#;

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let job = folder.path().join("job.toml");
    fs::write(&job, JOB).unwrap();
    (folder, job)
}

/// The command in a folder, after a limit where one is given.
fn limited(folder: &Path, limit: &str, arguments: &[&str]) -> Command {
    let mut command = if limit.is_empty() { command(arguments) } else { command_after(limit, arguments) };
    command.current_dir(folder);
    command
}

fn run(folder: &Path, limit: &str, arguments: &[&str]) -> Output {
    limited(folder, limit, arguments).output().unwrap()
}

#[test]
fn every_refusal_is_an_object_on_standard_output_where_json_is_asked_for() {
    let (folder, _) = folder();
    fs::write(folder.path().join("bad.toml"), "this is not toml [").unwrap();
    fs::write(folder.path().join("items.csv"), "id,lower,upper,size\na,0,2,nine\n").unwrap();
    let keras = reference("image.keras").display().to_string();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["train", "bad.toml"], 2, "job"),
        (&["train", "job.toml", "--budget", "1MiB"], 3, "does_not_fit"),
        (&["train", "job.toml", "--budget", "lots"], 2, "arguments"),
        (&["train", "missing.toml"], 2, "model_file"),
        (&["train", "job.toml", "--steps", "0"], 2, "job"),
        (&["plan", "bad.toml"], 2, "job"),
        (&["plan", "job.toml", "--no-such-flag"], 2, "arguments"),
        (&["batch", "bad.toml"], 2, "job"),
        (&["pack", "items.csv"], 2, "job"),
        (&["summary", "bad.toml"], 2, "job"),
        (&["layers", "nosuchlayer"], 2, "job"),
        (&["layers", "--ops", "nosuchop"], 2, "job"),
        (&["evaluate", &keras], 2, "data"),
        (&["predict", &keras, "--output", "p.npy"], 2, "data"),
        (&["nosuchcommand"], 2, "arguments"),
    ];
    for (arguments, code, kind) in cases {
        let output = run(folder.path(), "", &[arguments, &["--json"][..]].concat());
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {}", errors(&output));
        let line = String::from_utf8_lossy(&output.stdout).into_owned();
        let object: Value =
            serde_json::from_str(line.trim()).unwrap_or_else(|_| panic!("{arguments:?}: {line}"));
        assert_eq!(
            (&object["event"], object["exit_code"].as_i64()),
            (&"error".into(), Some(i64::from(*code)))
        );
        assert!(object["error"].is_string() && object["kind"].is_string(), "{object}");
        if *kind != "model_file" && *kind != "data" {
            assert_eq!(object["kind"], *kind, "{object}");
        }
        assert!(errors(&output).starts_with("error: "), "{arguments:?}: {}", errors(&output));
    }
    let refused = run(folder.path(), "", &["plan", "job.toml", "--budget", "1MiB", "--json"]);
    let object: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!((refused.status.code(), &object["fits"]), (Some(3), &false.into()));
}

#[test]
fn output_to_a_full_device_is_a_failure() {
    let (folder, _) = folder();
    fs::write(folder.path().join("items.csv"), "id,lower,upper,size\na,0,2,9\n").unwrap();
    let cases: &[&[&str]] = &[
        &["--help"],
        &["--version"],
        &["layers"],
        &["devices"],
        &["summary", "job.toml"],
        &["batch", "job.toml"],
        &["pack", "items.csv"],
        &["plan", "job.toml", "--costs", "analytic"],
        &["plan", "job.toml", "--costs", "analytic", "--json"],
        &["train", "job.toml", "--costs", "analytic", "--output", "full.keras"],
        &["train", "job.toml", "--costs", "analytic", "--json"],
    ];
    for arguments in cases {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = limited(folder.path(), "", arguments).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", errors(&output));
        assert!(errors(&output).contains("standard output"), "{arguments:?}: {}", errors(&output));
    }
    assert!(
        folder.path().join("full.keras").exists(),
        "the trained model is written though its progress was not"
    );
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let (folder, _) = folder();
    let arguments = ["train", "job.toml", "--json", "--costs", "analytic", "--steps", "2000"];
    let mut child =
        limited(folder.path(), "", &arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut one = [0];
    child.stdout.take().unwrap().read_exact(&mut one).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), errors(&output).as_str()), (Some(0), ""));
}

#[test]
fn a_file_size_limit_is_an_answer() {
    let (folder, _) = folder();
    for output in ["model.keras", "model.weights.h5", "model.safetensors"] {
        let arguments = ["train", "job.toml", "--costs", "analytic", "--output", output];
        let output = run(folder.path(), "ulimit -f 1", &arguments);
        assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
        assert!(errors(&output).starts_with("error: cannot "), "{}", errors(&output));
    }
    let arguments = ["train", "job.toml", "--costs", "analytic", "--report", "page.html"];
    let output = run(folder.path(), "ulimit -f 1", &arguments);
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    assert!(errors(&output).contains("page.html"), "{}", errors(&output));
}

#[test]
fn a_small_stack_is_enough() {
    let (folder, _) = folder();
    for arguments in
        [&["train", "job.toml", "--steps", "2"][..], &["plan", "job.toml"], &["layers"], &["--help"]]
    {
        let output = run(folder.path(), "ulimit -s 64", arguments);
        assert!(output.status.success(), "{arguments:?}: {:?} {}", output.status, errors(&output));
    }
}

#[test]
fn a_home_that_does_not_exist_is_not_created() {
    let (folder, _) = folder();
    let home = folder.path().join("no/such/home");
    for (name, value) in [("HOME", home.clone()), ("XDG_CACHE_HOME", home.join(".cache"))] {
        let mut command = limited(folder.path(), "", &["train", "job.toml", "--steps", "1"]);
        command.env_remove("XDG_CACHE_HOME").env("HOME", &home).env(name, value);
        assert!(command.output().unwrap().status.success());
        assert!(!folder.path().join("no").exists(), "{name}");
    }
}

#[test]
fn a_model_as_json_is_planned_as_the_help_says() {
    let (folder, _) = folder();
    let layers = r#"[{"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [null, 6]}},
        {"class_name": "Dense", "config": {"name": "d", "units": 3}}]"#;
    let model = format!(
        r#"{{"class_name": "Sequential", "config": {{"name": "m", "layers": {layers}}},
        "compile_config": {{"loss": "mse", "optimizer": "sgd"}}}}"#
    );
    fs::write(folder.path().join("model.json"), model).unwrap();
    let output = run(folder.path(), "", &["plan", "model.json", "--costs", "analytic", "--json"]);
    assert!(output.status.success(), "{}", errors(&output));
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan["fits"], true);
}

#[test]
fn a_plan_is_a_page_before_anything_runs() {
    let (folder, _) = folder();
    for (more, code) in [(&[][..], 0), (&["--budget", "1MiB"][..], 3)] {
        let arguments = [&["plan", "job.toml", "--costs", "analytic", "--report", "p.html"], more].concat();
        let output = run(folder.path(), "", &arguments);
        assert_eq!(output.status.code(), Some(code), "{}", errors(&output));
        let page = fs::read_to_string(folder.path().join("p.html")).unwrap();
        for text in
            ["memfit plan job.toml --costs analytic --report p.html", "SGD, learning rate 0.01", "memfit 0."]
        {
            assert!(page.contains(text), "{text} is not in the page");
        }
        assert!(page.contains(if code == 0 { "not run yet" } else { "does not fit" }));
    }
    let output = run(folder.path(), "", &["train", "job.toml", "--costs", "analytic", "--report", "t.html"]);
    assert!(output.status.success(), "{}", errors(&output));
    let page = fs::read_to_string(folder.path().join("t.html")).unwrap();
    assert!(page.contains("\"points\":[") && page.contains("memfit train job.toml"));
}

#[test]
fn without_a_terminal_an_epoch_is_one_line() {
    let (folder, _) = folder();
    let output = run(folder.path(), "", &["train", "job.toml", "--costs", "analytic", "--epochs", "3"]);
    assert!(output.status.success(), "{}", errors(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("epoch ")).collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[2].starts_with("epoch 3/3  loss ") && lines[2].chars().count() < 80, "{text}");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
