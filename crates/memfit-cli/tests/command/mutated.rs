//! Seeded mutations of job files, model files and argument vectors: every one ends in an answer, within seconds and a limit on memory.
//!
//! `MEMFIT_MUTATIONS=20000 cargo test --release -p memfit-cli --test command mutated` runs more of them; `tools/soak mutate` does.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::harness::command_after;

/// What the process may map, in KiB: its budget of 96 MiB, its threads' stacks, and the allocator's reserves for them.
const MOST_KIB: u64 = 1 << 20;

const LONGEST: Duration = Duration::from_secs(20);

/// Numbers of rows that no step and no epoch gets through in that time: a run that is asked for them goes on, until a signal ends it.
const MANY_ROWS: [&str; 3] = ["1000000000", "4294967296", "100000000000"];

/// Cases where the environment does not say.
const CASES: u64 = 300;

const JOB: &str = r#"[model]
outputs = ["last"]
[[model.layers]]
class = "Input"
shape = [8, 8, 3]
[[model.layers]]
class = "Conv2D"
filters = 4
kernel_size = 3
strides = 1
padding = "same"
activation = "relu"
[[model.layers]]
class = "MaxPooling2D"
pool_size = 2
[[model.layers]]
class = "BatchNormalization"
momentum = 0.9
[[model.layers]]
class = "Flatten"
[[model.layers]]
class = "Dropout"
rate = 0.25
seed = 7
[[model.layers]]
class = "Dense"
name = "last"
units = 3
[train]
loss = "mean_squared_error"
optimizer = { class = "AdamW", learning_rate = 0.001 }
metrics = ["mae"]
batch = 4
steps = 2
seed = 3
[data]
rows = 16
validation_split = 0.25
[memory]
budget = "96MiB"
costs = "analytic"
first = false
"#;

const MODEL: &str = r#"{"class_name": "Sequential", "config": {"name": "m", "layers": [
 {"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [null, 12, 4]}},
 {"class_name": "LSTM", "config": {"name": "l", "units": 5, "return_sequences": false}},
 {"class_name": "Dense", "config": {"name": "d", "units": 3, "activation": "softmax"}}]},
 "compile_config": {"loss": "categorical_crossentropy", "optimizer": "adam"}}"#;

/// Values that numbers, words and options are replaced by.
const VALUES: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "255",
    "65535",
    "65536",
    "2147483647",
    "4294967296",
    "1000000000",
    "10000000",
    "9223372036854775807",
    "18446744073709551615",
    "100000000000",
    "1e7",
    "1e400",
    "-1e38",
    "0.5",
    "nan",
    "inf",
    "\"\"",
    "\"x\"",
    "true",
    "null",
    "[]",
    "[1]",
    "{}",
    "\u{1F9E8}",
    "'",
    "50%",
    "-2GiB",
    "1TiB",
];

const OPTIONS: &[&str] = &[
    "--batch",
    "--threads",
    "--budget",
    "--steps",
    "--epochs",
    "--disk",
    "--host",
    "--costs",
    "--precision",
    "--device",
    "--first",
    "--json",
    "--sweep",
    "--output",
    "--report",
    "--data",
    "--validation-split",
    "--weights",
    "--loss",
    "--optimizer",
    "--metrics",
    "--micro-batches",
];

/// A generator of numbers that depends on nothing but its seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

/// Changes a text at a few places: a word becomes a value, a line is lost, doubled or swapped, a byte is another.
fn mutated(text: &str, random: &mut Random) -> Vec<u8> {
    let mut text = text.to_owned();
    for _ in 0..1 + random.below(3) {
        let is_word = |letter: char| letter.is_alphanumeric() || "._-".contains(letter);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let line = random.below(lines.len());
        match random.below(8) {
            0..5 => {
                let words: Vec<&str> =
                    lines[line].split(|letter| !is_word(letter)).filter(|word| !word.is_empty()).collect();
                let old =
                    words.get(random.below(words.len())).map_or(String::new(), |word| (*word).to_owned());
                if !old.is_empty() {
                    lines[line] = lines[line].replacen(&old, random.pick(VALUES), 1);
                }
            }
            5 => {
                lines.remove(line);
            }
            6 => lines.insert(line, lines[line].clone()),
            _ => {
                let other = random.below(lines.len());
                lines.swap(line, other);
            }
        }
        text = lines.join("\n");
        if text.is_empty() {
            break;
        }
    }
    let mut bytes = text.into_bytes();
    if random.below(6) == 0 && !bytes.is_empty() {
        let at = random.below(bytes.len());
        bytes[at] = random.next() as u8;
    }
    bytes
}

/// What is typed for a case, and the files that it names.
fn case(folder: &Path, random: &mut Random) -> Vec<String> {
    let is_model = random.below(4) == 0;
    let (name, text) = if is_model { ("model.json", MODEL) } else { ("job.toml", JOB) };
    let bytes = if random.below(3) == 0 { text.as_bytes().to_vec() } else { mutated(text, random) };
    fs::write(folder.join(name), bytes).unwrap();
    let command = random.pick(&["train", "train", "train", "plan", "plan", "batch", "evaluate", "summary"]);
    let mut words: Vec<String> = [command, name].map(str::to_owned).to_vec();
    if is_model && command != "summary" {
        words.extend(["--budget".to_owned(), "96MiB".to_owned()]);
    }
    for _ in 0..random.below(3) {
        words.push(random.pick(OPTIONS).to_owned());
        if random.below(5) != 0 {
            words.push(random.pick(VALUES).to_owned());
        }
    }
    // No step count: synthetic rows without end would be trained on for ever. A large one is cut by the time of a test.
    if command == "train" {
        words.retain(|word| word != "--steps" && word != "--epochs");
        words.extend(["--steps".to_owned(), "1".to_owned()]);
    }
    words
}

/// Runs one case; what is wrong with how it ended.
fn failure(folder: &Path, seed: u64) -> Option<String> {
    let words = case(folder, &mut Random(seed));
    ended(folder, &words).map(|failure| format!("seed {seed}: {failure}"))
}

fn asks_for_many_rows(folder: &Path, words: &[String]) -> bool {
    let job = fs::read(folder.join(&words[1])).unwrap_or_default();
    let job = String::from_utf8_lossy(&job);
    let is_asked = |rows: &&str| {
        let lines = ["rows", "batch"].map(|key| format!("{key} = {rows}"));
        words.iter().any(|word| word == rows)
            || job.lines().any(|line| lines.iter().any(|asked| line == asked))
    };
    MANY_ROWS.iter().any(is_asked)
}

/// Whether two signals end a process at once: the first waits for the step.
fn ends_by_signals(child: &mut Child) -> bool {
    (0..20).any(|_| {
        let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        std::thread::sleep(Duration::from_millis(100));
        child.try_wait().unwrap().is_some()
    })
}

/// Runs the command; what is wrong with how it ended.
fn ended(folder: &Path, words: &[String]) -> Option<String> {
    let start = Instant::now();
    let mut child = command_after(&format!("ulimit -v {MOST_KIB}"), &[])
        .args(words)
        .current_dir(folder)
        .env("XDG_CACHE_HOME", folder)
        .stdout(Stdio::null())
        .stderr(fs::File::create(folder.join("errors")).unwrap())
        .spawn()
        .unwrap();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if LONGEST < start.elapsed() {
            let is_asked = asks_for_many_rows(folder, words) && ends_by_signals(&mut child);
            child.kill().unwrap();
            child.wait().unwrap();
            return (!is_asked).then(|| format!("{words:?} took longer than {LONGEST:?}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let errors = fs::read(folder.join("errors")).unwrap();
    let errors = String::from_utf8_lossy(&errors);
    let ended = status.code().is_some_and(|code| code <= 3) && !errors.contains("panicked");
    (!ended)
        .then(|| format!("{words:?} ended with {status:?}: {}", errors.chars().take(400).collect::<String>()))
}

#[test]
fn every_mutation_ends_in_an_answer() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (cases, first): (u64, u64) =
        (number("MEMFIT_MUTATIONS").unwrap_or(CASES), number("MEMFIT_SEED").unwrap_or(0));
    let next = AtomicU64::new(first);
    let work = || {
        let folder = tempfile::tempdir().unwrap();
        let mut failures = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if first + cases <= seed {
                return failures;
            }
            failures.extend(failure(folder.path(), seed));
        }
    };
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "{} of {cases}:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn huge_numbers_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let huge = ["4294967296", "1000000000", "9223372036854775807", "10000000", "100000000000"];
    for value in huge {
        // A validation over a share of as many rows would take too long.
        let rows = "rows = 16\nvalidation_split = 0.25";
        let keys = [("batch = 4", format!("batch = {value}")), (rows, format!("rows = {value}"))];
        let mut jobs: Vec<(String, Vec<&str>)> =
            keys.into_iter().map(|(old, new)| (JOB.replace(old, &new), vec![])).collect();
        jobs.extend(["--batch", "--threads"].map(|option| (JOB.to_owned(), vec![option, value])));
        for ((job, more), command) in jobs.iter().zip(["plan", "train"].into_iter().cycle()) {
            fs::write(folder.path().join("job.toml"), job).unwrap();
            // So would an epoch.
            let steps: &[&str] = if command == "train" { &["--steps", "1"] } else { &[] };
            let words = [&[command, "job.toml"], steps, &more[..]].concat();
            let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
            assert_eq!(ended(folder.path(), &words), None, "{value}");
        }
    }
}
