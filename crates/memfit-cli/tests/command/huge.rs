//! Huge numbers are answered: no panic, no abort, and planning takes no longer for more micro-batches.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::harness::{command_after, ended_with};

fn job(train: &str) -> String {
    let text = format!(
        "[[model.layers]]\nclass = \"Input\"\nshape = [8, 8, 1]\n\n[[model.layers]]\nclass = \"Conv2D\"\nfilters = \
         4\nkernel_size = 3\n\n[[model.layers]]\nclass = \"Flatten\"\n\n[[model.layers]]\nclass = \"Dense\"\nunits = \
         3\nactivation = \"softmax\"\n\n[train]\nloss = \"sparse_categorical_crossentropy\"\n{train}\n\n[memory]\ncosts = \
         \"analytic\"\n"
    );
    // Tests run at once, and none may read what another is about to write.
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let name = FILES.fetch_add(1, Ordering::Relaxed);
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("huge-{name}.toml"));
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Runs the command where it may map little more than it needs, so that asking for gigabytes fails.
#[track_caller]
fn answered(arguments: &[&str], expected: i32) -> String {
    let output = command_after("ulimit -v 2000000", arguments).output().unwrap();
    ended_with(&output, expected);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn huge_batches_are_planned_or_refused() {
    let plain = job("batch = 32");
    for (batch, expected) in [
        ("4097", 0),
        ("10000000", 0),
        ("1000000000", 0),
        ("4294967296", 0),
        ("1099511627776", 2),
        ("1099511627777", 2),
        ("9223372036854775807", 2),
        ("18446744073709551615", 2),
    ] {
        let text = answered(
            &["plan", &plain, "--batch", batch, "--budget", "64MiB", "--device", "cpu", "--json"],
            expected,
        );
        if expected == 0 {
            let plan: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
            let rows: u64 = batch.parse().unwrap();
            let (size, count) =
                (plan["micro_batch"].as_u64().unwrap(), plan["micro_batches"].as_u64().unwrap());
            assert_eq!(rows.div_ceil(size), count, "{batch}");
            assert!(plan["bytes_peak"].as_u64().unwrap() < 64 << 20, "{batch}");
            // Of 4096 rows, every number of micro-batches is tried; this takes milliseconds, for any batch.
            assert!(plan["seconds_planning"].as_f64().unwrap() < 5.0, "{batch}: {plan}");
        }
    }
    answered(&["plan", &job("batch = 1000000000"), "--budget", "64MiB", "--device", "cpu"], 0);
    answered(&["plan", &job("batch = 9223372036854775807"), "--budget", "64MiB", "--device", "cpu"], 2);
}

#[test]
fn huge_numbers_of_threads_are_refused() {
    let plain = job("batch = 32");
    for threads in ["4097", "100000000000", "18446744073709551615"] {
        answered(&["plan", &plain, "--threads", threads, "--budget", "64MiB", "--device", "cpu"], 1);
    }
}

#[test]
fn a_batch_larger_than_the_data_is_said() {
    let few = job("batch = 64\n[data]\nrows = 10");
    let said = answered(&["plan", &few, "--budget", "64MiB", "--device", "cpu"], 0);
    assert!(
        said.contains("the batch of 64 rows is larger than the data: every step has all of its 10 rows"),
        "{said}"
    );
}
