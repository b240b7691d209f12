//! Checkpoints: when one is due, where it is written, which are kept, and which one training goes on from.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use memfit_files::WeightsFile;
use memfit_run::{Progress, Runner};
use serde::Deserialize;

use crate::run_state::RunState;
use crate::{Error, Job};

/// `[checkpoint]`: where checkpoints are written, how often, and how many are kept.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointSection {
    /// Their folder.
    pub folder: PathBuf,
    /// How often: `500steps`, `10min`, `1epoch`; every epoch where it is not given, or 500 steps of data without end.
    pub every: Option<Every>,
    /// How many are kept, the newest; 3 where it is not given.
    #[serde(default = "three")]
    pub keep: usize,
    /// Beside the newest, the best by this value, as in `val_loss`: also as `best.keras`.
    pub keep_best: Option<String>,
}

fn three() -> usize {
    3
}

impl CheckpointSection {
    /// Checkpoints in a folder, as often and as many as where nothing else is said.
    pub fn in_folder(folder: PathBuf) -> CheckpointSection {
        CheckpointSection { folder, every: None, keep: three(), keep_best: None }
    }
}

/// How often something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Every {
    /// After this many steps.
    Steps(u64),
    /// After this many epochs.
    Epochs(u64),
    /// After the first step that ends when this time has passed.
    Time(Duration),
}

impl TryFrom<String> for Every {
    type Error = String;

    fn try_from(text: String) -> Result<Every, String> {
        text.parse()
    }
}

impl FromStr for Every {
    type Err = String;

    fn from_str(text: &str) -> Result<Every, String> {
        let wrong = || format!("`{text}` is no interval; give one as in 500steps, 10min, 30s, 2h or 1epoch");
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        if number == 0 {
            return Err(format!("`{text}` is never; give at least 1"));
        }
        let seconds = |each: u64| number.checked_mul(each).map(Duration::from_secs).ok_or_else(wrong);
        match unit.trim() {
            "step" | "steps" => Ok(Every::Steps(number)),
            "epoch" | "epochs" => Ok(Every::Epochs(number)),
            "s" | "sec" | "second" | "seconds" => seconds(1).map(Every::Time),
            "min" | "minute" | "minutes" => seconds(60).map(Every::Time),
            "h" | "hour" | "hours" => seconds(3600).map(Every::Time),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Every::Steps(steps) => write!(f, "{steps}steps"),
            Every::Epochs(epochs) => write!(f, "{epochs}epochs"),
            Every::Time(time) => write!(f, "{}s", time.as_secs()),
        }
    }
}

/// Says when the next checkpoint is due.
pub(crate) struct Due {
    every: Every,
    last: Instant,
}

impl Due {
    pub(crate) fn new(every: Every) -> Due {
        Due { every, last: Instant::now() }
    }

    /// Whether one is due after some steps, of which the last ended an epoch or did not.
    pub(crate) fn is_due(&self, steps: u64, epoch_ended: Option<u64>) -> bool {
        match self.every {
            Every::Steps(every) => steps.is_multiple_of(every),
            Every::Epochs(every) => epoch_ended.is_some_and(|epoch| (epoch + 1).is_multiple_of(every)),
            Every::Time(every) => every <= self.last.elapsed(),
        }
    }

    /// Counts time from now on.
    pub(crate) fn written(&mut self) {
        self.last = Instant::now();
    }
}

/// The name of the checkpoint after some steps; names sort as steps do.
pub(crate) fn file_name(step: u64) -> String {
    format!("step-{step:010}.keras")
}

/// The best checkpoint under a name that stays.
pub(crate) const BEST: &str = "best.keras";

/// The step of a checkpoint's name.
fn step_of(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix("step-")?.strip_suffix(".keras")?.parse().ok()
}

/// The checkpoints of a folder by their steps, the newest first.
fn listed(folder: &Path) -> Result<Vec<(u64, PathBuf)>, Error> {
    let cannot = |source| Error::File { verb: "read", path: folder.to_owned(), source };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(cannot(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(cannot)?.path();
        found.extend(step_of(&path).map(|step| (step, path)));
    }
    found.sort_by(|a, b| b.cmp(a));
    Ok(found)
}

/// A checkpoint that training can go on from.
pub(crate) struct Checkpoint {
    pub(crate) file: WeightsFile,
    pub(crate) state: RunState,
}

/// The newest whole checkpoint of a folder, and what is wrong with each newer one; none where there is no checkpoint at all.
pub(crate) fn newest(folder: &Path) -> Result<(Option<Checkpoint>, Vec<String>), Error> {
    let mut broken = Vec::new();
    for (_, path) in listed(folder)? {
        match open(&path) {
            Ok(checkpoint) => return Ok((Some(checkpoint), broken)),
            Err(error) => broken.push(error.to_string()),
        }
    }
    match broken.first() {
        // A start from the beginning would overwrite checkpoints that a user may still repair.
        Some(first) => Err(Error::job(
            folder.display().to_string(),
            format!(
                "none of its {} checkpoints is whole: {first}; move them away to start from the beginning",
                broken.len()
            ),
        )),
        None => Ok((None, broken)),
    }
}

/// Opens one checkpoint and compares its checksums.
fn open(path: &Path) -> Result<Checkpoint, Error> {
    let file = WeightsFile::open(path)?;
    file.verify()?;
    let place = path.display().to_string();
    let text = file.state()?.ok_or_else(|| {
        Error::job(
            &place,
            "it is a model, and no checkpoint that training can go on from: it has no state of a run",
        )
    })?;
    let state = RunState::parse(&text, &place)?;
    Ok(Checkpoint { file, state })
}

/// Creates the folder of checkpoints where it does not exist.
pub(crate) fn make_folder(folder: &Path) -> Result<(), Error> {
    let path = folder.to_owned();
    std::fs::create_dir_all(folder).map_err(|source| Error::File { verb: "make", path, source })
}

/// Lets a runner continue from where a checkpoint's was.
pub(crate) fn restore(runner: &mut Runner, progress: &Progress, path: &Path) -> Result<(), Error> {
    if runner.restore(progress) {
        return Ok(());
    }
    let problem = "its metrics or its loss scale are not those of this job; start in another folder";
    Err(Error::job(path.display().to_string(), problem))
}

/// Removes all but the newest checkpoints and the best one.
pub(crate) fn prune(folder: &Path, keep: usize, best: Option<u64>) -> Result<(), Error> {
    for (step, path) in listed(folder)?.into_iter().skip(keep.max(1)) {
        if best != Some(step) {
            std::fs::remove_file(&path).map_err(|source| Error::File { verb: "remove", path, source })?;
        }
    }
    Ok(())
}

/// Gives the checkpoint after some steps the name of the best one, in one step.
pub(crate) fn name_best(folder: &Path, step: u64) -> Result<(), Error> {
    Ok(memfit_files::name_again(&folder.join(file_name(step)), &folder.join(BEST))?)
}

impl Job {
    /// The folder of its checkpoints, where it has one.
    pub(crate) fn checkpoint_folder(&self) -> Option<PathBuf> {
        self.checkpoint.as_ref().map(|section| self.path(&section.folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_as_they_are_written() {
        let minutes = |count: u64| Every::Time(Duration::from_secs(60 * count));
        let known = [
            ("500steps", Every::Steps(500)),
            ("1step", Every::Steps(1)),
            ("10min", minutes(10)),
            ("2h", minutes(120)),
            ("30s", Every::Time(Duration::from_secs(30))),
            ("1epoch", Every::Epochs(1)),
        ];
        for (text, wanted) in known {
            assert_eq!(text.parse(), Ok(wanted), "{text}");
            assert_eq!(wanted.to_string().parse(), Ok(wanted));
        }
        for text in
            ["", "steps", "0steps", "-1steps", "1.5h", "10", "5fortnights", "99999999999999999999steps"]
        {
            assert!(text.parse::<Every>().is_err(), "{text}");
        }
        assert!("18446744073709551615h".parse::<Every>().is_err());
    }

    #[test]
    fn the_newest_and_the_best_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = |step| folder.path().join(file_name(step));
        for step in [5, 10, 15, 20, 25] {
            std::fs::write(path(step), "x").unwrap();
        }
        std::fs::write(folder.path().join("mine.keras"), "x").unwrap();
        prune(folder.path(), 2, Some(10)).unwrap();
        let stay: Vec<u64> = listed(folder.path()).unwrap().into_iter().map(|(step, _)| step).collect();
        assert_eq!(stay, [25, 20, 10]);
        assert!(folder.path().join("mine.keras").exists());
        name_best(folder.path(), 20).unwrap();
        name_best(folder.path(), 25).unwrap();
        assert!(folder.path().join(BEST).exists());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 5);
    }

    #[test]
    fn a_folder_that_is_not_there_has_no_checkpoints() {
        let folder = tempfile::tempdir().unwrap();
        assert!(newest(&folder.path().join("none")).unwrap().0.is_none());
        std::fs::write(folder.path().join(file_name(3)), "no archive").unwrap();
        let refused = newest(folder.path()).err().unwrap().to_string();
        assert!(refused.contains("none of its 1 checkpoints is whole"), "{refused}");
    }
}
