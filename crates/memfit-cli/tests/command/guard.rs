//! Values that are not finite, as users meet them: exit code, words, and files that are not written.

use std::fs;

use crate::harness::{command, floats, write_npy};

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

/// Trains on 12 rows, shuffled, one value of which is another; exit code, words, and whether the model was written.
fn train(poison: f32, arguments: &[&str]) -> (Option<i32>, String, bool) {
    let folder = tempfile::tempdir().unwrap();
    let mut x: Vec<f32> = (0..36u8).map(|index| f32::from(index) / 36.0).collect();
    x[6 * 3 + 1] = poison;
    write_npy(&folder.path().join("x.npy"), "<f4", &[12, 3], &floats(x));
    write_npy(&folder.path().join("y.npy"), "<f4", &[12, 1], &floats([0.5; 12]));
    let (job, model) = (folder.path().join("job.toml"), folder.path().join("model.keras"));
    fs::write(&job, JOB).unwrap();
    let output = command(&["train"])
        .arg(&job)
        .arg("--output")
        .arg(&model)
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
