//! A budget is accepted if and only if it is at least the printed smallest one, and then never exceeded.

use std::path::PathBuf;

use serde_json::Value;

use crate::harness::{command, command_after, errors, memfit};

const IMAGES: &[&str] = &[
    "class = \"Input\"\nshape = [24, 24, 3]",
    "class = \"Conv2D\"\nfilters = 16\nkernel_size = 3\npadding = \"same\"\nactivation = \"relu\"",
    "class = \"Conv2D\"\nfilters = 8\nkernel_size = 3\npadding = \"same\"",
    "class = \"BatchNormalization\"",
    "class = \"Activation\"\nactivation = \"relu\"",
    "class = \"MaxPooling2D\"",
    "class = \"Conv2D\"\nfilters = 24\nkernel_size = 3\npadding = \"same\"",
    "class = \"BatchNormalization\"",
    "class = \"Flatten\"",
];
const ROWS: &[&str] = &[
    "class = \"Input\"\nshape = [64]",
    "class = \"Dense\"\nunits = 256\nactivation = \"tanh\"",
    "class = \"BatchNormalization\"",
    "class = \"Dense\"\nunits = 256\nactivation = \"relu\"",
    "class = \"Dropout\"\nrate = 0.5",
];
const SEQUENCES: &[&str] = &[
    "class = \"Input\"\nshape = [30, 12]",
    "class = \"LSTM\"\nunits = 40\nreturn_sequences = true",
    "class = \"GRU\"\nunits = 32",
];

/// Networks with what is said under `[train]`, `[data]` and `[memory]` beside their loss.
const JOBS: [(&str, &[&str], &str, &str, &str); 7] = [
    ("images", IMAGES, "optimizer = \"adam\"\nbatch = 64", "", ""),
    ("images-first", IMAGES, "optimizer = \"sgd\"\nbatch = 16", "", "first = true"),
    ("images-half", IMAGES, "optimizer = \"adam\"\nbatch = 8\nprecision = \"mixed_float16\"", "", ""),
    ("rows", ROWS, "optimizer = \"adamw\"\nbatch = 100\nmetrics = [\"accuracy\"]", "", ""),
    ("validated", ROWS, "optimizer = \"rmsprop\"\nbatch = 32", "rows = 80\nvalidation_split = 0.5", ""),
    ("sequences", SEQUENCES, "optimizer = \"adafactor\"\nbatch = 32", "", ""),
    ("saved", SEQUENCES, "optimizer = \"adam\"\nbatch = 5\noutput = \"saved.keras\"", "", "first = true"),
];

fn write(name: &str, layers: &[&str], train: &str, data: &str, memory: &str) -> PathBuf {
    let layers: String = layers
        .iter()
        .chain(&["class = \"Dense\"\nunits = 10\nactivation = \"softmax\""])
        .map(|layer| format!("[[model.layers]]\n{layer}\n\n"))
        .collect();
    let text = format!(
        "{layers}[train]\nloss = \"sparse_categorical_crossentropy\"\n{train}\n\n[data]\n{data}\n\n[memory]\ncosts = \
         \"analytic\"\n{memory}\n"
    );
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("budgets-{name}.toml"));
    std::fs::write(&path, text).unwrap();
    path
}

/// Exit code and figures of a plan.
fn plan(job: &str, budget: &str) -> (Option<i32>, Value) {
    plan_of(&[job, "--budget", budget, "--json", "--device", "cpu"])
}

/// The same with any arguments.
fn plan_of(arguments: &[&str]) -> (Option<i32>, Value) {
    let output = memfit(&[&["plan"], arguments].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let figures = serde_json::from_str(text.lines().next().unwrap_or("null")).unwrap();
    (output.status.code(), figures)
}

#[test]
fn a_budget_is_accepted_if_and_only_if_it_is_at_least_the_smallest() {
    for (name, layers, train, data, memory) in JOBS {
        let path = write(name, layers, train, data, memory);
        let job = path.to_str().unwrap();
        let (_, roomy) = plan(job, "4GiB");
        let smallest = roomy["bytes_smallest_budget"].as_i64().unwrap();
        for step in [-smallest / 100, -1, 0, 200_000] {
            let budget = format!("{}B", smallest + step);
            let at = format!("{name} at {step:+} of {smallest}");
            let (planned, figures) = plan(job, &budget);
            assert_eq!(figures["bytes_smallest_budget"], smallest, "{at}");
            assert_eq!(planned, Some(if step < 0 { 3 } else { 0 }), "{at}");
            let trained =
                memfit(&["train", job, "--budget", &budget, "--steps", "1", "--json", "--device", "cpu"]);
            let said = errors(&trained);
            assert_eq!(trained.status.code(), planned, "{at}: {said}");
            if step < 0 {
                // What is needed is the smallest budget, in the same words as everywhere.
                let needs = memfit::Bytes(smallest as u64);
                let bytes = format!("needs {smallest} bytes");
                assert!(said.contains(&format!("needs {needs}")) || said.contains(&bytes), "{at}: {said}");
            } else {
                let text = String::from_utf8(trained.stdout).unwrap();
                let end: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
                assert!(end["vm_hwm"].as_u64() <= end["budget"].as_u64(), "{at}: {end}");
            }
        }
    }
}

#[test]
fn logs_and_checkpoints_of_a_training_are_in_its_plan() {
    let path = write("written", ROWS, "optimizer = \"adam\"\nbatch = 5", "rows = 20", "first = true");
    let folder = tempfile::tempdir().unwrap();
    for (option, name) in [("--log", "log.csv"), ("--tensorboard", "board"), ("--checkpoints", "checkpoints")]
    {
        let to = folder.path().join(name);
        let common = [path.to_str().unwrap(), option, to.to_str().unwrap(), "--device", "cpu", "--json"];
        let (_, figures) = plan_of(&[&common[..], &["--budget", "4GiB"]].concat());
        let smallest = figures["bytes_smallest_budget"].as_u64().unwrap();
        assert!(!to.exists(), "{option}: a plan writes nothing");
        for (budget, code) in [(smallest - 1, 3), (smallest, 0)] {
            let budget = format!("{budget}B");
            let trained =
                memfit(&[&["train"], &common[..], &["--budget", &budget, "--epochs", "1"]].concat());
            assert_eq!(trained.status.code(), Some(code), "{option}: {}", errors(&trained));
        }
        assert!(to.exists(), "{option}");
    }
}

/// Options that `plan` and `train` share, and the most address space in KiB.
const OPTIONS: [(&[&str], Option<u64>); 6] = [
    (&["--threads", "1"], None),
    (&["--threads", "5", "--precision", "mixed_bfloat16"], None),
    (&["--output", concat!(env!("CARGO_TARGET_TMPDIR"), "/agreed.weights.h5")], None),
    (&["--disk", concat!(env!("CARGO_TARGET_TMPDIR"), ":16MiB")], None),
    (&["--threads", "2"], Some(200_000)),
    (&["--first"], Some(60_000)),
];

/// Exit code of the command within an address space.
fn code_within(limit: Option<u64>, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = match limit {
        Some(limit) => command_after(&format!("ulimit -v {limit}"), arguments),
        None => command(arguments),
    };
    let output = command.output().unwrap();
    (output.status.code(), errors(&output))
}

#[test]
fn plan_exits_with_0_if_and_only_if_train_does() {
    let (mut accepted, mut refused) = (0, 0);
    for (number, (name, layers, train, data, memory)) in JOBS.into_iter().enumerate() {
        let path = write(&format!("agreed-{name}"), layers, train, data, memory);
        for (options, limit) in [OPTIONS[number % 6], OPTIONS[(number + 3) % 6]] {
            let common = [&[path.to_str().unwrap(), "--device", "cpu"], options].concat();
            let roomy = memfit(&[&["plan"], &common[..], &["--budget", "4GiB", "--json"]].concat());
            let text = String::from_utf8(roomy.stdout).unwrap();
            let figures: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
            let smallest = figures["bytes_smallest_budget"].as_i64().unwrap();
            for budget in [smallest - 1, smallest, 1 << 30] {
                let budget = format!("{budget}B");
                let common = [&common[..], &["--budget", &budget]].concat();
                let planned = code_within(limit, &[&["plan"], &common[..]].concat());
                let trained =
                    code_within(limit, &[&["train"], &common[..], &["--steps", "1", "--json"]].concat());
                assert_eq!(
                    planned.0, trained.0,
                    "{common:?} in {limit:?} KiB: {} / {}",
                    planned.1, trained.1
                );
                match planned.0 {
                    Some(0) => accepted += 1,
                    Some(3) => refused += 1,
                    other => panic!("{common:?} in {limit:?} KiB: {other:?}: {}", planned.1),
                }
            }
        }
    }
    assert!(14 <= accepted && 14 <= refused, "{accepted} accepted, {refused} refused");
}
