//! Half types as users ask for them: what they save, what they skip, and what is said when they do not suffice.

use std::fs;

use serde_json::Value;

use crate::harness::{ended_with, errors, example, memfit};

const JOB: &str = r#"
[[model.layers]]
class = "Input"
shape = [6]
[[model.layers]]
class = "Dense"
name = "middle"
units = 4
activation = "relu"
[[model.layers]]
class = "Dense"
name = "last"
units = 2
[train]
loss = "mean_squared_error"
optimizer = "sgd"
batch = 4
steps = 20
"#;

/// Runs a job of its own; standard output and error.
fn run(job: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.toml").display().to_string();
    fs::write(&path, job).unwrap();
    let output = memfit(&[&arguments[..1], &[path.as_str()], &arguments[1..]].concat());
    let said = errors(&output);
    (output.status.code(), String::from_utf8(output.stdout).unwrap(), said)
}

fn json(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_mixed_policy_trains_inside_its_budget_and_says_what_it_saved() {
    for (policy, scale) in [("mixed_float16", Some(32768.0)), ("mixed_bfloat16", None)] {
        for budget in ["30MiB", "100MiB"] {
            // Of means the first layer's whole output is kept, in either type.
            let job = fs::read_to_string(example("accumulate.toml")).unwrap();
            let job = job.replace("MaxPooling2D", "AveragePooling2D");
            let (code, out, errors) =
                run(&job, &["train", "--budget", budget, "--precision", policy, "--json"]);
            assert_eq!(code, Some(0), "{errors}");
            let events = json(&out);
            let end = events.last().unwrap();
            assert_eq!(end["bytes_peak_predicted"], end["bytes_peak_measured"]);
            assert!(end["vm_hwm"].as_u64() <= end["budget"].as_u64(), "{end}");
            assert_eq!(end["precision"]["policy"], policy);
            assert!(20 << 20 < end["precision"]["bytes_saved"].as_i64().unwrap(), "{end}");
            assert_eq!((end["loss_scale"].as_f64(), end["steps_skipped"].as_u64()), (scale, Some(0)));
            assert_eq!(events[0]["loss_scale"].as_f64(), scale);
        }
    }
}

#[test]
fn a_gradient_that_overflows_skips_the_step_and_names_its_layer() {
    let heavy = JOB.replace("steps = 20", "steps = 20\nloss_weights = [3000]\nprecision = \"mixed_float16\"");
    let heavy = heavy.replace("\"sgd\"", "{ class = \"SGD\", learning_rate = 1e-6 }");
    let (code, out, errors) = run(&heavy, &["train", "--json"]);
    assert_eq!(code, Some(0), "{errors}");
    let events = json(&out);
    assert_eq!(events[0]["skipped_by"], "last");
    let end = events.last().unwrap();
    let skipped = end["steps_skipped"].as_u64().unwrap();
    assert!((1..16).contains(&skipped) && end["loss_scale"].as_f64().unwrap() < 32768.0, "{end}");
    assert_eq!(events.iter().filter(|event| event["skipped_by"].is_string()).count() as u64, skipped + 1);
}

#[test]
fn gradients_that_overflow_at_every_scale_are_an_answer() {
    let hopeless =
        JOB.replace("steps = 20", "steps = 20\nloss_weights = [1e9]\nprecision = \"mixed_float16\"");
    let (code, _, errors) = run(&hopeless, &["train", "--json"]);
    assert_eq!(code, Some(2), "{errors}");
    for name in ["last", "step 16", "mixed_bfloat16"] {
        assert!(errors.contains(name), "`{name}` is not in: {errors}");
    }
}

#[test]
fn an_unknown_policy_is_named() {
    let (code, _, errors) = run(&JOB.replace("steps = 20", "steps = 20\nprecision = \"int8\""), &["plan"]);
    assert!(code == Some(2) && errors.contains("`int8` is not supported"), "{errors}");
    let (code, _, errors) = run(JOB, &["plan", "--precision", "float64"]);
    assert!(code == Some(2) && errors.contains("`float64` is not supported"), "{errors}");
}

#[test]
fn what_does_not_fit_in_float32_and_would_in_half_says_so() {
    let job = example("six-convolutions.toml");
    let half = memfit(&["plan", &job, "--precision", "mixed_bfloat16", "--costs", "analytic", "--json"]);
    let half: serde_json::Value = serde_json::from_slice(&half.stdout).unwrap();
    // The program's own size is a line of the budget, so that no number written here would hold for long.
    let budget = format!("{}KiB", half["bytes_smallest_budget"].as_u64().unwrap() / 1024 + 512);
    let errors = ended_with(&memfit(&["plan", &job, "--budget", &budget]), 3);
    assert!(errors.contains("the policy mixed_bfloat16 fits from"), "{errors}");
    assert!(memfit(&["plan", &job, "--budget", &budget, "--precision", "mixed_bfloat16"]).status.success());
}
