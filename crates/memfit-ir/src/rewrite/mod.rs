//! Rewrites: changes of a graph that a plan names, each of which leaves what the graph computes as it is.
//!
//! The planner chooses them and the checker applies them; that the rewritten graph computes the same is compared by
//! [`compare`](crate::compare), which knows nothing of how a rewrite is made.

mod compare;
mod fuse_producer;
mod fuse_update;
mod region;
mod tail;

use std::borrow::Cow;

pub use compare::{Difference, compare};
pub use fuse_producer::{ProducerFusion, ProducerFusions};
pub use fuse_update::{FusedUpdate, UpdateFusion};
pub use region::{Cut, Region, Slice};
pub use tail::Tail;

use crate::{Graph, NodeId, Plan, Problem, TensorId};

/// A change of the graph that a plan names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// The update of a weight is fused into the node that computes this gradient, which then never exists whole.
    FuseUpdate(TensorId),
    /// The node that computes this value is fused into the nodes of backward that read it: they recompute the
    /// value, and it is not kept for them.
    FuseProducer(TensorId),
    /// A part of the network runs in slices of the batch.
    Slice(Region),
}

/// What has another cost once a rewrite is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rewritten {
    /// A node with the producer of its first operand fused into it.
    Reader(NodeId),
    /// The node that computes this gradient, with the update fused into it.
    Update(TensorId),
}

impl Rewrite {
    /// Whether it needs all rows of the batch in one micro-batch.
    pub fn needs_whole_batch(&self) -> bool {
        match self {
            Rewrite::FuseUpdate(_) | Rewrite::Slice(_) => true,
            Rewrite::FuseProducer(_) => false,
        }
    }

    /// The tensor that it is about.
    pub(crate) fn tensor(&self) -> TensorId {
        match self {
            Rewrite::FuseUpdate(tensor) | Rewrite::FuseProducer(tensor) => *tensor,
            Rewrite::Slice(region) => region.boundary,
        }
    }
}

impl Problem {
    /// The problem with these rewrites applied one after the other, of which its graph may have the first
    /// already; the rewrite that its graph or its costs do not allow.
    pub fn rewritten(&self, rewrites: &[Rewrite]) -> Result<Cow<'_, Problem>, Rewrite> {
        let done = self.graph.rewrites.len();
        if self.graph.rewrites == rewrites || rewrites.is_empty() {
            return Ok(Cow::Borrowed(self));
        }
        let differs = self.graph.rewrites.iter().zip(rewrites).position(|(own, named)| own != named);
        if let Some(rewrite) = rewrites.get(differs.unwrap_or(done)).filter(|_| differs.is_some()) {
            return Err(*rewrite);
        }
        let mut problem = self.clone();
        let mut rest = rewrites.get(done..).unwrap_or_default();
        while let Some(rewrite) = rest.first() {
            if problem.graph.tensors.len() <= rewrite.tensor().0 {
                return Err(*rewrite);
            }
            let applied = match rewrite {
                Rewrite::FuseUpdate(gradient) => {
                    fuse_update::apply(&mut problem, *gradient, &self.costs_rewritten)
                }
                Rewrite::FuseProducer(_) => fuse_producer::apply(&mut problem, rest)?,
                Rewrite::Slice(region) => region::apply(&mut problem, region),
            };
            rest = &rest[applied.ok_or(*rewrite)?..];
        }
        Ok(Cow::Owned(problem))
    }
}

impl Graph {
    /// The part that runs in slices, where one does.
    pub fn region(&self) -> Option<Region> {
        region_of(&self.rewrites)
    }
}

impl Plan {
    /// The part that runs in slices, where one does.
    pub fn region(&self) -> Option<Region> {
        region_of(&self.rewrites)
    }
}

fn region_of(rewrites: &[Rewrite]) -> Option<Region> {
    rewrites.iter().find_map(|rewrite| match rewrite {
        Rewrite::Slice(region) => Some(*region),
        Rewrite::FuseUpdate(_) | Rewrite::FuseProducer(_) => None,
    })
}
