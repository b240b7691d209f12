//! The checker: simulates a plan, slowly and plainly, and is the only constructor of a [`CheckedPlan`].
//!
//! It shares no code with the planner or the packer. Where the plan rewrites the graph, what the rewritten graph
//! computes is compared first. Then it keeps a map of the arena: which bytes hold which
//! tensor's value right now. A step is right when all that it reads is in the map, and when it overwrites
//! nothing that is needed.

use std::collections::BTreeMap;
use std::fmt;

use crate::{
    ALIGNMENT, Bytes, Difference, Kind, Node, NodeId, Op, Phase, Place, Plan, Problem, Rewrite, Slot, Step,
    TensorId, compare,
};

/// A plan that was checked against its problem; the only kind that runs.
#[derive(Clone, Debug)]
pub struct CheckedPlan {
    problem: Problem,
    plan: Plan,
}

impl CheckedPlan {
    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The problem it solves.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }
}

/// What is wrong with a plan: a bug of the planner, never the user's fault.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckError {
    /// A micro-batch of no rows, or of more rows than the batch.
    MicroBatch(usize),
    /// A rewrite that does not suit the graph, or that needs the whole batch where it is split.
    Rewrite(Rewrite),
    /// The rewritten graph does not compute what the graph does.
    Differs(Difference),
    /// Not what was decided beforehand: micro-batch, region or algorithms.
    Pinned,
    /// The batch is split though this node mixes its rows.
    MixesRows(NodeId),
    /// More bytes than the budget leaves for the arena.
    OverBudget(Bytes),
    /// The stated peak is not the highest end of a slot.
    Peak(Bytes),
    /// A launch does not name one slot for each operand.
    Operands(NodeId),
    /// A slot's length is not its tensor's.
    Size(Slot),
    /// A slot's offset is not aligned.
    Misaligned(Slot),
    /// A workspace that no algorithm of the node has.
    Workspace(NodeId),
    /// A node reads or changes a tensor that is not there.
    NotThere(NodeId, TensorId),
    /// A node would read a tensor before or after the update, against the order of the graph.
    WrongVersion(NodeId, TensorId),
    /// Two operands of one launch share bytes that they may not share.
    Overlap(NodeId),
    /// A write destroys a tensor that must stay.
    Destroys(TensorId),
    /// A node runs in the wrong section, or one that changes tensors runs twice.
    OutOfTurn(NodeId),
    /// A node never runs.
    NeverRuns(NodeId),
    /// A copy that is not from a feed into its tensor's slot, nor of a value to offload memory or back.
    Copy,
    /// Bytes are touched, or a section ends, while a copy may still be reading or writing them.
    Unwaited(Slot),
    /// The slot of the next rows is too small, or something else stands in it or after it.
    Ahead(Slot),
    /// Offload memory is smaller than what is copied there, or its stated height is wrong.
    Host(Bytes),
    /// `fresh` on a launch whose updates do not wait for their zero.
    NotFresh(NodeId),
    /// A tensor that must be there when the step ends is not.
    NotKept(TensorId),
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the planner made a wrong plan: {self:?}; please report this with the job file")
    }
}

impl std::error::Error for CheckError {}

/// Checks a plan against its problem.
pub fn check(problem: &Problem, plan: Plan) -> Result<CheckedPlan, CheckError> {
    let asked = problem;
    let problem = &*asked.rewritten(&plan.rewrites).map_err(CheckError::Rewrite)?;
    if plan.micro_batch == 0 || plan.batch < plan.micro_batch || plan.batch != problem.batch {
        return Err(CheckError::MicroBatch(plan.micro_batch));
    }
    if !problem.pinned.allows(problem, &plan) {
        return Err(CheckError::Pinned);
    }
    let split = plan.micro_batches() > 1;
    let whole = problem.graph.rewrites.iter().find(|rewrite| rewrite.needs_whole_batch());
    if let Some(rewrite) = whole.filter(|_| split) {
        return Err(CheckError::Rewrite(*rewrite));
    }
    if asked.graph.rewrites != problem.graph.rewrites {
        compare(&asked.graph, &problem.graph, split).map_err(CheckError::Differs)?;
    }
    if split {
        // Statistics of micro-batches may be allowed; a loss of micro-batches never is.
        let allowed = |op: &Op| problem.allow_batchnorm_split && op.is_of_batch_norm();
        let mixing = problem.graph.nodes.iter().position(|node| node.op.mixes_rows() && !allowed(&node.op));
        if let Some(index) = mixing {
            return Err(CheckError::MixesRows(NodeId(index)));
        }
    }
    check_size(problem, &plan)?;

    let mut machine = Machine::new(problem, &plan, split);
    machine.run(&plan.prologue, Phase::Begin)?;
    // Twice, to see that the values left by one micro-batch do not harm the next.
    for _ in 0..if split { 2 } else { 1 } {
        machine.begin_piece();
        machine.run(&plan.body, Phase::Piece)?;
    }
    machine.run(&plan.epilogue, Phase::End)?;
    machine.finish(&plan)?;
    Ok(CheckedPlan { problem: problem.clone(), plan })
}

fn check_size(problem: &Problem, plan: &Plan) -> Result<(), CheckError> {
    let (mut peak, mut host) = (Bytes::ZERO, Bytes::ZERO);
    let mut see = |slot: &Slot| {
        if slot.bytes == Bytes::ZERO {
            return Ok(());
        }
        peak = peak.max(slot.end());
        if slot.offset.0.is_multiple_of(ALIGNMENT) { Ok(()) } else { Err(CheckError::Misaligned(*slot)) }
    };
    plan.persistent.iter().chain(&plan.kept).try_for_each(|(_, slot)| see(slot))?;
    for step in plan.steps() {
        match step {
            Step::Launch { args, workspace, .. } => {
                args.iter().chain([workspace]).try_for_each(&mut see)?;
            }
            Step::Copy { from, to } => {
                for place in [from, to] {
                    match place {
                        Place::Arena(slot) => see(slot)?,
                        Place::Host(slot) => host = host.max(slot.end()),
                        Place::Feed(_) => {}
                    }
                }
            }
            Step::Wait(slot) => see(slot)?,
        }
    }
    if let Some(slot) = plan.ahead {
        let bytes = |(id, _): (TensorId, Slot)| {
            problem.graph.tensors[id.0].bytes(plan.micro_batch).align_up(ALIGNMENT)
        };
        let needed: Bytes = plan.fed_first().map(bytes).sum();
        if slot.offset < peak || !slot.offset.0.is_multiple_of(ALIGNMENT) || slot.bytes < needed {
            return Err(CheckError::Ahead(slot));
        }
        peak = slot.end();
    }
    if host != plan.bytes_host || problem.budget.host < host {
        return Err(CheckError::Host(host));
    }
    if peak != plan.bytes_peak {
        return Err(CheckError::Peak(peak));
    }
    if problem.budget.arena() < problem.budget.arena_for(peak) {
        return Err(CheckError::OverBudget(peak));
    }
    Ok(())
}

/// The picture of the arena while the plan runs.
struct Machine<'a> {
    problem: &'a Problem,
    rows: usize,
    split: bool,
    /// Disjoint buffers by their first byte: one past the last, and the tensors whose value stands there.
    arena: BTreeMap<u64, (u64, Vec<TensorId>)>,
    /// Where each tensor's value stands, if it is there.
    slots: Vec<Option<Slot>>,
    /// The buffers in offload memory: they do not overlap; each has the tensors whose value it holds.
    host: Vec<(Slot, Vec<TensorId>)>,
    /// Copies that no step has waited for yet.
    under_way: Vec<Transfer>,
    /// Updates each tensor has seen since the section (or, unsplit, the step) began.
    updated: Vec<usize>,
    /// Launches of each node since the section (or, unsplit, the step) began.
    launched: Vec<usize>,
    /// The `Zero` that opens each tensor, where there is one.
    zeros: Vec<Option<usize>>,
    /// For each node, the updates that its operands (inputs, then updates) must have seen.
    versions: Vec<Vec<usize>>,
}

/// A copy between a buffer of the arena and one of offload memory.
struct Transfer {
    arena: Slot,
    host: Slot,
    out: bool,
}

impl Transfer {
    /// Whether it goes wrong when another step reads, or writes, a buffer of the arena meanwhile.
    fn minds(&self, slot: &Slot, written: bool) -> bool {
        (written || !self.out) && shares(&self.arena, slot)
    }

    /// The same of a buffer of offload memory.
    fn minds_host(&self, slot: &Slot, written: bool) -> bool {
        (written || self.out) && shares(&self.host, slot)
    }
}

/// Whether two buffers have a byte in common.
fn shares(one: &Slot, other: &Slot) -> bool {
    one.bytes != Bytes::ZERO && other.bytes != Bytes::ZERO && one.overlaps(other)
}

impl<'a> Machine<'a> {
    fn new(problem: &'a Problem, plan: &Plan, split: bool) -> Machine<'a> {
        let tensors = problem.graph.tensors.len();
        let mut zeros = vec![None; tensors];
        for (index, node) in problem.graph.nodes.iter().enumerate().filter(|(_, node)| node.op == Op::Zero) {
            for tensor in &node.outputs {
                zeros[tensor.0] = Some(index);
            }
        }
        let mut machine = Machine {
            problem,
            rows: plan.micro_batch,
            split,
            arena: BTreeMap::new(),
            slots: vec![None; tensors],
            host: Vec::new(),
            under_way: Vec::new(),
            updated: vec![0; tensors],
            launched: vec![0; problem.graph.nodes.len()],
            zeros,
            versions: versions(problem, split),
        };
        for (tensor, slot) in &plan.persistent {
            machine.place(*tensor, *slot);
        }
        machine
    }

    fn run(&mut self, steps: &[Step], section: Phase) -> Result<(), CheckError> {
        if self.split {
            self.updated.fill(0);
            self.launched.fill(0);
        }
        for step in steps {
            match step {
                Step::Launch { node, args, workspace, fresh } => {
                    let read = self.problem.graph.nodes[node.0].inputs.len();
                    for (index, slot) in args.iter().chain([workspace]).enumerate() {
                        self.is_waited_for(slot, read <= index)?;
                    }
                    self.launch(*node, args, *workspace, *fresh, section)?;
                }
                Step::Copy { from: Place::Feed(tensor), to: Place::Arena(slot) } => {
                    self.is_waited_for(slot, true)?;
                    self.size(*tensor, slot)?;
                    if self.problem.graph.tensors[tensor.0].kind != Kind::Input {
                        return Err(CheckError::Copy);
                    }
                    self.write(*tensor, *slot)?;
                }
                Step::Copy { from: Place::Arena(from), to: Place::Host(to) } => self.copy_out(*from, *to)?,
                Step::Copy { from: Place::Host(from), to: Place::Arena(to) } => self.copy_in(*from, *to)?,
                Step::Copy { .. } => return Err(CheckError::Copy),
                Step::Wait(slot) => self.under_way.retain(|transfer| transfer.arena != *slot),
            }
        }
        if let Some(transfer) = self.under_way.first() {
            return Err(CheckError::Unwaited(transfer.arena));
        }
        if self.split || section == Phase::End {
            let nodes = self.problem.graph.nodes.iter().enumerate();
            for (index, node) in nodes {
                if (!self.split || node.phase == section) && self.launched[index] == 0 {
                    return Err(CheckError::NeverRuns(NodeId(index)));
                }
            }
        }
        Ok(())
    }

    /// No copy may be under way to bytes that are read or written, or from bytes that are written.
    fn is_waited_for(&self, slot: &Slot, written: bool) -> Result<(), CheckError> {
        match self.under_way.iter().any(|transfer| transfer.minds(slot, written)) {
            true => Err(CheckError::Unwaited(*slot)),
            false => Ok(()),
        }
    }

    /// Begins a copy.
    fn transfer(&mut self, arena: Slot, host: Slot, out: bool) -> Result<(), CheckError> {
        self.is_waited_for(&arena, !out)?;
        if self.under_way.iter().any(|transfer| transfer.minds_host(&host, out)) {
            return Err(CheckError::Unwaited(arena));
        }
        self.under_way.push(Transfer { arena, host, out });
        Ok(())
    }

    /// The value that fills a buffer of the arena now stands in offload memory too.
    fn copy_out(&mut self, from: Slot, to: Slot) -> Result<(), CheckError> {
        let tensors = match self.arena.get(&from.offset.0) {
            Some((end, tensors)) if *end == from.end().0 && from.bytes == to.bytes => tensors.clone(),
            _ => return Err(CheckError::Copy),
        };
        self.transfer(from, to, true)?;
        self.host.retain(|(slot, _)| !slot.overlaps(&to));
        self.host.push((to, tensors));
        Ok(())
    }

    /// A value of offload memory stands in the arena again. A tensor that was updated in between has another
    /// value.
    fn copy_in(&mut self, from: Slot, to: Slot) -> Result<(), CheckError> {
        let held = self.host.iter().find(|(slot, _)| *slot == from && slot.bytes == to.bytes);
        let tensors = held.map(|(_, tensors)| tensors.clone()).ok_or(CheckError::Copy)?;
        self.transfer(to, from, false)?;
        self.clear(to)?;
        for (index, tensor) in tensors.into_iter().enumerate() {
            if self.updated[tensor.0] > 0 || self.problem.graph.tensors[tensor.0].kind.is_persistent() {
                return Err(CheckError::Copy);
            }
            self.forget(tensor);
            if index == 0 { self.place(tensor, to) } else { self.share(tensor, to) }
        }
        Ok(())
    }

    /// The values of the last micro-batch are not values of this one.
    fn begin_piece(&mut self) {
        self.host.clear();
        let graph = &self.problem.graph;
        for node in graph.nodes.iter().filter(|node| node.phase == Phase::Piece) {
            for tensor in &node.outputs {
                self.forget(*tensor);
            }
        }
        for tensor in &graph.inputs {
            self.forget(*tensor);
        }
    }

    fn launch(
        &mut self,
        id: NodeId,
        args: &[Slot],
        workspace: Slot,
        fresh: bool,
        section: Phase,
    ) -> Result<(), CheckError> {
        let node = &self.problem.graph.nodes[id.0];
        let operands: Vec<TensorId> =
            node.inputs.iter().chain(&node.outputs).chain(&node.updates).copied().collect();
        if operands.len() != args.len() {
            return Err(CheckError::Operands(id));
        }
        for (tensor, slot) in operands.iter().zip(args) {
            self.size(*tensor, slot)?;
        }
        let rows = self.problem.graph.rows_of(id, self.rows);
        if self.problem.costs[id.0].nanos_beyond(workspace.bytes, rows).is_none() {
            return Err(CheckError::Workspace(id));
        }
        let again = 0 < self.launched[id.0] && !node.updates.is_empty();
        if again || (self.split && node.phase != section) {
            return Err(CheckError::OutOfTurn(id));
        }
        self.launched[id.0] += 1;

        let (inputs, rest) = args.split_at(node.inputs.len());
        let (outputs, updates) = rest.split_at(node.outputs.len());
        if fresh {
            self.open(id, node, updates, section)?;
        }
        let changed = node.inputs.iter().zip(inputs).chain(node.updates.iter().zip(updates));
        for ((tensor, slot), version) in changed.zip(&self.versions[id.0]) {
            if self.slots[tensor.0] != Some(*slot) {
                return Err(CheckError::NotThere(id, *tensor));
            }
            if self.updated[tensor.0] != *version {
                return Err(CheckError::WrongVersion(id, *tensor));
            }
        }
        check_operands(id, node, inputs, outputs, updates, workspace)?;

        for (tensor, slot) in node.outputs.iter().zip(outputs) {
            if node.op.is_view() && inputs[0] == *slot {
                self.share(*tensor, *slot);
            } else {
                self.write(*tensor, *slot)?;
            }
        }
        self.clear(workspace)?;
        for tensor in &node.updates {
            self.updated[tensor.0] += 1;
        }
        Ok(())
    }

    /// A launch that overwrites does the work of the `Zero` nodes of its updates, which must not have run.
    fn open(&mut self, id: NodeId, node: &Node, updates: &[Slot], section: Phase) -> Result<(), CheckError> {
        for (tensor, slot) in node.updates.iter().zip(updates) {
            match self.zeros[tensor.0] {
                Some(zero)
                    if self.launched[zero] == 0
                        && self.updated[tensor.0] == 0
                        && (!self.split || self.problem.graph.nodes[zero].phase == section) =>
                {
                    self.launched[zero] += 1;
                    self.write(*tensor, *slot)?;
                }
                _ => return Err(CheckError::NotFresh(id)),
            }
        }
        Ok(())
    }

    fn finish(&self, plan: &Plan) -> Result<(), CheckError> {
        let graph = &self.problem.graph;
        let mut held = vec![false; graph.tensors.len()];
        for (tensor, slot) in plan.persistent.iter().chain(&plan.kept) {
            held[tensor.0] = true;
            if self.slots[tensor.0] != Some(*slot) {
                return Err(CheckError::NotKept(*tensor));
            }
        }
        let stays =
            |index: usize| graph.tensors[index].kind.is_persistent() || graph.keep.contains(&TensorId(index));
        match (0..held.len()).find(|index| !held[*index] && stays(*index)) {
            Some(index) => Err(CheckError::NotKept(TensorId(index))),
            None => Ok(()),
        }
    }

    fn size(&self, tensor: TensorId, slot: &Slot) -> Result<(), CheckError> {
        let bytes = self.problem.graph.tensors[tensor.0].bytes(self.rows);
        if slot.bytes == bytes { Ok(()) } else { Err(CheckError::Size(*slot)) }
    }

    fn write(&mut self, tensor: TensorId, slot: Slot) -> Result<(), CheckError> {
        self.forget(tensor);
        self.clear(slot)?;
        self.place(tensor, slot);
        Ok(())
    }

    /// Forgets the values in a buffer; none of them may be one that outlives the step.
    fn clear(&mut self, slot: Slot) -> Result<(), CheckError> {
        let (from, to) = (slot.offset.0, slot.end().0);
        let before = self.arena.range(..from).next_back().map(|(start, _)| *start);
        let inside = self.arena.range(from..to).map(|(start, _)| *start);
        let hit: Vec<u64> = before.into_iter().chain(inside).collect();
        for start in hit {
            if from < to && from < self.arena[&start].0 {
                let (_, tensors) = self.arena.remove(&start).expect("the key was just found");
                for tensor in tensors {
                    if self.problem.graph.tensors[tensor.0].kind.is_persistent() {
                        return Err(CheckError::Destroys(tensor));
                    }
                    self.slots[tensor.0] = None;
                }
            }
        }
        Ok(())
    }

    fn place(&mut self, tensor: TensorId, slot: Slot) {
        self.slots[tensor.0] = Some(slot);
        if slot.bytes != Bytes::ZERO {
            self.arena.insert(slot.offset.0, (slot.end().0, vec![tensor]));
        }
    }

    fn share(&mut self, tensor: TensorId, slot: Slot) {
        self.forget(tensor);
        self.slots[tensor.0] = Some(slot);
        if let Some((_, tensors)) = self.arena.get_mut(&slot.offset.0) {
            tensors.push(tensor);
        }
    }

    fn forget(&mut self, tensor: TensorId) {
        if let Some(slot) = self.slots[tensor.0].take()
            && let Some((_, tensors)) = self.arena.get_mut(&slot.offset.0)
        {
            tensors.retain(|known| *known != tensor);
            if tensors.is_empty() {
                self.arena.remove(&slot.offset.0);
            }
        }
    }
}

fn check_operands(
    id: NodeId,
    node: &Node,
    inputs: &[Slot],
    outputs: &[Slot],
    updates: &[Slot],
    workspace: Slot,
) -> Result<(), CheckError> {
    let writes: Vec<&Slot> = outputs.iter().chain(updates).chain([&workspace]).collect();
    for (index, write) in writes.iter().enumerate() {
        let clash = writes[..index].iter().any(|other| other.overlaps(write));
        let destroyed = inputs.iter().enumerate().any(|(input, slot)| {
            let allowed = || {
                slot == *write && node.in_place().any(|pair| pair == (index, input)) && index < outputs.len()
            };
            slot.overlaps(write) && !allowed()
        });
        if clash || destroyed {
            return Err(CheckError::Overlap(id));
        }
    }
    Ok(())
}

/// For each node, how many updates its inputs and then its updates have seen when it runs in the graph's own order.
fn versions(problem: &Problem, split: bool) -> Vec<Vec<usize>> {
    let mut seen = vec![0; problem.graph.tensors.len()];
    let mut phase = None;
    let mut all = vec![Vec::new(); problem.graph.nodes.len()];
    let mut order: Vec<usize> = (0..problem.graph.nodes.len()).collect();
    order.sort_by_key(|index| problem.graph.nodes[*index].phase);
    for index in order {
        let node = &problem.graph.nodes[index];
        if split && phase != Some(node.phase) {
            seen.fill(0);
            phase = Some(node.phase);
        }
        all[index] = node.inputs.iter().chain(&node.updates).map(|id| seen[id.0]).collect();
        for tensor in &node.updates {
            seen[tensor.0] += 1;
        }
    }
    all
}
