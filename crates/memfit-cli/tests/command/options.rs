//! Options of `memfit train`: any key of a job, the order of rows, early stopping, and logs.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::{ended_with, floats, lines, losses, memfit_in, text, write_npy};

const JOB: &str = "
[model]
layers = [{class = \"Input\", shape = [6]}, {class = \"Dense\", units = 5, activation = \"tanh\"}, {class = \"Dense\", units = 2}]
[train]
loss = \"mse\"
metrics = [\"mae\"]
optimizer = \"sgd\"
batch = 8
epochs = 3
[data]
x = \"x.npy\"
y = \"y.npy\"
validation_split = 0.2
[memory]
costs = \"analytic\"
";

/// A folder with a job and fifty rows in which nothing repeats.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, width) in [("x.npy", 6), ("y.npy", 2)] {
        let values = floats((0..50 * width).map(|index| (index * 37 % 101) as f32 / 101.0));
        write_npy(&folder.path().join(name), "<f4", &[50, width], &values);
    }
    fs::write(folder.path().join("job.toml"), JOB).unwrap();
    folder
}

fn train(folder: &Path, more: &[&str]) -> Vec<Value> {
    lines(&memfit_in(folder, &[&["train", "job.toml", "--json"], more].concat()))
}

fn refused(folder: &Path, more: &[&str]) -> String {
    ended_with(&memfit_in(folder, &[&["train", "job.toml"], more].concat()), 2)
}

#[test]
fn keys_are_set_in_three_ways_with_one_result() {
    let folder = folder();
    let plain = losses(&train(folder.path(), &[]));
    let set = losses(&train(folder.path(), &["--set", "train.optimizer.learning_rate=0.3"]));
    assert_ne!(plain, set);
    assert_eq!(losses(&train(folder.path(), &["--learning-rate", "0.3"])), set);
    let by_key = ["--set", "train.learning_rate=0.3", "--set", "memory.budget=1GiB"];
    assert_eq!(losses(&train(folder.path(), &by_key)), set);
    for (more, wanted) in [
        ("train.optimiser=adam", "did you mean `optimizer`?"),
        ("train.batch=many", "train.batch: invalid type: string \"many\""),
        ("train.optimizer.momentun=0.9", "SGD has no argument `momentun`"),
    ] {
        let said = refused(folder.path(), &["--set", more]).to_lowercase();
        assert!(said.contains(&wanted.to_lowercase()), "{more}: {said}");
    }
    assert!(refused(folder.path(), &["--learning-rate", "-1"]).contains("rate of at least 0"));
}

#[test]
fn rows_of_files_are_shuffled_by_a_seed_and_the_plan_says_so() {
    let folder = folder();
    let of = |more: &[&str]| losses(&train(folder.path(), more));
    let (shuffled, in_order) = (of(&[]), of(&["--no-shuffle"]));
    assert_ne!(shuffled, in_order);
    assert_eq!(of(&["--shuffle"]), shuffled);
    assert_eq!(of(&["--shuffle=0"]), shuffled, "the seed of the training");
    assert_eq!(of(&["--set", "data.shuffle=false"]), in_order);
    let other = of(&["--shuffle=7"]);
    assert!(other != shuffled && other != in_order);
    let said = |more: &[&str]| text(&memfit_in(folder.path(), &[&["plan", "job.toml"], more].concat()));
    assert!(said(&["--set", "data.shuffle=7"]).contains("rows shuffled in every epoch, by seed 7"));
    assert!(!said(&["--set", "data.shuffle=false"]).contains("shuffled"));
    let endless = ["--set", "data={}", "--steps", "1", "--shuffle"];
    fs::write(folder.path().join("job.toml"), JOB.split("[data]").next().unwrap()).unwrap();
    assert!(refused(folder.path(), &endless[2..]).contains("synthetic data has no end"));
}

#[test]
fn training_stops_when_nothing_improves() {
    let folder = folder();
    let more = ["--epochs", "20", "--learning-rate", "0", "--early-stopping", "val_loss:3"];
    let events = train(folder.path(), &more);
    let epochs = events.iter().filter(|event| event["event"] == "epoch").count();
    assert_eq!(epochs, 4, "the first, and three that are no better");
    let said = refused(folder.path(), &["--early-stopping", "val_accuracy:3"]);
    assert!(said.contains("there is no `val_accuracy`; there are loss, mae, val_loss, val_mae"), "{said}");
}

#[test]
fn logs_have_a_row_for_every_step_and_epoch() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let events = train(folder.path(), &["--log", "log.csv", "--tensorboard", "board"]);
    train(folder.path(), &["--log", "log.jsonl"]);
    let csv = fs::read_to_string(at("log.csv")).unwrap();
    let header = "kind,epoch,step,loss,mae,val_loss,val_mae,learning_rate,rows_per_second,bytes_used";
    let kinds: Vec<&str> = csv.lines().map(|line| line.split(',').next().unwrap()).collect();
    let epoch = ["step", "step", "step", "step", "step", "epoch"];
    assert_eq!(csv.lines().next(), Some(header));
    assert_eq!(kinds[1..], epoch.repeat(3));
    let rows = fs::read_to_string(at("log.jsonl")).unwrap();
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let steps = rows.iter().filter(|row| row["kind"] == "step");
    let steps: Vec<f64> = steps.map(|row| row["loss"].as_f64().unwrap()).collect();
    assert_eq!(steps, losses(&events));
    for run in ["train", "validation"] {
        let files: Vec<_> = fs::read_dir(at("board").join(run)).unwrap().collect();
        assert_eq!(files.len(), 1, "{run}");
    }
    assert!(refused(folder.path(), &["--log", "log.txt"]).contains("must end in .csv or .jsonl"));
}
