//! What Python asks for, as JSON, and the job that it is.

use memfit::{Arithmetic, CheckpointSection, Bytes, Error, Job};
use serde::Deserialize;
use serde_json::Value;

/// A model and how it is to be run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// `model.to_json()` with its compile configuration.
    config: Value,
    batch: usize,
    budget: Option<Amount>,
    disk: Option<String>,
    precision: Option<String>,
    costs: Option<String>,
    #[serde(default)]
    allow_batchnorm_split: bool,
    #[serde(default)]
    sample_weights: usize,
    #[serde(default)]
    weights_of_samples: Vec<bool>,
    #[serde(default)]
    seed: u64,
    pub threads: Option<usize>,
    device: Option<String>,
    like: Option<String>,
    baseline: u64,
    /// `block` or `step`: what a step that is not finite may change.
    guard: Option<String>,
    /// The folder of checkpoints, how many are kept, and whether training goes on from the newest: `newest` or `force`.
    checkpoints: Option<String>,
    keep: Option<usize>,
    resume: Option<String>,
    /// What of a plan decides bits, of a session that goes on.
    pinned: Option<String>,
    vectors: Option<String>,
    /// The most bytes of variables on their way between Keras and the arena at once.
    handover: Option<u64>,
}

/// Bytes as a number, or as people write them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Amount {
    Count(u64),
    Text(String),
}

impl Request {
    /// Reads a request.
    pub fn parse(text: &str) -> Result<Request, Error> {
        serde_json::from_str(text).map_err(|error| wrong("request", error))
    }

    /// The job that it is.
    pub fn job(&self) -> Result<Job, Error> {
        let mut job = Job::for_config(self.config.clone());
        job.train.batch = self.batch;
        job.train.seed = self.seed;
        job.train.precision = parse("precision", self.precision.as_deref())?;
        job.train.device = parse("device", self.device.as_deref())?.unwrap_or_default();
        job.train.like = parse("like", self.like.as_deref())?;
        job.caller.sample_weights = self.sample_weights;
        job.caller.weights_of_samples.clone_from(&self.weights_of_samples);
        job.memory.budget = match &self.budget {
            None => None,
            Some(Amount::Count(bytes)) => Some(Bytes(*bytes).into()),
            Some(Amount::Text(text)) => parse("budget", Some(text))?,
        };
        job.memory.disk = parse("disk", self.disk.as_deref())?;
        job.memory.costs = parse("costs", self.costs.as_deref())?.unwrap_or_default();
        job.memory.allow_batchnorm_split = self.allow_batchnorm_split;
        job.caller.handover = self.handover.map(Bytes);
        job.caller.baseline = Bytes(self.baseline.max(1));
        job.memory.guard = parse("guard", self.guard.as_deref())?.unwrap_or_default();
        if let Some(folder) = &self.checkpoints {
            let section = CheckpointSection::in_folder(folder.into());
            job.checkpoint = Some(CheckpointSection { keep: self.keep.unwrap_or(section.keep), ..section });
        }
        job.caller.resume = parse("resume", self.resume.as_deref())?.unwrap_or_default();
        if let Some(pinned) = &self.pinned {
            job.caller.pinned = Arithmetic::parse(pinned)?.pinned();
        }
        job.caller.vectors.clone_from(&self.vectors);
        Ok(job)
    }
}

fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(
    place: &str,
    text: Option<&str>,
) -> Result<Option<T>, Error> {
    text.map(str::parse).transpose().map_err(|error| wrong(place, error))
}

fn wrong(place: &str, problem: impl std::fmt::Display) -> Error {
    Error::Job { place: place.to_owned(), problem: problem.to_string() }
}
