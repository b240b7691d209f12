//! What the precision move saved and what it changed: the same job planned in f32, and in words.

use memfit_device::Backend;
use memfit_formats::Precision;
use memfit_ir::{Bytes, DType, Graph, Problem};
use memfit_plan::Hint;
use serde_json::{Value, json};

use crate::prepare;

/// Which half types a job computes in, and what that is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrecisionSummary {
    /// Keras's names of the policies, `float32` only where it is alone.
    pub policies: Vec<Precision>,
    /// Peak of the whole batch without a split, with every value kept.
    pub bytes_whole: Bytes,
    /// The same with every layer in f32.
    pub bytes_whole_float32: Bytes,
}

impl PrecisionSummary {
    /// What a problem gains over the same one in f32; nothing where it has no half types.
    pub(crate) fn of(
        problem: &Problem,
        in_float32: impl FnOnce() -> Option<Problem>,
    ) -> Option<PrecisionSummary> {
        let policies = policies(&problem.graph);
        if policies.is_empty() {
            return None;
        }
        let whole =
            |problem: &Problem| memfit_plan::moves::split::pieces_of(problem, problem.batch).bytes_peak;
        let bytes_whole_float32 = whole(&in_float32()?);
        Some(PrecisionSummary { policies, bytes_whole: whole(problem), bytes_whole_float32 })
    }

    /// The policies, by name.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.policies.iter().map(|policy| policy.name()).collect();
        names.join(" and ")
    }

    /// What it changed, in words.
    pub fn changed(&self) -> String {
        let types: Vec<&str> = self.policies.iter().map(|policy| half(*policy)).collect();
        let scaling = match self.policies.contains(&Precision::MixedFloat16) {
            true => "loss scaling dynamic",
            false => "no loss scaling",
        };
        format!(
            "activations and their gradients in {}, weights and sums in f32, {scaling}",
            types.join(" and ")
        )
    }

    /// What it saved, in words.
    pub fn saved(&self) -> String {
        let (now, before) = (self.bytes_whole, self.bytes_whole_float32);
        match now <= before {
            true => {
                format!("the whole batch peaks at {now} instead of {before}: {} saved", before - now)
            }
            false => format!("the whole batch peaks at {now}, {} more than in float32", now - before),
        }
    }

    /// As a JSON object.
    pub fn to_json(&self) -> Value {
        json!({
            "policy": self.names(),
            "bytes_whole": self.bytes_whole.0,
            "bytes_whole_float32": self.bytes_whole_float32.0,
            "bytes_saved": i128::from(self.bytes_whole_float32.0) - i128::from(self.bytes_whole.0),
            "changed": self.changed(),
        })
    }
}

/// The mixed policies that a graph's values show.
pub(crate) fn policies(graph: &Graph) -> Vec<Precision> {
    let holds = |dtype: DType| graph.tensors.iter().any(|tensor| tensor.dtype == dtype);
    let mixed = [Precision::MixedFloat16, Precision::MixedBfloat16].into_iter();
    mixed.filter(|policy| holds(policy.compute())).collect()
}

fn half(policy: Precision) -> &'static str {
    match policy {
        Precision::Float32 => "f32",
        Precision::MixedFloat16 => "f16",
        Precision::MixedBfloat16 => "bf16",
    }
}

/// Whether half the bytes for values would fit: tried by planning it.
pub(crate) fn try_bfloat16(
    problem: &Problem,
    graph: impl FnOnce() -> Option<Graph>,
    setup: &dyn Backend,
) -> Option<Hint> {
    if !policies(&problem.graph).is_empty() {
        return None;
    }
    let graph = graph()?;
    let changed = prepare::with_graph(setup, problem, graph);
    let smallest = memfit_plan::smallest_budget(&changed);
    (smallest <= problem.budget.total).then(|| Hint::Changed {
        kind: "precision",
        text: format!(
            "the policy mixed_bfloat16 fits from {smallest}, with values of eight significant bits"
        ),
        smallest,
    })
}
