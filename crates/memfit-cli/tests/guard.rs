//! Values that are not finite, as users meet them: exit code, words, and files that are not written.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where it stopped")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// A job on a file of rows: a network that saturates, so that the loss stays finite.
const JOB: &str = r#"
[model]
layers = [
    {class="Input",shape=[3]},
    {class="Dense",name="first",units=4,activation="tanh"},
    {class="Dense",name="last",units=1,activation="sigmoid"},
]
[train]
loss = "mse"
optimizer = "adam"
batch = 4
steps = 3
[data]
x = "x.npy"
y = "y.npy"
"#;

/// Writes a `.npy` file of floats.
fn write_npy(path: &Path, dims: [usize; 2], values: &[f32]) {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", dims[0], dims[1]);
    let padded = format!("{header:<117}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(padded.len()).unwrap().to_le_bytes());
    bytes.extend(padded.as_bytes());
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    fs::write(path, bytes).unwrap();
}

/// Trains on 12 rows, shuffled, one value of which is another; exit code, words, and whether the model was written.
fn train(poison: f32, arguments: &[&str]) -> (Option<i32>, String, bool) {
    let folder = tempfile::tempdir().unwrap();
    let mut x: Vec<f32> = (0..36u8).map(|index| f32::from(index) / 36.0).collect();
    x[6 * 3 + 1] = poison;
    write_npy(&folder.path().join("x.npy"), [12, 3], &x);
    write_npy(&folder.path().join("y.npy"), [12, 1], &[0.5; 12]);
    let (job, model) = (folder.path().join("job.toml"), folder.path().join("model.keras"));
    fs::write(&job, JOB).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_memfit"));
    let output = command
        .arg("train")
        .args([&job, Path::new("--output"), &model])
        .args(arguments)
        .env("XDG_CACHE_HOME", folder.path())
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap(), model.exists())
}

#[test]
fn a_value_that_is_not_finite_is_an_answer_and_no_model_is_written() {
    for poison in [f32::NAN, f32::INFINITY] {
        for guard in ["block", "step"] {
            let (code, errors, is_written) = train(poison, &["--guard", guard]);
            assert!(code == Some(2) && !is_written, "{poison} {guard}: {errors}");
            for words in ["NaN or infinity", "row 6 of the data", "last whole checkpoint stands"] {
                assert!(errors.contains(words), "{poison} {guard}: no `{words}` in {errors}");
            }
            let changed_nothing = errors.contains("this step changed nothing");
            assert!(guard == "block" || changed_nothing, "{poison}: {errors}");
        }
    }
}

#[test]
fn an_unknown_guard_is_named_and_a_good_run_writes_its_model() {
    let (code, errors, _) = train(0.5, &["--guard", "epoch"]);
    assert!(code == Some(2) && errors.contains("`epoch` is not a guard"), "{errors}");
    for guard in ["block", "step"] {
        let (code, errors, is_written) = train(0.5, &["--guard", guard]);
        assert!(code == Some(0) && is_written, "{errors}");
    }
}
