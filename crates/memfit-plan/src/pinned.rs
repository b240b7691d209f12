//! What was decided of a plan beforehand, and whether a problem can have it.

use std::borrow::Cow;
use std::fmt;

use memfit_ir::{Problem, Region};

use crate::moves::split;

/// What of a plan cannot be as it was decided beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CannotPin {
    /// A micro-batch of no rows, or of more than the batch.
    MicroBatch {
        /// Its rows.
        rows: usize,
        /// Rows of the batch.
        batch: usize,
    },
    /// The batch cannot be split, since this layer mixes rows.
    MixesRows {
        /// The layer.
        layer: String,
    },
    /// The graph does not have this region, or a split batch would have it.
    Region(Region),
    /// The device does not offer this algorithm for a node of this layer.
    Algorithm {
        /// The layer.
        layer: String,
    },
}

impl fmt::Display for CannotPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CannotPin::MicroBatch { rows, batch } => {
                write!(f, "a batch of {batch} rows has no micro-batches of {rows}")
            }
            CannotPin::MixesRows { layer } => {
                write!(f, "the batch cannot be split: {layer} computes one result from all of its rows")
            }
            CannotPin::Region(region) => {
                write!(f, "the network cannot run in {} slices there", region.slices)
            }
            CannotPin::Algorithm { layer } => {
                write!(f, "this device does not offer the algorithm that {layer} ran by")
            }
        }
    }
}

impl std::error::Error for CannotPin {}

/// Whether a problem has plans with what was decided beforehand. The planner may be asked only then.
pub fn may_pin(problem: &Problem) -> Result<(), CannotPin> {
    let pinned = &problem.pinned;
    let rows = pinned.micro_batch.unwrap_or(problem.batch);
    if rows == 0 || problem.batch < rows {
        return Err(CannotPin::MicroBatch { rows, batch: problem.batch });
    }
    if rows < problem.batch && !split::may_split(problem) {
        let mixing = problem.graph.nodes.iter().find(|node| node.op.mixes_rows());
        let layer = mixing.map(|node| problem.graph.layers[node.layer.0].clone()).unwrap_or_default();
        return Err(CannotPin::MixesRows { layer });
    }
    let mut changed = match pinned.region.flatten() {
        None => problem.clone(),
        Some(region) if rows < problem.batch => return Err(CannotPin::Region(region)),
        Some(region) if problem.graph.tensors.len() <= region.boundary.0 => {
            return Err(CannotPin::Region(region));
        }
        Some(region) => region.applied(problem).ok_or(CannotPin::Region(region))?,
    };
    pinned.restrict(&mut changed).map_err(|node| {
        let layer = changed.graph.nodes.get(node.0).map(|node| changed.graph.layers[node.layer.0].clone());
        CannotPin::Algorithm { layer: layer.unwrap_or_default() }
    })
}

/// The problem with the pinned algorithms alone, where they are those of its own nodes.
pub fn restricted(problem: &Problem) -> Cow<'_, Problem> {
    let pinned = &problem.pinned;
    if pinned.algorithms.is_empty() || pinned.region.flatten().is_some() {
        return Cow::Borrowed(problem);
    }
    let mut restricted = problem.clone();
    pinned.restrict(&mut restricted).expect("what is pinned was looked at before");
    Cow::Owned(restricted)
}
