//! Saved plans: the whole answer to `memfit plan` as a file, and what two of them differ in.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use memfit_ir::Bytes;
use memfit_plan::{Holder, Timeline};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{Error, LayerBytes, Prepared, Summary, refusal_json};

/// What the first key of a saved plan says.
const FORMAT: &str = "memfit plan";

/// The version that is written, and the only one that is read.
const VERSION: u64 = 1;

/// The figures of a plan that can be compared: of a job just planned, or of a file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct SavedPlan {
    /// The job file, as it was typed.
    pub job: String,
    /// Whether it fits the budget; where not, the figures are those of the smallest plan.
    pub fits: bool,
    /// The budget.
    pub budget: u64,
    /// The smallest budget that has a plan.
    pub bytes_smallest_budget: u64,
    /// Highest byte of the arena.
    pub bytes_peak: u64,
    /// The arena as it is taken.
    pub bytes_arena: u64,
    /// No packing of this schedule is lower.
    pub bytes_bound: u64,
    /// What the process holds besides the arena.
    pub bytes_runtime: u64,
    /// Live bytes at the peak, by kind.
    pub held: BTreeMap<String, u64>,
    /// Live bytes at the peak, by layer.
    pub layers: Vec<SavedLayer>,
    /// Rows of a step.
    pub batch: u64,
    /// Rows of a micro-batch.
    pub micro_batch: u64,
    /// Micro-batches of a step.
    pub micro_batches: u64,
    /// Launches of a micro-batch that compute a value again.
    pub nodes_recomputed: u64,
    /// Activations that are not kept, but recomputed inside the backward ops that read them.
    #[serde(default)]
    pub values_folded: u64,
    /// Gradients that are applied by a fused optimizer update, and never exist as a whole.
    #[serde(default)]
    pub gradients_applied: u64,
    /// Bytes of a micro-batch that are copied out.
    pub bytes_offloaded: u64,
    /// Expected time of a step over that of an unsplit one.
    pub time_relative: f64,
}

/// What one layer holds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SavedLayer {
    /// The layer.
    pub layer: String,
    /// Its live bytes at the peak.
    pub bytes: u64,
}

/// One thing that two plans may differ in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap<'a> {
    /// What it is.
    pub name: &'a str,
    /// How much this plan has.
    pub this: Bytes,
    /// How much the other has.
    pub other: Bytes,
}

/// The answer to `memfit plan` as text for a file: the figures, every step, and where every tensor stands.
pub fn saved_text(job: &Path, prepared: &Prepared, summary: &Summary, timeline: &Timeline) -> String {
    let layer = |index: usize| prepared.problem.graph.layers[index].as_str();
    let steps: Value =
        timeline.moments.iter().map(|moment| json!([moment.label, layer(moment.layer.0)])).collect();
    let stands = |holder: &Holder| {
        json!({
            "name": holder.name,
            "layer": layer(holder.layer.0),
            "kind": holder.group.name(),
            "bytes": holder.slot.bytes.0,
            "offset": holder.slot.offset.0,
            "steps": [holder.lower, holder.upper],
        })
    };
    let mut text = Map::from_iter([
        ("format".to_owned(), json!(FORMAT)),
        ("version".to_owned(), json!(VERSION)),
        ("job".to_owned(), json!(job.display().to_string())),
    ]);
    if let Value::Object(figures) = summary.to_json() {
        text.extend(figures);
    }
    if let Err(answer) = &prepared.outcome {
        text.extend(refusal_json(answer));
    }
    text.insert("steps".to_owned(), steps);
    text.insert("tensors".to_owned(), timeline.holders.iter().map(stands).collect());
    Value::Object(text).to_string() + "\n"
}

impl SavedPlan {
    /// Whether a file is a saved plan and neither a job nor a model: JSON begins with a brace, which TOML cannot, and the configuration
    /// of a Keras model has a class.
    pub fn is_one(path: &Path) -> bool {
        let is_json = || {
            let mut start = [0; 64];
            let length = std::fs::File::open(path).and_then(|mut file| file.read(&mut start)).unwrap_or(0);
            start[..length].trim_ascii_start().starts_with(b"{")
        };
        let is_model = |text: String| text.contains("\"class_name\"") && !text.contains(FORMAT);
        (path.extension().is_some_and(|extension| extension == "json") || is_json())
            && !memfit_files::text_of(path).is_ok_and(is_model)
    }

    /// Reads a file that `memfit plan --output` wrote.
    pub fn read(path: &Path) -> Result<SavedPlan, Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::File {
            verb: "read",
            path: path.to_owned(),
            source,
        })?;
        let again = "write it again with `memfit plan JOB.toml --output FILE.json`";
        let refuse = |problem: String| Error::job(path.display().to_string(), format!("{problem}; {again}"));
        let value: Value = serde_json::from_str(&text).map_err(|error| {
            if error.is_eof() {
                refuse(format!("a saved plan that is cut off after {} bytes", text.len()))
            } else {
                refuse(format!("not a saved plan, nor JSON at all: {error}"))
            }
        })?;
        if value.get("format").and_then(Value::as_str) != Some(FORMAT) {
            return Err(refuse("JSON, but not a saved plan".to_owned()));
        }
        match value.get("version").and_then(Value::as_u64) {
            Some(VERSION) => {}
            Some(other) => {
                return Err(refuse(format!(
                    "a saved plan of version {other}, and this program reads version {VERSION}"
                )));
            }
            None => return Err(refuse("a saved plan without a version".to_owned())),
        }
        serde_json::from_value(value)
            .map_err(|error| refuse(format!("a saved plan that lacks something: {error}")))
    }

    /// The figures of a job just planned.
    pub fn of(job: &Path, summary: &Summary) -> SavedPlan {
        let layer =
            |LayerBytes { layer, bytes }: &LayerBytes| SavedLayer { layer: layer.clone(), bytes: bytes.0 };
        SavedPlan {
            job: job.display().to_string(),
            fits: summary.fits,
            budget: summary.budget.0,
            bytes_smallest_budget: summary.bytes_smallest_budget.0,
            bytes_peak: summary.bytes_peak.0,
            bytes_arena: summary.bytes_arena.0,
            bytes_bound: summary.bytes_bound.0,
            bytes_runtime: summary.runtime.total().0,
            held: memfit_plan::Group::ALL
                .iter()
                .map(|group| (group.name().to_owned(), summary.held.get(*group).0))
                .collect(),
            layers: summary.layers.iter().map(layer).collect(),
            batch: summary.batch as u64,
            micro_batch: summary.micro_batch as u64,
            micro_batches: summary.micro_batches as u64,
            nodes_recomputed: summary.nodes_recomputed as u64,
            values_folded: summary.values_folded as u64,
            gradients_applied: summary.gradients_applied as u64,
            bytes_offloaded: summary.bytes_offloaded.0,
            time_relative: summary.time_relative,
        }
    }

    /// Figures of the whole plan, in bytes.
    pub fn gaps<'a>(&'a self, other: &'a SavedPlan) -> Vec<Gap<'a>> {
        let figures = |plan: &SavedPlan| {
            [
                ("bytes_smallest_budget", plan.bytes_smallest_budget),
                ("bytes_runtime", plan.bytes_runtime),
                ("bytes_arena", plan.bytes_arena),
                ("bytes_peak", plan.bytes_peak),
                ("bytes_bound", plan.bytes_bound),
                ("bytes_offloaded", plan.bytes_offloaded),
            ]
        };
        let pairs = figures(self).into_iter().zip(figures(other));
        pairs.map(|((name, this), (_, other))| Gap { name, this: Bytes(this), other: Bytes(other) }).collect()
    }

    /// Live bytes at the peaks, kind by kind.
    pub fn gaps_by_kind<'a>(&'a self, other: &'a SavedPlan) -> Vec<Gap<'a>> {
        fn pairs(plan: &SavedPlan) -> impl Iterator<Item = (&str, u64)> {
            plan.held.iter().map(|(name, bytes)| (name.as_str(), *bytes))
        }
        gaps(pairs(self), pairs(other))
    }

    /// Live bytes at the peaks, layer by layer, the largest difference first.
    pub fn gaps_by_layer<'a>(&'a self, other: &'a SavedPlan) -> Vec<Gap<'a>> {
        fn pairs(plan: &SavedPlan) -> impl Iterator<Item = (&str, u64)> {
            plan.layers.iter().map(|layer| (layer.layer.as_str(), layer.bytes))
        }
        let mut gaps = gaps(pairs(self), pairs(other));
        gaps.sort_by_key(|gap| (std::cmp::Reverse(gap.this.0.abs_diff(gap.other.0)), gap.name));
        gaps
    }

    /// Both plans and the change from the other to this one, as one JSON object.
    pub fn difference_json(&self, other: &SavedPlan) -> Value {
        let change = |gap: &Gap<'_>| (gap.name.to_owned(), signed(gap.this.0, gap.other.0));
        let by_name = |gaps: Vec<Gap<'_>>| gaps.iter().map(change).collect::<Map<String, Value>>();
        let mut difference = by_name(self.gaps(other));
        difference.insert("time_relative".to_owned(), json!(self.time_relative - other.time_relative));
        let counted = |plan: &SavedPlan| {
            let again = [plan.nodes_recomputed, plan.values_folded, plan.gradients_applied];
            [plan.batch, plan.micro_batches].into_iter().chain(again)
        };
        let names = ["batch", "micro_batches", "nodes_recomputed", "values_folded", "gradients_applied"];
        for ((name, this), other) in names.iter().zip(counted(self)).zip(counted(other)) {
            difference.insert((*name).to_owned(), signed(this, other));
        }
        difference.insert("held".to_owned(), Value::Object(by_name(self.gaps_by_kind(other))));
        difference.insert("layers".to_owned(), Value::Object(by_name(self.gaps_by_layer(other))));
        json!({ "plan": self.to_json(), "other": other.to_json(), "difference": difference })
    }

    fn to_json(&self) -> Value {
        let mut figures = Map::from_iter([
            ("job".to_owned(), json!(self.job)),
            ("fits".to_owned(), json!(self.fits)),
            ("budget".to_owned(), json!(self.budget)),
        ]);
        figures.extend(self.gaps(self).iter().map(|gap| (gap.name.to_owned(), json!(gap.this.0))));
        figures.extend([
            ("held".to_owned(), json!(self.held)),
            ("layers".to_owned(), self.layers.iter().map(SavedLayer::to_json).collect()),
            ("batch".to_owned(), json!(self.batch)),
            ("micro_batch".to_owned(), json!(self.micro_batch)),
            ("micro_batches".to_owned(), json!(self.micro_batches)),
            ("nodes_recomputed".to_owned(), json!(self.nodes_recomputed)),
            ("values_folded".to_owned(), json!(self.values_folded)),
            ("gradients_applied".to_owned(), json!(self.gradients_applied)),
            ("time_relative".to_owned(), json!(self.time_relative)),
        ]);
        Value::Object(figures)
    }
}

impl SavedLayer {
    fn to_json(&self) -> Value {
        json!({"layer": self.layer, "bytes": self.bytes})
    }
}

/// The change from the other to this: below zero where this has less.
fn signed(this: u64, other: u64) -> Value {
    let gap = i64::try_from(this.abs_diff(other)).unwrap_or(i64::MAX);
    json!(if this < other { -gap } else { gap })
}

/// What either of two lists names, with its figure in both.
fn gaps<'a>(
    this: impl Iterator<Item = (&'a str, u64)>,
    other: impl Iterator<Item = (&'a str, u64)>,
) -> Vec<Gap<'a>> {
    let mut all: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for (name, bytes) in this {
        all.entry(name).or_default()[0] += bytes;
    }
    for (name, bytes) in other {
        all.entry(name).or_default()[1] += bytes;
    }
    all.into_iter()
        .map(|(name, [this, other])| Gap { name, this: Bytes(this), other: Bytes(other) })
        .collect()
}
