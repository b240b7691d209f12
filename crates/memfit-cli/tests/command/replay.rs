//! `memfit plan --dump` and `memfit replay`: a dumped problem gives the dumped plan, byte for byte, without a device.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::{errors, example, memfit};

fn text(path: &Path) -> String {
    path.to_str().expect("a path of letters").to_owned()
}

/// Dumps a job; the exit code and the folder.
fn dumped(folder: &Path, job: &str, more: &[&str]) -> (Option<i32>, PathBuf) {
    let into = folder.join("dump");
    let (job, to) = (example(job), text(&into));
    let mut arguments = vec!["plan", &job, "--device", "cpu", "--dump", &to];
    arguments.extend(more);
    (memfit(&arguments).status.code(), into)
}

#[test]
fn a_replay_gives_the_dumped_plan_byte_for_byte() {
    for (job, more) in [
        ("flat.toml", &["--costs", "analytic"][..]),
        ("accumulate.toml", &["--costs", "measured"]),
        ("large-images-batchnorm.toml", &["--costs", "analytic"]),
        ("transformer.toml", &["--costs", "analytic", "--budget", "64MiB"]),
        ("transformer.toml", &["--costs", "analytic", "--micro-batches", "4"]),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let (code, dump) = dumped(folder.path(), job, more);
        assert_eq!(code, Some(0), "{job}");
        let (problem, output) = (text(&dump.join("problem.txt")), folder.path().join("again.txt"));
        let answer = memfit(&["replay", &problem, "--json", "--output", &text(&output)]);
        assert_eq!(answer.status.code(), Some(0), "{job}");
        let read = |path: &Path| fs::read_to_string(path).expect("a text");
        assert_eq!(read(&output), read(&dump.join("plan.txt")), "{job} {more:?}");
        let figures: Value = serde_json::from_slice(&answer.stdout).expect("one object");
        assert_eq!(figures["fits"], true);
        let line = format!("bytes_peak {}\n", figures["bytes_peak"]);
        assert!(read(&output).contains(&line), "{job}: {figures}");
        // The graph stands in the problem as it stands alone.
        let graph = read(&dump.join("graph.txt"));
        let nodes = graph.lines().filter(|line| line.starts_with("node "));
        let whole = read(&dump.join("problem.txt"));
        assert!(0 < nodes.clone().count() && nodes.clone().all(|line| whole.contains(line)), "{job}");
    }
}

#[test]
fn a_problem_that_does_not_fit_is_refused_with_its_smallest_budget() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, dump) = dumped(folder.path(), "transformer.toml", &["--costs", "analytic"]);
    let problem = text(&dump.join("problem.txt"));
    let refused = memfit(&["replay", &problem, "--budget", "22MiB", "--json"]);
    assert_eq!(refused.status.code(), Some(3));
    let figures: Value = serde_json::from_slice(&refused.stdout).expect("one object");
    assert_eq!(figures["fits"], false);
    assert!(errors(&refused).starts_with("error: this step needs "));
    let smallest = figures["smallest"].as_u64().expect("a number of bytes");
    for (bytes, code) in [(smallest, 0), (smallest - 1, 3)] {
        let answer = memfit(&["replay", &problem, "--budget", &format!("{bytes}B")]);
        assert_eq!(answer.status.code(), Some(code), "{bytes} bytes, the smallest is {smallest}");
    }
}

#[test]
fn a_job_that_does_not_fit_leaves_no_plan_of_an_earlier_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, dump) = dumped(folder.path(), "flat.toml", &[]);
    assert!(dump.join("plan.txt").exists());
    let (code, dump) = dumped(folder.path(), "flat.toml", &["--budget", "1MiB"]);
    assert_eq!(code, Some(3));
    assert!(dump.join("problem.txt").exists() && !dump.join("plan.txt").exists());
    let answer = memfit(&["replay", &text(&dump.join("problem.txt"))]);
    assert_eq!(answer.status.code(), Some(3));
}

#[test]
fn what_is_no_problem_is_refused_with_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, dump) = dumped(folder.path(), "flat.toml", &[]);
    let whole = fs::read_to_string(dump.join("problem.txt")).expect("a text");
    for (text_of, said) in [
        (String::new(), "line 1: this is no problem"),
        (whole.replacen("problem 3", "problem 7", 1), "line 1: version `7` of the format"),
        (whole.replacen("granule", "grain", 1), "line 3: expected `granule=`"),
        (whole[..whole.len() / 2].to_owned(), "line "),
        (whole.replacen("pinned {", "pinned {micro_batch=1000 ", 1), "no micro-batches of 1000"),
    ] {
        let file = folder.path().join("problem.txt");
        fs::write(&file, text_of).expect("a file is written");
        let answer = memfit(&["replay", &text(&file)]);
        let message = errors(&answer);
        assert!(answer.status.code() == Some(2) && message.contains(said), "{message}");
    }
    assert_eq!(memfit(&["replay", "no such file"]).status.code(), Some(2));
}
