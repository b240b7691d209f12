//! Training that is killed, stopped by signals or short of disk at any moment goes on bit for bit, and leaves no file over.
//!
//! `MEMFIT_KILLS` and `MEMFIT_STOPS` say how often each job is killed by SIGKILL, and stopped by SIGTERM or a full disk: a few times by
//! default, as often as is wanted by `tools/soak killed`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{command, floats, write_npy};

/// A convolutional network with dropout, shuffling, augmentation and validation, whose best checkpoint is kept.
const CONVOLUTIONS: &str = r#"
[model]
layers = [
  { class = "Input", shape = [12, 12, 2] },
  { class = "RandomFlip", mode = "horizontal" },
  { class = "Conv2D", filters = 6, kernel_size = 3, activation = "relu" },
  { class = "BatchNormalization" },
  { class = "MaxPooling2D" },
  { class = "Dropout", rate = 0.3 },
  { class = "Flatten" },
  { class = "Dense", units = 4, activation = "softmax" },
]
[train]
loss = "sparse_categorical_crossentropy"
optimizer = "adam"
metrics = ["accuracy"]
batch = 8
epochs = 4
[data]
x = "x.npy"
y = "y.npy"
validation_split = 0.2
[checkpoint]
folder = "named by an option"
keep_best = "val_loss"
"#;

/// A recurrent network, with moving averages of its weights.
const RECURRENT: &str = r#"
[model]
layers = [
  { class = "Input", shape = [6, 4] },
  { class = "LSTM", units = 5, dropout = 0.2 },
  { class = "Dense", units = 1 },
]
[train]
loss = "mse"
optimizer = { class = "Adam", learning_rate = { class = "ExponentialDecay", initial_learning_rate = 0.01, decay_steps = 5, decay_rate = 0.9 }, use_ema = true }
metrics = ["mae"]
batch = 7
epochs = 3
[data]
x = "x.npy"
y = "y.npy"
"#;

/// Half precision with loss scaling, and gradients of three steps for each update.
const MIXED: &str = r#"
[model]
layers = [
  { class = "Input", shape = [9] },
  { class = "Dense", units = 16, activation = "relu" },
  { class = "Dropout", rate = 0.1 },
  { class = "Dense", units = 3, activation = "softmax" },
]
[train]
loss = "sparse_categorical_crossentropy"
optimizer = { class = "SGD", learning_rate = 0.05, momentum = 0.9, gradient_accumulation_steps = 3 }
batch = 10
epochs = 4
precision = "mixed_float16"
[data]
x = "x.npy"
y = "y.npy"
"#;

struct Case {
    name: &'static str,
    job: &'static str,
    rows: usize,
    /// Dimensions of a row.
    x: &'static [usize],
    /// Classes, or none for a number to regress.
    classes: Option<u32>,
}

const CASES: [Case; 3] = [
    Case { name: "convolutions", job: CONVOLUTIONS, rows: 100, x: &[12, 12, 2], classes: Some(4) },
    Case { name: "recurrent", job: RECURRENT, rows: 90, x: &[6, 4], classes: None },
    Case { name: "mixed", job: MIXED, rows: 95, x: &[9], classes: Some(3) },
];

/// A small generator of numbers, so that moments of killing vary and a run of the test can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end.max(1)
    }
}

/// Writes a case's job and data into a folder.
fn lay_out(case: &Case, folder: &Path) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let elements = case.rows * case.x.iter().product::<usize>();
    let x = floats((0..elements).map(|_| random.below(1000) as f32 / 500.0 - 1.0));
    let dims: Vec<usize> = std::iter::once(case.rows).chain(case.x.iter().copied()).collect();
    write_npy(&folder.join("x.npy"), "<f4", &dims, &x);
    let y = floats((0..case.rows).map(|_| match case.classes {
        Some(classes) => random.below(u64::from(classes)) as f32,
        None => random.below(100) as f32 / 100.0,
    }));
    write_npy(&folder.join("y.npy"), "<f4", &[case.rows], &y);
    fs::write(folder.join("job.toml"), case.job).unwrap();
}

/// What may differ from run to run of one training without a bit changing.
#[derive(Clone, Copy)]
struct Machine {
    threads: &'static str,
    budget: &'static str,
}

const MACHINES: [Machine; 3] = [
    Machine { threads: "1", budget: "60MiB" },
    Machine { threads: "2", budget: "48MiB" },
    Machine { threads: "3", budget: "512MiB" },
];

/// Starts training that writes a checkpoint at every step and goes on where there is one.
fn start(folder: &Path, checkpoints: &Path, output: &Path, Machine { threads, budget }: Machine) -> Child {
    command(&["train"])
        .arg(folder.join("job.toml"))
        .args(["--costs", "analytic", "--device", "cpu", "--budget", budget, "--threads", threads, "--json"])
        .arg("--checkpoints")
        .arg(checkpoints)
        .args(["--every", "1step", "--keep", "2", "--resume", "--output"])
        .arg(output)
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for a process that is to end by itself.
#[track_caller]
fn finish(child: Child) -> (ExitStatus, String, String) {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status, text(&output.stdout), text(&output.stderr))
}

/// The lines of the losses and metrics that were printed, without times and memory.
fn losses(stdout: &str) -> Vec<String> {
    let lines = stdout.lines().filter(|line| line.contains("\"event\":\"epoch\""));
    lines.map(str::to_owned).collect()
}

struct Reference {
    folder: tempfile::TempDir,
    output: Vec<u8>,
    /// The best checkpoint, where it is kept.
    best: Option<Vec<u8>>,
    epochs: Vec<String>,
    seconds: Duration,
}

fn reference(case: &Case) -> Reference {
    let folder = tempfile::tempdir().unwrap();
    lay_out(case, folder.path());
    let output = folder.path().join("whole.keras");
    let began = Instant::now();
    let (status, stdout, stderr) =
        finish(start(folder.path(), &folder.path().join("whole"), &output, MACHINES[0]));
    assert!(status.success(), "{}: {stderr}", case.name);
    let seconds = began.elapsed();
    let best = fs::read(folder.path().join("whole/best.keras")).ok();
    assert_eq!(best.is_some(), case.job.contains("keep_best"), "{}", case.name);
    Reference { output: fs::read(&output).unwrap(), best, epochs: losses(&stdout), folder, seconds }
}

/// Files of a folder by name, hidden ones too.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Whether nothing but checkpoints is there.
fn are_checkpoints(names: &[String]) -> bool {
    names.iter().all(|name| name.starts_with("step-") || name == "best.keras")
}

fn count(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Interrupts training again and again until one run comes to its end, and checks what is left.
fn check_interrupted(
    case: &Case,
    times: usize,
    mut interrupt: impl FnMut(&mut Child, &mut Random, Duration),
) {
    let whole = reference(case);
    let mut random = Random(case.rows as u64 * 77_777);
    let (mut interrupted, mut trainings) = (0, 0);
    while interrupted < times {
        trainings += 1;
        let folder = tempfile::tempdir().unwrap();
        let (checkpoints, output) = (folder.path().join("checkpoints"), folder.path().join("trained.keras"));
        let mut epochs = Vec::new();
        loop {
            let machine = MACHINES[random.below(3) as usize];
            let mut child = start(whole.folder.path(), &checkpoints, &output, machine);
            interrupt(&mut child, &mut random, whole.seconds);
            let (status, stdout, stderr) = finish(child);
            epochs.extend(losses(&stdout));
            if status.success() {
                break;
            }
            interrupted += 1;
            assert_ne!(status.code(), Some(101), "{}: {stderr}", case.name);
            assert_ne!(status.code(), Some(2), "{}: {stderr}", case.name);
        }
        assert!(
            fs::read(&output).unwrap() == whole.output,
            "{}: other bytes than the run never stopped",
            case.name
        );
        // An epoch that was interrupted in its last step may have been reported by two runs, with the same numbers.
        epochs.dedup();
        assert!(whole.epochs.ends_with(&epochs) || epochs == whole.epochs, "{}: {epochs:?}", case.name);
        assert_eq!(names(folder.path()), ["checkpoints", "trained.keras"], "{}", case.name);
        assert!(fs::read(checkpoints.join("best.keras")).ok() == whole.best, "{}: another best", case.name);
        // Two are kept, and the best one.
        let most = 2 + 2 * usize::from(whole.best.is_some());
        let left = names(&checkpoints);
        assert!(left.len() <= most && are_checkpoints(&left), "{left:?}");
    }
    println!("{}: interrupted {interrupted} times in {trainings} trainings", case.name);
}

fn kill(child: &mut Child, random: &mut Random, whole: Duration) {
    let longest = u64::try_from(whole.as_micros()).unwrap() * 3 / 4;
    std::thread::sleep(Duration::from_micros(random.below(longest)));
    let _ = child.kill();
}

fn terminate(child: &mut Child, random: &mut Random, whole: Duration) {
    let longest = u64::try_from(whole.as_micros()).unwrap();
    std::thread::sleep(Duration::from_micros(random.below(longest)));
    let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
}

#[test]
fn a_killed_convolutional_network_goes_on_bit_for_bit() {
    check_interrupted(&CASES[0], count("MEMFIT_KILLS", 12), kill);
}

#[test]
fn a_killed_recurrent_network_goes_on_bit_for_bit() {
    check_interrupted(&CASES[1], count("MEMFIT_KILLS", 12), kill);
}

#[test]
fn a_killed_network_in_half_precision_goes_on_bit_for_bit() {
    check_interrupted(&CASES[2], count("MEMFIT_KILLS", 12), kill);
}

#[test]
fn training_that_is_terminated_goes_on_bit_for_bit() {
    for case in &CASES {
        check_interrupted(case, count("MEMFIT_STOPS", 4), terminate);
    }
}

#[test]
fn a_signal_ends_the_step_writes_a_checkpoint_and_says_so() {
    let case = &CASES[0];
    for (signal, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129), ("-USR1", 138), ("-XCPU", 152)] {
        let folder = tempfile::tempdir().unwrap();
        lay_out(case, folder.path());
        // Long enough to be met in the middle.
        let job = fs::read_to_string(folder.path().join("job.toml")).unwrap();
        fs::write(folder.path().join("job.toml"), job.replace("epochs = 4", "epochs = 100000")).unwrap();
        let checkpoints = folder.path().join("checkpoints");
        let child = start(folder.path(), &checkpoints, &folder.path().join("trained.keras"), MACHINES[0]);
        while !checkpoints.exists() || names(&checkpoints).is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        let (status, _, stderr) = finish(child);
        assert_eq!(status.code(), Some(code), "{signal}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(stderr.contains("stopped by SIG") && stderr.contains("--resume"), "{stderr}");
        assert!(folder.path().join("trained.keras").exists());
    }
}

/// One step of it takes minutes.
const LONG: &str = r#"
[model]
layers = [{ class = "Input", shape = [2048] }, { class = "Dense", units = 2048 }, { class = "Dense", units = 2048 }]
[train]
loss = "mse"
optimizer = "sgd"
batch = 10000000
steps = 1
[memory]
micro_batches = 100000
costs = "analytic"
"#;

#[test]
fn a_second_signal_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let job = folder.path().join("job.toml");
    fs::write(&job, LONG).unwrap();
    let mut child = command(&["train", "--device", "cpu"])
        .arg(&job)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("planned in")), "training begins");
    let id = child.id().to_string();
    let terminate = || Command::new("kill").args(["-TERM", &id]).status().unwrap();
    let began = Instant::now();
    terminate();
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "the first signal waits for the step");
    // On a busy machine a signal may reach a process only after the next one was sent, and both then count as one.
    while child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < Duration::from_secs(60), "the second signal does not wait");
        terminate();
        std::thread::sleep(Duration::from_millis(100));
    }
    let (status, _, stderr) = finish(child);
    assert_eq!((status.code(), stderr.as_str()), (Some(143), ""));
}

/// A file system of a few megabytes; none where this process may not mount one.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(folder: &Path) -> Option<SmallDisk> {
        let place = folder.join("disk");
        fs::create_dir_all(&place).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(&place)
            .stderr(Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(SmallDisk(place))
    }

    /// Takes up all but some bytes.
    fn fill(&self, left: usize) {
        let filler = self.0.join("filler");
        let mut size: usize = 1 << 20;
        while fs::write(&filler, vec![1; size.saturating_sub(left)]).is_err() && 0 < size {
            size = size.saturating_sub(4096);
        }
    }

    fn free(&self) {
        let _ = fs::remove_file(self.0.join("filler"));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn training_on_a_full_disk_stops_with_words_and_goes_on_when_there_is_room() {
    for case in &CASES {
        let whole = reference(case);
        let folder = tempfile::tempdir().unwrap();
        let Some(disk) = SmallDisk::mount(folder.path()) else {
            println!("skipped: no file system can be mounted here");
            return;
        };
        let mut random = Random(4711);
        let mut full = 0;
        while full < count("MEMFIT_STOPS", 4) {
            let (checkpoints, output) = (disk.0.join("checkpoints"), folder.path().join("trained.keras"));
            let _ = fs::remove_dir_all(&checkpoints);
            let _ = fs::remove_file(&output);
            loop {
                let child = start(whole.folder.path(), &checkpoints, &output, MACHINES[0]);
                std::thread::sleep(whole.seconds.mul_f64(random.below(100) as f64 / 200.0));
                disk.fill(random.below(8) as usize * 1024);
                let (status, _, stderr) = finish(child);
                disk.free();
                if status.success() {
                    break;
                }
                full += 1;
                assert_eq!(status.code(), Some(1), "{}: {stderr}", case.name);
                assert!(stderr.contains("checkpoints") && stderr.contains("space"), "{stderr}");
                assert!(are_checkpoints(&names(&checkpoints)), "{:?}", names(&checkpoints));
            }
            assert!(fs::read(&output).unwrap() == whole.output, "{}: other bytes", case.name);
        }
        println!("{}: {full} times on a full disk", case.name);
    }
}
