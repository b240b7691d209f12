//! Going on from a checkpoint: which one, whether it is of the same run, and with the same numbers.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use memfit_ir::CheckedPlan;
use serde_json::Value;

use crate::checkpoint::{self, Checkpoint};
use crate::compile_config::compile_config;
use crate::prepare::Prepared;
use crate::run_state::{Arithmetic, Numerics, RunState};
use crate::validation::Validation;
use crate::{Error, Event, Job, Observer};

/// Whether training goes on from the newest checkpoint of its folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resume {
    /// It starts from the beginning.
    #[default]
    No,
    /// It goes on where there is a checkpoint of the same job.
    Newest,
    /// It goes on also where the job is another, as far as its variables are the same.
    Force,
}

impl std::str::FromStr for Resume {
    type Err = String;

    fn from_str(text: &str) -> Result<Resume, String> {
        match text {
            "newest" | "true" => Ok(Resume::Newest),
            "force" => Ok(Resume::Force),
            other => Err(format!("`{other}` is no way to resume; give --resume, or --resume=force")),
        }
    }
}

/// The checkpoint that a job goes on from, and the job planned as that run was.
pub(crate) fn find(mut job: Job, observer: &mut dyn Observer) -> Result<(Job, Option<Checkpoint>), Error> {
    let Some(folder) = job.checkpoint_folder() else {
        if job.caller.resume != Resume::No {
            return Err(Error::job(
                "checkpoint.folder",
                "there is none to resume from; name the folder of the checkpoints",
            ));
        }
        return Ok((job, None));
    };
    let (found, broken) = checkpoint::newest(&folder)?;
    match (&found, job.caller.resume) {
        (Some(found), Resume::No) => Err(Error::job(
            "checkpoint.folder",
            format!(
                "`{}` holds checkpoints of an earlier run, the newest after step {}; resume it, or name another folder",
                folder.display(),
                found.state.step
            ),
        )),
        (None, Resume::No) => Ok((job, None)),
        (_, Resume::Newest | Resume::Force) => {
            let from = found.as_ref().map(|found| found.file.path());
            let step = found.as_ref().map_or(0, |found| found.state.step);
            observer.event(Event::GoesOn { from, step, broken: &broken });
            if let Some(found) = &found {
                pin(&mut job, found)?;
            }
            Ok((job, found))
        }
    }
}

/// Has a job planned as the run that it goes on from was. With another batch that means nothing.
fn pin(job: &mut Job, found: &Checkpoint) -> Result<(), Error> {
    let batch = [("batch".to_owned(), job.train.batch.to_string())];
    let was: Vec<(String, String)> =
        found.state.job.iter().filter(|(name, _)| name == "batch").cloned().collect();
    match (differences(&was, &batch).first(), job.caller.resume) {
        (Some(differs), Resume::No | Resume::Newest) => Err(other_job(found, differs)),
        (Some(_), Resume::Force) => Ok(()),
        (None, _) => {
            found.state.numerics.pin(job);
            Ok(())
        }
    }
}

/// The answer that a checkpoint is of another job.
fn other_job(found: &Checkpoint, differs: &str) -> Error {
    Error::job(
        found.file.path().display().to_string(),
        format!(
            "it is of another job: {differs}; give what it had, start in another folder, or force it where the change is meant"
        ),
    )
}

/// The state that a run begins with: that of its checkpoint, which must be of the same job and the same numbers.
pub(crate) fn begin(
    job: &Job,
    prepared: &Prepared,
    plan: &CheckedPlan,
    validation: Option<&Validation>,
    checkpoint: Option<&Checkpoint>,
) -> Result<RunState, Error> {
    let numerics = Numerics::of(prepared, plan, validation);
    let asked = fingerprint(job, prepared)?;
    let Some(found) = checkpoint else { return Ok(RunState::new(numerics, asked)) };
    let Checkpoint { file, state } = found;
    let differences = differences(&state.job, &asked);
    if !differences.is_empty() && job.caller.resume != Resume::Force {
        return Err(other_job(found, &differences.join("; ")));
    }
    let same_batch = !differences.iter().any(|differs| differs.starts_with("batch was"));
    if same_batch && state.numerics != numerics {
        let differs = state.numerics.differences(&numerics).join("; ");
        return Err(Error::job(
            file.path().display().to_string(),
            format!("it cannot go on bit for bit here: {differs}; resume it on a machine that can"),
        ));
    }
    let mut state = state.clone();
    (state.job, state.numerics) = (asked, numerics);
    Ok(state)
}

/// What a run was asked to do, as far as it changes numbers: names and short texts.
fn fingerprint(job: &Job, prepared: &Prepared) -> Result<Vec<(String, String)>, Error> {
    let compiled = compile_config(&prepared.compiled);
    let of = |key: &str| compiled.get(key).map_or_else(String::new, Value::to_string);
    let mut model = prepared.model.model.config.clone();
    if let Some(model) = model.as_object_mut() {
        model.remove("compile_config");
    }
    let text = |value: &dyn std::fmt::Debug| format!("{value:?}");
    let rows = |rows: Option<u64>| rows.map_or("endless".to_owned(), |rows| rows.to_string());
    let mut asked = vec![
        ("model".to_owned(), format!("{:016x}", digest(model.to_string().as_bytes()))),
        ("loss".to_owned(), of("loss")),
        ("loss_weights".to_owned(), of("loss_weights")),
        ("optimizer".to_owned(), of("optimizer")),
        ("metrics".to_owned(), of("metrics")),
        ("weighted_metrics".to_owned(), of("weighted_metrics")),
        ("batch".to_owned(), job.train.batch.to_string()),
        ("seed".to_owned(), job.train.seed.to_string()),
        ("precision".to_owned(), text(&job.train.precision)),
        ("rows".to_owned(), rows(prepared.source.rows())),
        ("shuffle".to_owned(), text(&prepared.source.shuffle_seed())),
        ("validation_split".to_owned(), text(&job.data.validation_split)),
    ];
    let data = &job.data;
    let files = [
        ("data.x", &data.x),
        ("data.y", &data.y),
        ("validation_x", &data.validation_x),
        ("validation_y", &data.validation_y),
    ];
    for (name, paths) in files {
        for path in paths.paths() {
            asked.push((name.to_owned(), file_digest(&job.path(path))?));
        }
    }
    for (name, path) in
        [("sample_weight", &data.sample_weight), ("validation_sample_weight", &data.validation_sample_weight)]
    {
        if let Some(path) = path {
            asked.push((name.to_owned(), file_digest(&job.path(path))?));
        }
    }
    Ok(asked)
}

/// What differs between two fingerprints, in words.
fn differences(was: &[(String, String)], is: &[(String, String)]) -> Vec<String> {
    let of = |list: &[(String, String)], name: &str| -> Vec<String> {
        list.iter().filter(|(one, _)| one == name).map(|(_, value)| value.clone()).collect()
    };
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in was.iter().chain(is) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let differs = |name: &&str| {
        let (was, is) = (of(was, name), of(is, name));
        (was != is).then(|| format!("{name} was {} and is {}", shown(&was), shown(&is)))
    };
    names.iter().filter_map(differs).collect()
}

fn shown(values: &[String]) -> String {
    const LONGEST: usize = 160;
    match values {
        [] => "not given".to_owned(),
        values => values.join(", ").chars().take(LONGEST).collect(),
    }
}

/// A file by its length, its first and its last bytes: enough to notice other data, at no cost for large files.
fn file_digest(path: &Path) -> Result<String, Error> {
    const PART: u64 = 64 << 10;
    let cannot = |source| Error::File { verb: "read", path: path.to_owned(), source };
    let mut file = File::open(path).map_err(cannot)?;
    let length = file.metadata().map_err(cannot)?.len();
    let mut sum = Digest::default();
    let mut buffer = [0; 4096];
    let mut left = PART.min(length);
    while 0 < left {
        let most = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        match file.read(&mut buffer[..most]).map_err(cannot)? {
            0 => break,
            read => {
                sum.add(&buffer[..read]);
                left -= read as u64;
            }
        }
    }
    let mut place = length.saturating_sub(PART);
    while place < length {
        let most = usize::try_from(length - place).map_or(buffer.len(), |left| left.min(buffer.len()));
        match file.read_at(&mut buffer[..most], place).map_err(cannot)? {
            0 => break,
            read => {
                sum.add(&buffer[..read]);
                place += read as u64;
            }
        }
    }
    Ok(format!("{length} bytes, digest {:016x}", sum.0))
}

/// FNV-1a: distinguishes texts and files, but not against forgery.
struct Digest(u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        self.0 =
            bytes.iter().fold(self.0, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    }
}

fn digest(bytes: &[u8]) -> u64 {
    let mut sum = Digest::default();
    sum.add(bytes);
    sum.0
}

impl Numerics {
    fn of(prepared: &Prepared, plan: &CheckedPlan, validation: Option<&Validation>) -> Numerics {
        Numerics {
            device: prepared.setup.name(),
            vectors: prepared.setup.vectors().unwrap_or_default().to_owned(),
            training: Arithmetic::of(plan),
            validation: validation.and_then(Validation::plan_of).map(Arithmetic::of),
        }
    }

    /// Has a job planned and run as this one was.
    fn pin(&self, job: &mut Job) {
        job.caller.pinned = self.training.pinned();
        if let Some(validation) = &self.validation {
            job.caller.pinned_validation = validation.pinned();
        }
        job.caller.vectors = Some(self.vectors.clone());
    }

    /// What differs from another, in words.
    fn differences(&self, now: &Numerics) -> Vec<String> {
        let shown = |of: Option<&Arithmetic>| of.map_or("none".to_owned(), Arithmetic::to_string);
        let pairs = [
            ("device", self.device.clone(), now.device.clone()),
            ("vector instructions", self.vectors.clone(), now.vectors.clone()),
            ("training", self.training.to_string(), now.training.to_string()),
            ("validation", shown(self.validation.as_ref()), shown(now.validation.as_ref())),
        ];
        // A device whose results do not depend on them has no name for vector instructions.
        let differs = pairs.into_iter().filter(|(_, was, is)| was != is && !was.is_empty() && !is.is_empty());
        differs.map(|(name, was, is)| format!("{name}: {was} then, {is} now")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named_with_both_values() {
        let list = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let was = list(&[("batch", "32"), ("seed", "0"), ("data.x", "a"), ("data.x", "b")]);
        assert!(differences(&was, &was).is_empty());
        let is = list(&[("batch", "64"), ("seed", "0"), ("data.x", "a"), ("data.y", "c")]);
        assert_eq!(
            differences(&was, &is),
            ["batch was 32 and is 64", "data.x was a, b and is a", "data.y was not given and is c"]
        );
    }

    #[test]
    fn files_differ_by_length_beginning_and_end() {
        let folder = tempfile::tempdir().unwrap();
        let digest = |bytes: &[u8]| {
            let path = folder.path().join("x.npy");
            std::fs::write(&path, bytes).unwrap();
            file_digest(&path).unwrap()
        };
        let long = vec![7; 200_000];
        let mut other_end = long.clone();
        *other_end.last_mut().unwrap() = 8;
        let mut other_start = long.clone();
        other_start[0] = 8;
        let all = [digest(&long), digest(&other_end), digest(&other_start), digest(&long[1..]), digest(&[])];
        for (index, one) in all.iter().enumerate() {
            assert_eq!(all.iter().filter(|other| *other == one).count(), 1, "{index}");
        }
    }
}
