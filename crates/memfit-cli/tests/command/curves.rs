//! Curves, saved plans and differences as their users ask for them.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::{self, ended_with, example, memfit};

fn text(arguments: &[&str]) -> String {
    harness::text(&memfit(arguments))
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&text(&[arguments, &["--json"]].concat())).unwrap()
}

/// Runs what must be refused as bad input, and checks that the message names these things.
fn refused(arguments: &[&str], names: &[&str]) {
    let said = ended_with(&memfit(arguments), 2);
    for name in names {
        assert!(said.contains(name), "`{name}` is not in: {said}");
    }
}

/// Every number in a value, however deep.
fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Number(number) => vec![number.as_f64().unwrap()],
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        Value::Object(fields) => fields.values().flat_map(numbers).collect(),
        Value::Null | Value::Bool(_) | Value::String(_) => vec![],
    }
}

#[test]
fn a_curve_has_eight_points_and_goes_from_the_unconstrained_plan_to_the_smallest_budget() {
    for name in ["accumulate.toml", "flat.toml", "large-images.toml", "reduced.toml", "six-convolutions.toml"]
    {
        let job = example(name);
        let sweep = json(&["plan", &job, "--sweep", "--budget", "1GiB"]);
        assert_eq!(sweep["budget"], 1u64 << 30);
        let points = sweep["points"].as_array().unwrap();
        assert!(8 <= points.len(), "{name} has {} points", points.len());
        for point in points {
            for key in [
                "budget",
                "bytes_peak",
                "bytes_activations",
                "time_relative",
                "time_bound",
                "micro_batches",
                "nodes_recomputed",
                "values_folded",
                "gradients_applied",
                "bytes_offloaded",
            ] {
                assert!(point[key].is_number(), "{key} is missing in {point}");
            }
        }
        let field = |point: &Value, key: &str| point[key].as_f64().unwrap();
        for pair in points.windows(2) {
            assert!(field(&pair[1], "budget") < field(&pair[0], "budget"), "{name}: {pair:?}");
            assert!(field(&pair[1], "bytes_peak") < field(&pair[0], "bytes_peak"), "{name}: {pair:?}");
            assert!(field(&pair[0], "time_relative") <= field(&pair[1], "time_relative"), "{name}: {pair:?}");
        }
        assert_eq!(points[0]["micro_batches"], 1, "{name} begins with the whole batch");
        assert_eq!(points[0]["nodes_recomputed"], 0);
        assert_eq!(points[0]["values_folded"], 0);
    }
}

#[test]
fn the_picture_marks_the_budget_and_fits_80_columns() {
    let job = example("six-convolutions.toml");
    let printed = text(&["plan", &job, "--sweep", "--budget", "600MiB", "--costs", "analytic"]);
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    assert!(printed.contains(": your budget, 600.00 MiB: buys 1.00"), "{printed}");
    let picture: Vec<&str> = printed.lines().filter(|line| line.get(9..10) == Some("|")).collect();
    assert!(10 <= picture.len());
    let columns: Vec<usize> = picture.iter().filter_map(|line| line.find(':')).collect();
    assert!(8 <= columns.len() && columns.iter().all(|column| *column == columns[0]), "one line: {printed}");
    let marked: Vec<&str> = printed.lines().filter(|line| line.ends_with(" <")).collect();
    let bought = marked[0].split_whitespace().next().and_then(|bytes| bytes.parse::<f64>().ok());
    assert!(
        marked.len() == 1 && bought.is_some_and(|mebibytes| 500.0 < mebibytes && mebibytes <= 600.0),
        "the table marks what it buys: {printed}"
    );
    let below = text(&["plan", &job, "--sweep", "--budget", "100MiB", "--costs", "analytic"]);
    assert!(below.contains("below the smallest plan and far off"), "{below}");
}

#[test]
fn the_page_of_a_curve_holds_its_points_and_loads_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("curve.html");
    let job = example("six-convolutions.toml");
    let sweep = json(&["plan", &job, "--sweep", "--budget", "600MiB", "--report", path.to_str().unwrap()]);
    let page = fs::read_to_string(&path).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    let data = page.split_once("id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!((&data["points"], &data["budget"]), (&sweep["points"], &sweep["budget"]));
    assert!(page.contains("default-src 'none'"), "the policy forbids what the page does not do");
    for word in ["http:", "https:", "src=", "@import", "url(", "<link", "fetch(", "<iframe", "<img"] {
        assert!(!page.contains(word), "the page contains {word}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside the page");
    refused(&["plan", &job, "--sweep", "--report", "no/such/folder/curve.html"], &["--report", "no/such"]);
    let both = ["plan", &job, "--diff", &job, "--report", "x.html"];
    assert_eq!(memfit(&both).status.code(), Some(2), "a difference has no page");
}

fn save(folder: &Path, name: &str, arguments: &[&str]) -> String {
    let path = folder.join(name).display().to_string();
    text(&[&["plan"], arguments, &["--output", &path]].concat());
    path
}

#[test]
fn a_saved_plan_differs_from_its_own_job_in_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (job, budget) = (example("six-convolutions.toml"), ["--budget", "600MiB", "--costs", "analytic"]);
    let saved = save(folder.path(), "plan.json", &[&[job.as_str()][..], &budget].concat());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside the plan");
    for (this, other) in [(&job, &saved), (&saved, &job), (&saved, &saved)] {
        let diff = json(&[&["plan", this, "--diff", other], &budget[..]].concat());
        let gaps = numbers(&diff["difference"]);
        assert!(20 <= gaps.len() && gaps.iter().all(|gap| *gap == 0.0), "{diff}");
    }
    let printed = text(&[&["plan", &job, "--diff", &saved], &budget[..]].concat());
    assert!(
        printed.contains("activations") && printed.contains("same") && !printed.contains("+"),
        "{printed}"
    );
    assert!(printed.contains("the same in both"), "{printed}");
}

#[test]
fn a_change_is_shown_kind_by_kind_and_layer_by_layer() {
    let folder = tempfile::tempdir().unwrap();
    let (small, large) = (example("accumulate.toml"), example("large-images.toml"));
    let saved = save(folder.path(), "small.json", &[&small]);
    let (first, second) = (json(&["plan", &small]), json(&["plan", &large]));
    let diff = json(&["plan", &saved, "--diff", &large]);
    for kind in ["weights", "gradients", "optimizer", "activations", "workspace", "input"] {
        let expected = first["held"][kind].as_i64().unwrap() - second["held"][kind].as_i64().unwrap();
        assert_eq!(diff["difference"]["held"][kind].as_i64().unwrap(), expected, "{kind}");
    }
    let of = |plan: &Value, name: &str| {
        let layers = plan["layers"].as_array().unwrap();
        layers.iter().find(|layer| layer["layer"] == name).map_or(0, |layer| layer["bytes"].as_i64().unwrap())
    };
    let gap = of(&first, "dense") - of(&second, "dense");
    assert!(gap < 0, "the change leads from the other plan to this one");
    assert_eq!(diff["difference"]["layers"]["dense"].as_i64().unwrap(), gap);
    let printed = text(&["plan", &saved, "--diff", &large]);
    assert!(printed.contains("  dense ") && printed.contains(" -"), "{printed}");
}

#[test]
fn a_saved_refusal_holds_its_hints() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    let job = example("six-convolutions.toml");
    let output = memfit(&["plan", &job, "--budget", "200MiB", "--output", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3));
    let saved: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!((&saved["version"], &saved["fits"]), (&1.into(), &false.into()));
    let hints = saved["hints"].as_array().unwrap();
    assert!(hints.iter().any(|hint| hint["kind"] == "optimizer"), "{hints:?}");
    let layer = hints.iter().find(|hint| hint["kind"] == "layer").expect("a layer dominates");
    assert!(layer["text"].as_str().unwrap().contains("`filters = 512` there instead of 1024"), "{layer}");
    let thinner = fs::read_to_string(&job).unwrap().replace("filters = 1024", "filters = 512");
    let changed = folder.path().join("thinner.toml").display().to_string();
    fs::write(&changed, thinner).unwrap();
    json(&["plan", &changed, "--budget", &layer["budget"].to_string()]);
    assert!(saved["tensors"].as_array().unwrap().len() > saved["layers"].as_array().unwrap().len());
    assert!(saved["steps"].as_array().unwrap().len() > 20);
}

#[test]
fn a_file_that_is_no_saved_plan_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let job = example("accumulate.toml");
    let saved = save(folder.path(), "plan.json", &[&job]);
    let whole = fs::read_to_string(&saved).unwrap();
    let spoiled = |text: &str| fs::write(&saved, text).unwrap();
    for length in [0, 1, 100, whole.len() / 2, whole.trim_end().len() - 1] {
        spoiled(&whole[..length]);
        refused(&["plan", &job, "--diff", &saved], &["plan.json", "cut off", "--output"]);
        refused(&["plan", &saved, "--diff", &job], &["plan.json", "cut off"]);
    }
    spoiled(&whole.replacen("\"version\":1", "\"version\":99", 1));
    refused(&["plan", &job, "--diff", &saved], &["plan.json", "version 99", "version 1"]);
    spoiled("{\"a\": 1}");
    refused(&["plan", &job, "--diff", &saved], &["plan.json", "not a saved plan"]);
    spoiled("what is this");
    refused(&["plan", &job, "--diff", &saved], &["plan.json", "nor JSON"]);
    spoiled(&whole.replacen("\"bytes_peak\"", "\"bytes_top\"", 1));
    refused(&["plan", &job, "--diff", &saved], &["plan.json", "bytes_peak"]);
    spoiled(&whole);
    refused(&["plan", &saved], &["plan.json", "saved plan", "--diff"]);
    refused(&["plan", &job, "--diff", "no-such-plan.json"], &["no-such-plan.json"]);
    refused(&["plan", &job, "--output", "/proc/plan.json"], &["--output", "/proc/plan.json"]);
}

#[test]
fn the_help_of_plan_teaches() {
    let printed = text(&["plan", "--help"]);
    for word in ["--sweep", "--report", "--diff", "--output", "--host", "--disk", "Examples:", "before.json"]
    {
        assert!(printed.contains(word), "{printed}");
    }
}
