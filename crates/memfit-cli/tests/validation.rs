//! Validation while a job trains: the same training, the same numbers as an evaluation, and the line holds.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where it stopped")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// A network whose values between layers take most of its bytes, with dropout and moving averages, which a validation sees otherwise.
const JOB: &str = "
[model]
layers = [
    {class = \"Input\", shape = [48, 48, 3]},
    {class = \"Conv2D\", filters = 24, kernel_size = 3, activation = \"relu\"},
    {class = \"LayerNormalization\"},
    {class = \"Conv2D\", filters = 24, kernel_size = 3, activation = \"relu\"},
    {class = \"Dropout\", rate = 0.25},
    {class = \"GlobalAveragePooling2D\"},
    {class = \"Dense\", units = 3, activation = \"softmax\"},
]
[train]
loss = \"categorical_crossentropy\"
optimizer = {class = \"adam\", learning_rate = 0.01}
metrics = [\"accuracy\", {class = \"AUC\", num_thresholds = 50}, {class = \"Precision\", thresholds = 0.3}]
batch = 32
epochs = 3
[data]
rows = ROWS
MORE
[memory]
costs = \"analytic\"
";

fn memfit(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_memfit")).current_dir(folder).args(arguments).output().unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn job(rows: usize, more: &str) -> String {
    JOB.replace("ROWS", &rows.to_string()).replace("MORE", more)
}

fn losses(events: &[Value]) -> Vec<f64> {
    let steps = events.iter().filter(|event| event["event"] == "step");
    steps.map(|step| step["loss"].as_f64().unwrap()).collect()
}

fn epochs(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|event| event["event"] == "epoch").collect()
}

#[test]
fn a_validation_changes_nothing_of_the_training_and_stays_below_the_line() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("split.toml"), job(100, "validation_split = 0.3")).unwrap();
    fs::write(folder.path().join("plain.toml"), job(70, "")).unwrap();
    let train = |name: &str, budget: &str| {
        let told = lines(&memfit(folder.path(), &["train", name, "--budget", budget, "--json"]));
        let end = told.last().unwrap().clone();
        assert_eq!(end["bytes_peak_predicted"], end["bytes_peak_measured"]);
        assert!(end["vm_hwm"].as_u64().unwrap() <= end["budget"].as_u64().unwrap(), "{end}");
        told
    };
    let (split, plain) = (train("split.toml", "200MiB"), train("plain.toml", "200MiB"));
    assert_eq!(losses(&split).len(), 9);
    assert_eq!(losses(&split), losses(&plain), "bit for bit, whatever is validated in between");
    let told = epochs(&split);
    assert_eq!((told.len(), epochs(&plain).len()), (3, 0));
    for (epoch, steps) in told.iter().zip(losses(&plain).chunks(3)) {
        let mean = (steps[0] * 32.0 + steps[1] * 32.0 + steps[2] * 6.0) / 70.0;
        assert!((epoch["loss"].as_f64().unwrap() - mean).abs() < 1e-12, "{epoch}");
        for name in ["val_loss", "accuracy", "val_accuracy", "auc", "val_auc", "precision", "val_precision"] {
            assert!(epoch[name].is_f64(), "{name}: {epoch}");
        }
    }
    assert_ne!(told[0]["val_loss"], told[2]["val_loss"], "it is of the weights of its epoch");
    assert_eq!(split.last().unwrap()["val_auc"], told[2]["val_auc"]);

    // In pieces, with hardly more than the smallest budget.
    let low = train("split.toml", "32MiB");
    for (low, high) in epochs(&low).iter().zip(&told) {
        for name in ["loss", "val_loss", "val_accuracy", "val_auc", "val_precision"] {
            let (low, high) = (low[name].as_f64().unwrap(), high[name].as_f64().unwrap());
            assert!((low - high).abs() < 1e-3, "{name}: {low} and {high}");
        }
    }
}

#[test]
fn a_validation_tells_what_an_evaluation_of_the_saved_model_tells() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("job.toml"), job(64, "")).unwrap();
    for (name, dims, count) in [("x.npy", "48, 48, 3", 48 * 48 * 3), ("y.npy", "3", 3)] {
        write_npy(&folder.path().join(name), 20, dims, count);
    }
    let train =
        ["train", "job.toml", "--validation-data", "x.npy,y.npy", "--output", "trained.keras", "--json"];
    let told = lines(&memfit(folder.path(), &train));
    let last = epochs(&told)[2].clone();
    let evaluate = ["evaluate", "trained.keras", "--data", "x.npy,y.npy", "--json"];
    let evaluated = lines(&memfit(folder.path(), &evaluate)).remove(0);
    for name in ["loss", "accuracy", "auc", "precision"] {
        assert_eq!(last[format!("val_{name}")], evaluated[name], "{name}");
    }
    let both = [&train[..], &["--validation-split", "0.1"]].concat();
    assert!(!memfit(folder.path(), &both).status.success());
    let none = memfit(folder.path(), &["train", "job.toml", "--validation-split", "1.5"]);
    let said = String::from_utf8(none.stderr).unwrap();
    assert!(said.contains("give a share between 0 and 1"), "{said}");
}

/// Rows of floats between 0 and 1 that repeat nothing, as NumPy stores them.
fn write_npy(path: &Path, rows: usize, dims: &str, width: usize) {
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {dims}, ), }}");
    header = header.replace(", )", ",)");
    header.push_str(&" ".repeat(117 - header.len()));
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend(header.as_bytes());
    let value = |index: usize| match width {
        3 => f32::from(u8::from(index % 3 == index / 3 % 3)),
        _ => (index as f32 * 0.618).fract(),
    };
    bytes.extend((0..rows * width).flat_map(|index| value(index).to_le_bytes()));
    fs::write(path, bytes).unwrap();
}
