//! What Python asks for, as JSON, and the job that it is.

use memfit::{Bytes, Error, Job, Setting, ValidationRows};
use serde::Deserialize;
use serde_json::{Map, Value};

/// A model and how it is to be run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// `model.to_json()` with its compile configuration.
    config: Value,
    /// Keys of a job with their values, as in `train.batch`; those that are null are left out.
    settings: Map<String, Value>,
    #[serde(default)]
    sample_weights: usize,
    #[serde(default)]
    weights_of_samples: Vec<bool>,
    pub threads: Option<usize>,
    baseline: u64,
    /// Whether training goes on from the newest checkpoint: `newest` or `force`.
    resume: Option<String>,
    /// The most bytes of variables in transfer between Keras and the arena at once.
    handover: Option<u64>,
    /// The rows of a validation between epochs.
    validation: Option<Validation>,
}

/// What is said of a validation before its rows come.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Validation {
    batch: usize,
    weights_of_samples: Vec<bool>,
    config: Option<Value>,
}

impl Request {
    /// Reads a request.
    pub fn parse(text: &str) -> Result<Request, Error> {
        serde_json::from_str(text).map_err(|error| wrong("request", error))
    }

    /// The job that it is.
    pub fn job(&self) -> Result<Job, Error> {
        let settings: Vec<Setting> = self
            .settings
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| Setting::from_json(key, value))
            .collect::<Result<_, _>>()?;
        let mut job = Job::for_config(self.config.clone(), &settings)?;
        let caller = &mut job.caller;
        caller.sample_weights = self.sample_weights;
        caller.weights_of_samples.clone_from(&self.weights_of_samples);
        caller.handover = self.handover.map(Bytes);
        caller.baseline = Bytes(self.baseline.max(1));
        caller.validation = self.validation.as_ref().map(|of| ValidationRows {
            batch: of.batch,
            weights_of_samples: of.weights_of_samples.clone(),
            config: of.config.clone(),
        });
        if let Some(resume) = &self.resume {
            caller.resume = resume.parse().map_err(|error| wrong("resume", error))?;
        }
        Ok(job)
    }
}

fn wrong(place: &str, problem: impl std::fmt::Display) -> Error {
    Error::Job { place: place.to_owned(), problem: problem.to_string() }
}
