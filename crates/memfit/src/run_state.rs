//! The state of a run beside its tensors: what a checkpoint keeps so that training goes on bit for bit, as JSON.

use std::fmt;

use memfit_ir::{Bytes, CheckedPlan, NodeId, Pinned, Region, TensorId};
use memfit_run::{EpochSums, Progress};
use serde::{Deserialize, Serialize};

use crate::{EarlyStoppingState, Error};

/// The version of this form; others are refused.
const FORMAT: u32 = 1;

/// Where a run stands after a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    format: u32,
    /// The version of memfit that wrote it.
    pub version: String,
    /// Steps of this training that have ended.
    pub step: u64,
    /// Whether the last step ended an epoch whose validation has not run yet.
    pub epoch_open: bool,
    /// Updates before the first step, of a model that had been trained before.
    pub iteration_first: u64,
    /// How far the runner has come.
    pub progress: Counters,
    /// The best value so far and its step, where the best checkpoint is kept.
    pub best: Option<Best>,
    /// Early stopping's memory, where there is one.
    pub early_stopping: Option<EarlyStoppingState>,
    /// Whether early stopping has ended training.
    pub stopped_early: bool,
    /// What decides bits beside the job: split, algorithms, vector instructions.
    pub numerics: Numerics,
    /// What the run was asked to do, by name.
    pub job: Vec<(String, String)>,
    /// What a caller with a loop of its own keeps beside it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub caller: String,
}

/// The most bytes that a caller may keep.
pub(crate) const CALLER_MOST: usize = 1 << 20;

/// [`Progress`] in exact numbers: floats as their bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    steps: u64,
    steps_skipped: u64,
    rows: u64,
    loss_scale: Option<(u32, u64)>,
    epoch_rows: u64,
    epoch_sums: Vec<u64>,
}

/// The best value of what is monitored.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The bits of its value.
    bits: u64,
    /// The step whose checkpoint holds it.
    pub step: u64,
}

/// What decides bits beside the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numerics {
    /// `cpu`, or the GPU's name.
    pub device: String,
    /// The vector instructions of the CPU's kernels.
    pub vectors: String,
    /// How the training's batch is split, and by which algorithms it runs.
    pub training: Arithmetic,
    /// The same of the validation, where there is one.
    pub validation: Option<Arithmetic>,
}

/// What of a plan decides bits ([`Pinned`]), as plain numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arithmetic {
    /// Rows of a micro-batch.
    pub micro_batch: usize,
    /// The tensor at the boundary of the region that runs in slices, their number, and whether their values are kept.
    region: Option<(usize, usize, bool)>,
    /// Nodes and the scratch memory that names their algorithm.
    algorithms: Vec<(usize, u64)>,
}

impl Arithmetic {
    /// That of a plan.
    pub(crate) fn of(plan: &CheckedPlan) -> Arithmetic {
        let Pinned { algorithms, .. } = Pinned::of_plan(plan.problem(), plan.plan());
        let algorithms: Vec<(usize, u64)> =
            algorithms.iter().map(|(node, workspace)| (node.0, workspace.0)).collect();
        // Whether values of a region are kept changes no bits; it only says which nodes there are that algorithms belong to.
        let keeps = |keeps: bool| keeps && !algorithms.is_empty();
        let region = plan.plan().region();
        let region = region.map(|region| (region.boundary.0, region.slices, keeps(region.keeps)));
        Arithmetic { micro_batch: plan.plan().micro_batch, region, algorithms }
    }

    /// As a restriction of the planner.
    pub fn pinned(&self) -> Pinned {
        let region = |(boundary, slices, keeps)| Region { boundary: TensorId(boundary), slices, keeps };
        Pinned {
            micro_batch: Some(self.micro_batch),
            region: Some(self.region.map(region)),
            algorithms: self.algorithms.iter().map(|(node, bytes)| (NodeId(*node), Bytes(*bytes))).collect(),
        }
    }
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "micro-batches of {} rows", self.micro_batch)?;
        if let Some((_, slices, _)) = self.region {
            write!(f, ", a region in {slices} slices")?;
        }
        if !self.algorithms.is_empty() {
            write!(f, ", {} chosen algorithms", self.algorithms.len())?;
        }
        Ok(())
    }
}

impl Best {
    pub(crate) fn new(value: f64, step: u64) -> Best {
        Best { bits: value.to_bits(), step }
    }

    pub(crate) fn value(self) -> f64 {
        f64::from_bits(self.bits)
    }
}

impl From<&Progress> for Counters {
    fn from(progress: &Progress) -> Counters {
        let Progress { steps, steps_skipped, rows, loss_scale, epoch } = progress;
        Counters {
            steps: *steps,
            steps_skipped: *steps_skipped,
            rows: *rows,
            loss_scale: loss_scale.map(|(scale, steps)| (scale.to_bits(), steps)),
            epoch_rows: epoch.rows,
            epoch_sums: epoch.sums.iter().map(|sum| sum.to_bits()).collect(),
        }
    }
}

impl From<&Counters> for Progress {
    fn from(counters: &Counters) -> Progress {
        let Counters { steps, steps_skipped, rows, loss_scale, epoch_rows, epoch_sums } = counters;
        Progress {
            steps: *steps,
            steps_skipped: *steps_skipped,
            rows: *rows,
            loss_scale: loss_scale.map(|(bits, steps)| (f32::from_bits(bits), steps)),
            epoch: EpochSums {
                rows: *epoch_rows,
                sums: epoch_sums.iter().map(|bits| f64::from_bits(*bits)).collect(),
            },
        }
    }
}

impl RunState {
    /// The state of a run that has taken no step.
    pub(crate) fn new(numerics: Numerics, job: Vec<(String, String)>) -> RunState {
        RunState {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            step: 0,
            epoch_open: false,
            iteration_first: 0,
            progress: Counters::from(&Progress::default()),
            best: None,
            early_stopping: None,
            stopped_early: false,
            numerics,
            job,
            caller: String::new(),
        }
    }

    /// As the text of a checkpoint.
    pub(crate) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("plain numbers and texts are JSON")
    }

    /// The most bytes that its text takes at any later step of this run: numbers may grow, and nothing else.
    pub(crate) fn bytes_most(&self) -> usize {
        // 20 digits a number of 64 bits, of which there are these and one for each sum.
        const NUMBERS: usize = 16;
        self.to_text().len() + 21 * (NUMBERS + self.progress.epoch_sums.len())
    }

    /// Reads what [`RunState::to_text`] wrote; `place` names the file.
    pub(crate) fn parse(text: &str, place: &str) -> Result<RunState, Error> {
        let damaged = |problem: String| Error::job(place, format!("its state of the run {problem}"));
        let format = serde_json::from_str::<serde_json::Value>(text)
            .map_err(|error| damaged(format!("is no JSON: {error}")))?;
        match format.get("format").and_then(serde_json::Value::as_u64) {
            Some(format) if format == u64::from(FORMAT) => {}
            Some(other) => {
                return Err(damaged(format!(
                    "has format {other}, and this version of memfit reads format {FORMAT}; resume with the version that wrote it"
                )));
            }
            None => return Err(damaged("says no format".to_owned())),
        }
        serde_json::from_value(format).map_err(|error| damaged(format!("is not a run's state: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> RunState {
        let numerics = Numerics {
            device: "cpu".to_owned(),
            vectors: "avx2".to_owned(),
            training: Arithmetic { micro_batch: 8, region: Some((3, 2, true)), algorithms: vec![(7, 512)] },
            validation: None,
        };
        let mut state = RunState::new(numerics, vec![("batch".to_owned(), "32".to_owned())]);
        let sums = vec![0.1, f64::MAX, -0.0, 1e-300];
        let epoch = EpochSums { rows: 7, sums };
        let progress =
            Progress { steps: 12, steps_skipped: 1, rows: 90, loss_scale: Some((32768.0, 3)), epoch };
        state.progress = Counters::from(&progress);
        state.best = Some(Best::new(0.25, 8));
        state
    }

    #[test]
    fn every_bit_comes_back() {
        let state = state();
        let read = RunState::parse(&state.to_text(), "here").unwrap();
        assert_eq!(read, state);
        assert_eq!(Counters::from(&Progress::from(&read.progress)), state.progress);
    }

    #[test]
    fn no_later_state_takes_more_bytes_than_was_said() {
        let mut state = state();
        let most = state.bytes_most();
        state.step = u64::MAX;
        state.early_stopping = Some(EarlyStoppingState { best: Some(u64::MAX), wait: u64::MAX });
        state.iteration_first = u64::MAX;
        state.best = Some(Best { bits: u64::MAX, step: u64::MAX });
        state.progress = Counters {
            steps: u64::MAX,
            steps_skipped: u64::MAX,
            rows: u64::MAX,
            loss_scale: Some((u32::MAX, u64::MAX)),
            epoch_rows: u64::MAX,
            epoch_sums: vec![u64::MAX; 4],
        };
        assert!(state.to_text().len() <= most);
    }

    #[test]
    fn another_format_is_refused_by_its_number() {
        let text = state().to_text().replace("\"format\":1", "\"format\":9");
        let refused = RunState::parse(&text, "a.keras").unwrap_err().to_string();
        assert!(refused.contains("format 9") && refused.contains("a.keras"), "{refused}");
        for bad in ["", "{", "[]", "{\"format\":1}"] {
            assert!(RunState::parse(bad, "a.keras").is_err(), "{bad}");
        }
    }
}
