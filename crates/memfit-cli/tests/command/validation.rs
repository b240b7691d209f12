//! Validation while a job trains: the same training, the same numbers as an evaluation, and the budget holds.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::{self, errors, floats, lines, losses, memfit_in};

/// A network whose activations take most of its bytes, with dropout and moving averages, which work
/// differently in a validation.
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

fn job(rows: usize, more: &str) -> String {
    JOB.replace("ROWS", &rows.to_string()).replace("MORE", more)
}

fn epochs(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|event| event["event"] == "epoch").collect()
}

#[test]
fn a_validation_changes_nothing_of_the_training_and_stays_below_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("split.toml"), job(100, "validation_split = 0.3")).unwrap();
    fs::write(folder.path().join("plain.toml"), job(70, "")).unwrap();
    let train = |name: &str, budget: &str| {
        let printed = lines(&memfit_in(folder.path(), &["train", name, "--budget", budget, "--json"]));
        let end = printed.last().unwrap().clone();
        assert_eq!(end["bytes_peak_predicted"], end["bytes_peak_measured"]);
        assert!(end["vm_hwm"].as_u64().unwrap() <= end["budget"].as_u64().unwrap(), "{end}");
        printed
    };
    let (split, plain) = (train("split.toml", "200MiB"), train("plain.toml", "200MiB"));
    assert_eq!(losses(&split).len(), 9);
    assert_eq!(losses(&split), losses(&plain), "bit for bit, whatever is validated in between");
    let validated = epochs(&split);
    assert_eq!((validated.len(), epochs(&plain).len()), (3, 0));
    for (epoch, steps) in validated.iter().zip(losses(&plain).chunks(3)) {
        let mean = (steps[0] * 32.0 + steps[1] * 32.0 + steps[2] * 6.0) / 70.0;
        assert!((epoch["loss"].as_f64().unwrap() - mean).abs() < 1e-12, "{epoch}");
        for name in ["val_loss", "accuracy", "val_accuracy", "auc", "val_auc", "precision", "val_precision"] {
            assert!(epoch[name].is_f64(), "{name}: {epoch}");
        }
    }
    assert_ne!(validated[0]["val_loss"], validated[2]["val_loss"], "it is of the weights of its epoch");
    assert_eq!(split.last().unwrap()["val_auc"], validated[2]["val_auc"]);

    // In micro-batches, with hardly more than the smallest budget.
    let low = train("split.toml", "32MiB");
    for (low, high) in epochs(&low).iter().zip(&validated) {
        for name in ["loss", "val_loss", "val_accuracy", "val_auc", "val_precision"] {
            let (low, high) = (low[name].as_f64().unwrap(), high[name].as_f64().unwrap());
            assert!((low - high).abs() < 1e-3, "{name}: {low} and {high}");
        }
    }
}

#[test]
fn a_validation_reports_what_an_evaluation_of_the_saved_model_reports() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("job.toml"), job(64, "")).unwrap();
    write_npy(&folder.path().join("x.npy"), &[20, 48, 48, 3]);
    write_npy(&folder.path().join("y.npy"), &[20, 3]);
    let train =
        ["train", "job.toml", "--validation-data", "x.npy,y.npy", "--output", "trained.keras", "--json"];
    let printed = lines(&memfit_in(folder.path(), &train));
    let last = epochs(&printed)[2].clone();
    let evaluate = ["evaluate", "trained.keras", "--data", "x.npy,y.npy", "--json"];
    let evaluated = lines(&memfit_in(folder.path(), &evaluate)).remove(0);
    for name in ["loss", "accuracy", "auc", "precision"] {
        assert_eq!(last[format!("val_{name}")], evaluated[name], "{name}");
    }
    let both = [&train[..], &["--validation-split", "0.1"]].concat();
    assert!(!memfit_in(folder.path(), &both).status.success());
    let none = memfit_in(folder.path(), &["train", "job.toml", "--validation-split", "1.5"]);
    let said = errors(&none);
    assert!(said.contains("give a share between 0 and 1"), "{said}");
}

/// Images of floats between 0 and 1 in which nothing repeats, or one of three classes for each row.
fn write_npy(path: &Path, dims: &[usize]) {
    let value = |index: usize| match dims.len() {
        2 => f32::from(u8::from(index % 3 == index / 3 % 3)),
        _ => (index as f32 * 0.618).fract(),
    };
    harness::write_npy(path, "<f4", dims, &floats((0..dims.iter().product()).map(value)));
}
