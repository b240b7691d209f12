//! What README.md and the pages of docs/ show is what the command prints. `UPDATE_EXPECT=1 cargo test --release -p memfit-cli --test command readme` prints it again.

use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::{example, memfit_in, repository};

const DEMONSTRATION: &str = "cargo run --release";

/// A line of a page that stands for lines that are left out.
const LEFT_OUT: &str = "...";

/// A block of the page that begins with a command: where its output stands, and the command.
struct Block {
    start: usize,
    end: usize,
    command: String,
}

/// The pages that show outputs.
fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(repository().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> =
        docs.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.push(repository().join("README.md"));
    pages.sort();
    pages
}

fn is_ours(command: &str) -> bool {
    command == DEMONSTRATION || command.starts_with("memfit ")
}

/// Every block whose command is ours. Its command must stand right after the opening line, so that no output is left unchecked.
fn blocks(page: &str) -> Vec<Block> {
    const OPEN: &str = "```text\n$ ";
    let of = |(at, _): (usize, &str)| {
        let command = at + OPEN.len();
        let start = command + page[command..].find('\n').unwrap() + 1;
        let end = start + page[start..].find("```").unwrap();
        Block { start, end, command: page[command..start].trim_end().to_owned() }
    };
    let found: Vec<Block> =
        page.match_indices(OPEN).map(of).filter(|block| is_ours(&block.command)).collect();
    let commands = page
        .lines()
        .filter_map(|line| line.strip_prefix("$ "))
        .filter(|line| line.starts_with("memfit") || line.starts_with("cargo run"));
    assert_eq!(found.len(), commands.count(), "every command of ours begins a block of text");
    found
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

/// A text as a page shows it: where the page leaves lines out, as many lines as it shows before and after them.
fn shortened(text: &str, shown: &str) -> String {
    let (lines, shown): (Vec<&str>, Vec<&str>) = (text.lines().collect(), shown.lines().collect());
    let Some(at) = shown.iter().position(|line| line.trim() == LEFT_OUT) else { return lines.join("\n") };
    let head = at.min(lines.len());
    let tail = lines.len().saturating_sub(shown.len() - at - 1).max(head);
    [&lines[..head], &[shown[at]], &lines[tail..]].concat().join("\n")
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
fn pages_show_what_the_command_prints() {
    let mut count = 0;
    for path in pages() {
        let page = fs::read_to_string(&path).unwrap();
        let found = blocks(&page);
        count += found.len();
        match std::env::var_os("UPDATE_EXPECT") {
            Some(_) => fs::write(path, updated(page, found)).unwrap(),
            None => check_page(&page, found),
        }
    }
    assert!(count >= 5, "the blocks of README.md and docs/ are seen");
}

/// A page with what the commands print now.
fn updated(mut page: String, found: Vec<Block>) -> String {
    let folder = tempfile::tempdir().unwrap();
    for Block { start, end, command } in found.into_iter().rev() {
        let printed = match command.as_str() {
            DEMONSTRATION => print(folder.path(), &[]),
            command => print(&repository(), &words(command)),
        };
        let printed = printed.split("\n\nyour own:").next().unwrap().trim_end();
        page.replace_range(start..end, &format!("{}\n", shortened(printed, &page[start..end])));
    }
    page
}

fn check_page(page: &str, found: Vec<Block>) {
    let folder = tempfile::tempdir().unwrap();
    for Block { start, end, command } in found {
        let shown = &page[start..end];
        if command == DEMONSTRATION {
            check_demonstration(folder.path(), &skeletons(shown));
            continue;
        }
        let printed = print(&repository(), &words(&command));
        check(&command, &skeletons(shown), &skeletons(&shortened(printed.trim_end(), shown)));
    }
}

/// Compares line by line. Which hints fit and which tensors are named depends on the size of the build: hints
/// that are printed are shown, and reasons that are shown are those that the planner knows.
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
    let left_out = skeleton(LEFT_OUT);
    for line in shown.iter().filter(|line| **line != left_out) {
        assert!(is_costs(line) || known.contains(line), "the command prints no line like `{line}`");
    }
}
