//! Where a BatchNormalization forbids a split, the layers before it run in slices, and the answers say so.

use serde_json::Value;

use crate::harness;

const JOB: &str = r#"
[[model.layers]]
class = "Input"
shape = [64, 64, 3]
[[model.layers]]
class = "Conv2D"
filters = 16
kernel_size = 3
activation = "relu"
[[model.layers]]
class = "MaxPooling2D"
[[model.layers]]
class = "Dropout"
rate = 0.25
[[model.layers]]
class = "MaxPooling2D"
[[model.layers]]
class = "BatchNormalization"
[[model.layers]]
class = "GlobalAveragePooling2D"
[[model.layers]]
class = "Dense"
units = 2
[train]
loss = "mean_squared_error"
optimizer = "sgd"
batch = 30
steps = 2
"#;

fn memfit(arguments: &[&str]) -> (Value, String) {
    let text = String::from_utf8(harness::memfit(arguments).stdout).unwrap();
    // Training prints one object an event, and the report last.
    let last = text.lines().last().unwrap_or_default();
    (serde_json::from_str(last).unwrap_or_default(), text)
}

#[test]
fn below_the_whole_batch_the_layers_before_a_batch_normalisation_run_in_slices() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.toml");
    std::fs::write(&path, JOB).unwrap();
    let job = path.to_str().unwrap();
    let whole = memfit(&["train", job, "--budget", "1GiB", "--json", "--costs", "analytic"]).0;
    assert!(whole["region"].is_null() && whole["loss"].is_f64(), "{whole}");

    let plan = memfit(&["plan", job, "--budget", "1GiB", "--json", "--costs", "analytic"]).0;
    let smallest = plan["bytes_smallest_budget"].as_u64().unwrap();
    let budget = format!("{}KiB", smallest.div_ceil(1024));
    let at = ["--budget", &budget, "--costs", "analytic"];
    let plan = memfit(&[&["plan", job, "--json"][..], &at].concat()).0;
    assert_eq!(plan["fits"], true, "{plan}");
    let region = &plan["region"];
    assert!(2 <= region["slices"].as_u64().unwrap(), "{plan}");
    assert_eq!(region["layers"][0], "conv2d", "{plan}");
    let text = memfit(&[&["plan", job][..], &at].concat()).1;
    assert!(text.contains("slices"), "{text}");

    let sliced = memfit(&[&["train", job, "--json"][..], &at].concat()).0;
    assert_eq!(sliced["region"], *region, "{sliced}");
    let loss = |report: &Value| report["loss"].as_f64().unwrap();
    assert!((loss(&sliced) / loss(&whole) - 1.0).abs() < 1e-5, "{sliced} {whole}");
    assert!(sliced["vm_hwm"].as_u64().unwrap() <= smallest.div_ceil(1024) * 1024, "{sliced}");
}
