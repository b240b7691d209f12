//! What the front page shows is what the command prints. `UPDATE_EXPECT=1 cargo test --release -p memfit-cli --test command readme` prints it again.

use std::fs;
use std::path::Path;

use crate::harness::{example, memfit_in, repository};

const DEMONSTRATION: &str = "cargo run --release";

/// Rows of a long table that are shown.
const ROWS: usize = 3;

/// A block of the page that begins with a command: where its output stands, and the command.
struct Block {
    start: usize,
    end: usize,
    command: String,
}

fn blocks(page: &str) -> Vec<Block> {
    const OPEN: &str = "```text\n$ ";
    let of = |(at, _): (usize, &str)| {
        let command = at + OPEN.len();
        let start = command + page[command..].find('\n').unwrap() + 1;
        let end = start + page[start..].find("```").unwrap();
        Block { start, end, command: page[command..start].trim_end().to_owned() }
    };
    page.match_indices(OPEN).map(of).collect()
}

/// What the command prints on both outputs.
fn print(folder: &Path, arguments: &[&str]) -> String {
    let output = memfit_in(folder, arguments);
    let both = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(both).unwrap();
    assert!(!text.is_empty() && !text.contains("panicked"), "{arguments:?}: {text}");
    text
}

fn words(command: &str) -> Vec<&str> {
    command.strip_prefix("memfit ").expect("a command of ours").split(' ').collect()
}

/// A long table as the page shows it: its first rows.
fn shortened(text: &str) -> String {
    let is_head = |line: &&str| line.trim_start().starts_with("budget  ") && line.contains("recomputed");
    let lines: Vec<&str> = text.lines().collect();
    let Some(head) = lines.iter().position(is_head) else { return lines.join("\n") };
    [&lines[..(head + 1 + ROWS).min(lines.len())], &["         ..."]].concat().join("\n")
}

/// A line without what differs from machine to machine and from build to build: numbers and the width of columns.
fn skeleton(line: &str) -> String {
    let digits = |letter: char| letter.is_ascii_digit() || letter == '.';
    let word = |word: &str| match word {
        "B" | "KiB" | "MiB" | "GiB" => "UNIT".to_owned(),
        "<" => String::new(),
        other => {
            let mut text = String::new();
            for letter in other.chars() {
                match (digits(letter), text.ends_with('#')) {
                    (true, false) => text.push('#'),
                    (true, true) => {}
                    (false, _) => text.push(letter),
                }
            }
            text.replace("MiB", "UNIT").replace("GiB", "UNIT")
        }
    };
    line.split_whitespace().map(word).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Lines of text, without the picture of a curve, whose shape is the machine's.
fn skeletons(text: &str) -> Vec<String> {
    let is_picture = |line: &&str| line.get(9..10).is_some_and(|mark| "|+".contains(mark));
    text.lines().filter(|line| !is_picture(line)).map(skeleton).filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_front_page_shows_what_the_command_prints() {
    let path = repository().join("README.md");
    let mut page = fs::read_to_string(&path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let found = blocks(&page);
    assert_eq!(found.len(), 3, "every block that begins with a command is seen");
    for Block { start, end, command } in found.into_iter().rev() {
        if update {
            let printed = match command.as_str() {
                DEMONSTRATION => print(folder.path(), &[]),
                command => print(&repository(), &words(command)),
            };
            let printed = shortened(printed.trim_end());
            let printed = printed.split("\n\nyour own:").next().unwrap();
            page.replace_range(start..end, &format!("{printed}\n"));
            continue;
        }
        let shown = skeletons(&page[start..end]);
        if command == DEMONSTRATION {
            check_demonstration(folder.path(), &shown);
            continue;
        }
        let printed = print(&repository(), &words(&command));
        check(&command, &shown, &skeletons(&shortened(printed.trim_end())));
    }
    if update {
        fs::write(path, page).unwrap();
    }
}

/// Compares line by line. Which hints fit and which tensors are named hangs on the size of the build: hints that are printed are shown,
/// and reasons that are shown are those that the planner knows.
fn check(command: &str, shown: &[String], printed: &[String]) {
    let known = include_str!("../../../memfit-plan/src/reason.rs");
    let (is_hint, is_reason) =
        (|line: &String| line.starts_with("hint "), |line: &String| line.starts_with("# UNIT "));
    let labelled = |lines: &[String]| -> Vec<String> {
        lines.iter().filter(|line| !is_hint(line) && !is_reason(line)).cloned().collect()
    };
    assert_eq!(labelled(shown), labelled(printed), "`{command}`: see the top of this test");
    for hint in printed.iter().filter(|line| is_hint(line)) {
        let kind = hint.split(" instead of ").next().unwrap_or(hint);
        assert!(shown.iter().any(|line| line.starts_with(kind)), "`{command}` prints `{hint}`");
    }
    for reason in shown.iter().filter(|line| is_reason(line)).filter(|line| line.contains(": ")) {
        let words = reason.rsplit(": ").next().unwrap_or_default();
        let words = words.split(['#', ',']).next().unwrap_or_default().trim_end();
        assert!(known.contains(words), "the planner knows no reason `{words}`");
    }
}

/// The demonstration takes a while, so its lines are looked for in what quicker commands print.
fn check_demonstration(folder: &Path, shown: &[String]) {
    let job = example("large-images.toml");
    let source = include_str!("../../src/demo.rs");
    let mut known = skeletons(source);
    known.extend(skeletons(&print(folder, &["plan", &job, "--budget", "2GiB"])));
    let small = example("reduced.toml");
    let arguments = [
        "train",
        &small,
        "--budget",
        "200MiB",
        "--batch",
        "4",
        "--steps",
        "2",
        "--report",
        "memfit-report.html",
    ];
    known.extend(skeletons(&print(folder, &arguments)));
    let is_costs = |line: &str| line.starts_with("costs measured on this machine");
    for line in shown {
        assert!(is_costs(line) || known.contains(line), "the command prints no line like `{line}`");
    }
}
