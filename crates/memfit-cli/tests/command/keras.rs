//! The command on model files: no job file, no Python, and the budget holds while a model is saved too.

use std::fs;
use std::path::Path;

use crate::harness::{self, command_after, ended_with, floats, lines, memfit_in, reference};

const LARGE: &str = "
[model]
layers = [
    {class = \"Input\", shape = [2048]},
    {class = \"Dense\", units = 2048, activation = \"relu\"},
    {class = \"Dropout\", rate = 0.5},
    {class = \"Dense\", units = 4},
]
[train]
loss = \"mean_squared_error\"
optimizer = \"adam\"
batch = 8
steps = 2
";

/// Rows of floats that grow from 0 to 1.
fn write_npy(path: &Path, dims: [usize; 2]) {
    let count = dims[0] * dims[1];
    let body = floats((0..count).map(|index| index as f32 / count as f32));
    harness::write_npy(path, "<f4", &dims, &body);
}

#[test]
fn a_model_is_trained_saved_evaluated_and_asked_without_a_job_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write_npy(&at("x.npy"), [10, 4]);
    write_npy(&at("y.npy"), [10, 1]);
    let model = reference("schedule.keras");
    let arguments = [
        "train",
        model.to_str().unwrap(),
        "--data",
        "x.npy,y.npy",
        "--batch",
        "4",
        "--epochs",
        "2",
        "--json",
    ];
    let first = lines(&memfit_in(folder.path(), &[&arguments[..], &["--output", "trained.keras"]].concat()));
    assert_eq!(first[0]["iteration"], 3, "the file was saved after its third step");
    assert_eq!(first.iter().filter(|line| line["event"] == "step").count(), 6);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing stands beside");

    let again = ["train", "trained.keras", "--data", "x.npy,y.npy", "--steps", "1", "--json"];
    assert_eq!(lines(&memfit_in(folder.path(), &again))[0]["iteration"], 9);
    let evaluated =
        lines(&memfit_in(folder.path(), &["evaluate", "trained.keras", "--data", "x.npy,y.npy", "--json"]));
    assert!(evaluated[0]["loss"].as_f64().unwrap() < 1.0 && evaluated[0]["rows"] == 10);
    let predicted =
        ["predict", "trained.keras", "--data", "x.npy", "--batch", "4", "--output", "p.npy", "--json"];
    assert_eq!(lines(&memfit_in(folder.path(), &predicted))[0]["rows"], 10);
    assert_eq!(fs::metadata(at("p.npy")).unwrap().len(), 128 + 40);

    let summary = memfit_in(folder.path(), &["summary", "trained.keras"]);
    let text = String::from_utf8(summary.stdout).unwrap();
    assert!(text.contains("dense_1 (Dense)") && text.contains("Total params: 31"), "{text}");
    let table = &lines(&memfit_in(folder.path(), &["summary", "trained.keras", "--json"]))[0];
    assert_eq!(table["parameters"], 31);
}

#[test]
fn the_budget_holds_while_a_model_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("job.toml"), LARGE).unwrap();
    for output in ["large.keras", "large.weights.h5", "large.safetensors"] {
        let train = ["train", "job.toml", "--json", "--output", output, "--budget"];
        let refused = memfit_in(folder.path(), &[&train[..], &["1MiB"]].concat());
        let text = ended_with(&refused, 3);
        let smallest = text.split("--budget ").nth(1).unwrap().split('`').next().unwrap();
        let printed = lines(&memfit_in(folder.path(), &[&train[..], &[smallest]].concat()));
        let end = printed.last().unwrap();
        assert!(end["vm_hwm"].as_u64().unwrap() <= end["budget"].as_u64().unwrap());
        assert_eq!(end["bytes_peak_predicted"], end["bytes_peak_measured"]);
        let weights = 4 * (2048 * 2048 + 2048 + 2048 * 4 + 4);
        let bytes = fs::metadata(folder.path().join(output)).unwrap().len();
        assert!(if output == "large.safetensors" { weights } else { 3 * weights } <= bytes);
    }
    // Dropout and all: what was written is read by the next command.
    let asked = ["evaluate", "large.keras", "--json"];
    assert!(ended_with(&memfit_in(folder.path(), &asked), 2).contains("--data"));
    let weights = ["train", "job.toml", "--weights", "large.safetensors", "--steps", "1", "--json"];
    assert_eq!(lines(&memfit_in(folder.path(), &weights))[0]["event"], "step", "weights alone do not resume");
}

#[test]
fn a_disk_that_is_full_is_reported_before_training_and_the_old_file_stays() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("job.toml"), LARGE).unwrap();
    fs::write(folder.path().join("old.keras"), "what stood there before").unwrap();
    // No file may grow beyond 1 MiB, and the signal that says so is ignored: a write fails as on a full disk.
    let train = ["train", "job.toml", "--json", "--output", "old.keras"];
    let mut limited = command_after("trap '' XFSZ && ulimit -f 1024", &train);
    let output = limited.current_dir(folder.path()).output().unwrap();
    let text = ended_with(&output, 1);
    assert!(text.contains("old.keras") && text.contains("untouched"), "{text}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("\"step\""), "nothing was trained");
    assert_eq!(fs::read_to_string(folder.path().join("old.keras")).unwrap(), "what stood there before");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing stands beside");
}

#[test]
fn what_is_missing_is_said_with_the_flag_that_gives_it() {
    let folder = tempfile::tempdir().unwrap();
    let config = r#"{"class_name": "Sequential", "config": {"name": "s", "layers": [
        {"class_name": "InputLayer", "config": {"batch_shape": [null, 3], "name": "i"}},
        {"class_name": "Dense", "config": {"units": 2, "name": "d"}}]}}"#;
    fs::write(folder.path().join("model.json"), config).unwrap();
    let train = |more: &[&str]| {
        memfit_in(folder.path(), &[&["train", "model.json", "--steps", "1", "--json"], more].concat())
    };
    let text = ended_with(&train(&[]), 2);
    assert!(text.contains("--loss") && text.contains("--optimizer"), "{text}");
    lines(&train(&["--loss", "mse", "--optimizer", "sgd", "--output", "m.keras"]));
    assert!(ended_with(&train(&["--loss", "mse", "--output", "m.h5"]), 2).contains(".weights.h5"));
    let nowhere = train(&["--loss", "mse", "--output", "nowhere/m.keras"]);
    assert!(ended_with(&nowhere, 1).contains("nowhere/m.keras"));
    write_npy(&folder.path().join("x.npy"), [2, 3]);
    let two = ["predict", "m.keras", "--data", "x.npy", "--output", "a.npy,b.npy"];
    assert!(ended_with(&memfit_in(folder.path(), &two), 2).contains("one file for each of d"));
    fs::write(folder.path().join("not.keras"), "PK\u{3}\u{4}").unwrap();
    assert!(ended_with(&memfit_in(folder.path(), &["summary", "not.keras"]), 2).contains("not.keras"));
}

#[test]
fn a_low_budget_splits_what_is_predicted_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let job = "
[model]
layers = [
    {class = \"Input\", shape = [64, 64, 3]},
    {class = \"Conv2D\", filters = 32, kernel_size = 3},
    {class = \"BatchNormalization\"},
    {class = \"GlobalAveragePooling2D\"},
    {class = \"Dense\", units = 3, activation = \"softmax\"},
]
[train]
loss = \"sparse_categorical_crossentropy\"
metrics = [\"accuracy\"]
batch = 64
[data]
rows = 70
";
    fs::write(folder.path().join("job.toml"), job).unwrap();
    let run = |command: &str, budget: &str, more: &[&str]| {
        let arguments = [&[command, "job.toml", "--json", "--budget", budget], more].concat();
        let printed = lines(&memfit_in(folder.path(), &arguments)).remove(0);
        assert!(printed["vm_hwm"].as_u64().unwrap() <= printed["budget"].as_u64().unwrap(), "{printed}");
        assert_eq!(printed["rows"], 70);
        printed
    };
    let refused = memfit_in(folder.path(), &["evaluate", "job.toml", "--json", "--budget", "1MiB"]);
    assert_eq!(refused.status.code(), Some(3));
    let answer: serde_json::Value = serde_json::from_slice(&refused.stdout).unwrap();
    let smallest = format!("{}B", answer["bytes_smallest_budget"]);
    let (low, high) = (run("evaluate", &smallest, &[]), run("evaluate", "300MiB", &[]));
    assert!(low["micro_batch"].as_u64().unwrap() < 64 && high["micro_batch"] == 64);
    assert!((low["loss"].as_f64().unwrap() - high["loss"].as_f64().unwrap()).abs() < 1e-6);
    assert_eq!(low["accuracy"], high["accuracy"]);
    run("predict", &smallest, &["--output", "low.npy"]);
    run("predict", "300MiB", &["--output", "high.npy"]);
    let rows = |name: &str| fs::read(folder.path().join(name)).unwrap();
    assert_eq!(rows("low.npy"), rows("high.npy"), "bit for bit");
}
