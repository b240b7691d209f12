//! What of a plan is decided beforehand: everything that changes bits, so that a run can go on with the arithmetic it began with.
//!
//! The rows of a micro-batch, the slices of a region and the algorithms of a GPU's libraries decide in which order numbers are added.
//! What is recomputed, fused or copied out does not, and stays the planner's choice.

use crate::{Bytes, Cost, LowWorkspace, Nanos, NodeId, Plan, Problem, Region};

/// Parts of a plan that the planner may not choose. The default leaves everything to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pinned {
    /// Rows of a full micro-batch; `None` leaves them open.
    pub micro_batch: Option<usize>,
    /// The region that runs in slices, or that there is none; `None` leaves it open.
    pub region: Option<Option<Region>>,
    /// Scratch memory of launches at this micro-batch, which names their algorithm, for nodes with several algorithms. Nodes are those
    /// of the graph with the region applied. Two entries of one node allow both.
    pub algorithms: Vec<(NodeId, Bytes)>,
}

impl Pinned {
    /// Everything of a plan that changes bits. `solved` is the problem whose nodes the plan names.
    pub fn of_plan(solved: &Problem, plan: &Plan) -> Pinned {
        let mut algorithms: Vec<(NodeId, Bytes)> = plan
            .steps()
            .filter_map(|step| match step {
                crate::Step::Launch { node, workspace, .. } => Some((*node, workspace.bytes)),
                crate::Step::Copy { .. } | crate::Step::Wait(_) => None,
            })
            .filter(|(node, _)| solved.costs[node.0].leaner[0].is_some())
            .collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        Pinned { micro_batch: Some(plan.micro_batch), region: Some(plan.region()), algorithms }
    }

    /// Whether nothing is pinned.
    pub fn is_empty(&self) -> bool {
        *self == Pinned::default()
    }

    /// Whether each node has one algorithm, so that every plan within these restrictions gives the same bits.
    pub fn is_exact(&self) -> bool {
        self.micro_batch.is_some()
            && self.region.is_some()
            && self.algorithms.windows(2).all(|pair| pair[0].0 != pair[1].0)
    }

    /// Whether micro-batches of this size are allowed.
    pub fn allows_rows(&self, rows: usize) -> bool {
        self.micro_batch.is_none_or(|pinned| pinned == rows)
    }

    /// Whether a plan with this region is allowed. Whether a region's values are kept changes no bits; it is free as long as no
    /// algorithm is pinned to a node, since it changes which nodes there are.
    pub fn allows_region(&self, region: Option<Region>) -> bool {
        match (self.region, region) {
            (None, _) | (Some(None), None) => true,
            (Some(None), Some(_)) | (Some(Some(_)), None) => false,
            (Some(Some(pinned)), Some(region)) => {
                let keeps = if self.algorithms.is_empty() { region.keeps } else { pinned.keeps };
                Region { keeps, ..pinned } == region
            }
        }
    }

    /// Whether a plan stays within all of it. `solved` is the problem whose nodes the plan names.
    pub fn allows(&self, solved: &Problem, plan: &Plan) -> bool {
        let is_among = |(node, workspace): &(NodeId, Bytes)| {
            let mut known = self.algorithms.iter().filter(|(pinned, _)| pinned == node).peekable();
            known.peek().is_none() || known.any(|(_, pinned)| pinned == workspace)
        };
        self.allows_rows(plan.micro_batch)
            && self.allows_region(plan.region())
            && (self.algorithms.is_empty() || Pinned::of_plan(solved, plan).algorithms.iter().all(is_among))
    }

    /// Leaves each node the pinned algorithms alone; the first node that does not have one of them where there is one.
    pub fn restrict(&self, problem: &mut Problem) -> Result<(), NodeId> {
        let rows = self.micro_batch.unwrap_or(problem.batch);
        let mut from = 0;
        while let Some((node, _)) = self.algorithms.get(from) {
            let count = self.algorithms[from..].iter().take_while(|(other, _)| other == node).count();
            let pinned = &self.algorithms[from..from + count];
            let rows =
                problem.graph.nodes.get(node.0).map(|_| problem.graph.rows_of(*node, rows)).ok_or(*node)?;
            let cost = &mut problem.costs[node.0];
            *cost = restricted(cost, rows, pinned).ok_or(*node)?;
            from += count;
        }
        Ok(())
    }
}

/// A cost with some of its algorithms alone; `None` where it does not have one of them.
fn restricted(cost: &Cost, rows: usize, pinned: &[(NodeId, Bytes)]) -> Option<Cost> {
    let is_known = |(_, workspace): &(NodeId, Bytes)| cost.nanos_beyond(*workspace, rows).is_some();
    if !pinned.iter().all(is_known) {
        return None;
    }
    let per_row = cost.workspace_per_row * rows as u64;
    let mut left =
        cost.ways(rows).filter(|(workspace, _)| pinned.iter().any(|(_, pinned)| pinned == workspace));
    let (workspace, beyond) = left.next()?;
    let mut leaner = left.map(|(workspace, nanos)| LowWorkspace {
        workspace_fixed: workspace - per_row,
        nanos: Nanos { fixed: nanos.fixed - beyond.fixed, per_row: nanos.per_row - beyond.per_row },
    });
    let slower =
        |nanos: Nanos| Nanos { fixed: nanos.fixed + beyond.fixed, per_row: nanos.per_row + beyond.per_row };
    Some(Cost {
        workspace_fixed: workspace - per_row,
        nanos_fixed: cost.nanos_fixed + beyond.fixed,
        nanos_per_row: cost.nanos_per_row + beyond.per_row,
        measured: cost.measured.map(slower),
        leaner: std::array::from_fn(|_| leaner.next()),
        ..*cost
    })
}
