//! The live bytes of a plan over its steps, and the tensors that hold them.

use std::collections::BTreeMap;

use memfit_ir::{Bytes, Graph, Kind, LayerId, Place, Plan, Problem, Slot, Step, TensorId};

/// The heads under which bytes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Weights, trained or not.
    Weights,
    /// Gradients of weights and of activations.
    Gradients,
    /// Optimizer state.
    Optimizer,
    /// Values between nodes, and the sums of losses and metrics.
    Activations,
    /// Scratch memory of a kernel.
    Workspace,
    /// Rows that were fed.
    Input,
}

impl Group {
    /// All of them, in the order they are shown.
    pub const ALL: [Group; 6] = [
        Group::Weights,
        Group::Gradients,
        Group::Optimizer,
        Group::Activations,
        Group::Workspace,
        Group::Input,
    ];

    /// The head's name.
    pub fn name(self) -> &'static str {
        match self {
            Group::Weights => "weights",
            Group::Gradients => "gradients",
            Group::Optimizer => "optimizer",
            Group::Activations => "activations",
            Group::Workspace => "workspace",
            Group::Input => "input",
        }
    }

    fn of(kind: Kind) -> Group {
        match kind {
            Kind::Weight { .. } => Group::Weights,
            Kind::Gradient | Kind::Flow => Group::Gradients,
            Kind::Optimizer => Group::Optimizer,
            Kind::Activation | Kind::Statistic => Group::Activations,
            Kind::Input => Group::Input,
        }
    }
}

/// Bytes under each head, in the order of [`Group::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held([Bytes; 6]);

impl Held {
    /// Bytes under one head.
    pub fn get(&self, group: Group) -> Bytes {
        self.0[group as usize]
    }

    /// Bytes under all heads.
    pub fn total(&self) -> Bytes {
        self.0.iter().copied().sum()
    }
}

/// One step of the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// What happens.
    pub label: String,
    /// The layer it belongs to.
    pub layer: LayerId,
    /// Live bytes.
    pub held: Held,
}

/// A buffer in use.
#[derive(Clone, Debug, PartialEq)]
pub struct Holder {
    /// The tensor's name, or whose workspace it is.
    pub name: String,
    /// The layer it belongs to.
    pub layer: LayerId,
    /// The head it is counted under.
    pub group: Group,
    /// The tensor; none where it is workspace.
    pub tensor: Option<TensorId>,
    /// Where.
    pub slot: Slot,
    /// First moment.
    pub lower: usize,
    /// One past the last moment.
    pub upper: usize,
}

/// The live bytes of one training step (one micro-batch of it, where the batch is split).
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// Prologue, one micro-batch, epilogue.
    pub moments: Vec<Moment>,
    /// Everything that holds bytes at some time.
    pub holders: Vec<Holder>,
    /// The moment with the most live bytes.
    pub peak: usize,
}

impl Timeline {
    /// What stands in the arena at the peak, largest first.
    pub fn holders_at_peak(&self) -> Vec<&Holder> {
        let mut holders: Vec<&Holder> = self
            .holders
            .iter()
            .filter(|holder| holder.lower <= self.peak && self.peak < holder.upper)
            .collect();
        holders.sort_by(|a, b| b.slot.bytes.cmp(&a.slot.bytes).then(a.slot.offset.cmp(&b.slot.offset)));
        holders
    }
}

/// The live bytes of a plan, step by step.
pub fn timeline(problem: &Problem, plan: &Plan) -> Timeline {
    let graph = &crate::solved(problem, plan).graph;
    let count = plan.steps().count();
    let mut holders = value_holders(graph, plan, count);
    for (time, step) in plan.steps().enumerate() {
        if let Step::Launch { node, workspace, .. } = step
            && workspace.bytes != Bytes::ZERO
        {
            let node = &graph.nodes[node.0];
            let name = format!("workspace of {}", node.op.name());
            let (layer, slot) = (node.layer, *workspace);
            let (group, tensor) = (Group::Workspace, None);
            holders.push(Holder { name, layer, group, tensor, slot, lower: time, upper: time + 1 });
        }
    }
    if let Some(slot) = plan.ahead {
        let (name, layer) = ("rows of the next micro-batch".to_owned(), LayerId(0));
        let (group, tensor) = (Group::Input, None);
        holders.push(Holder { name, layer, group, tensor, slot, lower: 0, upper: count });
    }
    let held = held_over_time(&holders, count);
    let moments: Vec<Moment> = plan.steps().zip(held).map(|(step, held)| moment(graph, step, held)).collect();
    let peak = (0..moments.len()).rev().max_by_key(|index| moments[*index].held.total()).unwrap_or(0);
    Timeline { moments, holders, peak }
}

fn moment(graph: &Graph, step: &Step, held: Held) -> Moment {
    match step {
        Step::Launch { node, .. } => {
            let node = &graph.nodes[node.0];
            Moment { label: node.op.name().to_owned(), layer: node.layer, held }
        }
        Step::Copy { from: Place::Feed(tensor), .. } => {
            let tensor = &graph.tensors[tensor.0];
            Moment { label: format!("feed {}", tensor.name), layer: tensor.layer, held }
        }
        Step::Copy { to: Place::Host(_), .. } => {
            Moment { label: "copy out".to_owned(), layer: LayerId(0), held }
        }
        Step::Copy { .. } => Moment { label: "copy in".to_owned(), layer: LayerId(0), held },
        Step::Wait(_) => Moment { label: "wait for a copy".to_owned(), layer: LayerId(0), held },
    }
}

/// One holder for each tensor, from its first write to its last use; where tensors share a slot, one follows the other.
fn value_holders(graph: &Graph, plan: &Plan, count: usize) -> Vec<Holder> {
    let mut lives: Vec<Vec<(Slot, usize, usize)>> = vec![Vec::new(); graph.tensors.len()];
    for (id, slot) in &plan.persistent {
        lives[id.0].push((*slot, 0, count));
    }
    // A life begins where a tensor is written whole, and lasts until it is touched for the last time.
    let mut touch = |id: TensorId, slot: Slot, time: usize, begins: bool| match lives[id.0].last_mut() {
        Some(life) if !begins || graph.tensors[id.0].kind.is_persistent() => life.2 = life.2.max(time + 1),
        _ => lives[id.0].push((slot, time, time + 1)),
    };
    // The tensor whose value stands in a slot of the arena, and of offload memory.
    let (mut now, mut out) = (BTreeMap::new(), BTreeMap::new());
    for (time, step) in plan.steps().enumerate() {
        match step {
            Step::Launch { node, args, .. } => {
                let node = &graph.nodes[node.0];
                let operands = node.inputs.iter().chain(&node.outputs).chain(&node.updates);
                let written = node.inputs.len()..node.inputs.len() + node.outputs.len();
                for (index, (id, slot)) in operands.zip(args).enumerate() {
                    now.insert(*slot, *id);
                    touch(*id, *slot, time, written.contains(&index));
                }
            }
            Step::Copy { from: Place::Feed(id), to: Place::Arena(slot) } => touch(*id, *slot, time, true),
            Step::Copy { from: Place::Arena(slot), to: Place::Host(outside) } => {
                if let Some(id) = now.get(slot).copied() {
                    out.insert(*outside, id);
                    touch(id, *slot, time, false);
                }
            }
            Step::Copy { from: Place::Host(outside), to: Place::Arena(slot) } => {
                if let Some(id) = out.get(outside).copied() {
                    now.insert(*slot, id);
                    touch(id, *slot, time, true);
                }
            }
            Step::Copy { .. } | Step::Wait(_) => {}
        }
    }
    for (id, slot) in &plan.kept {
        if count > 0 {
            touch(*id, *slot, count - 1, false);
        }
    }
    let mut holders: Vec<Holder> = lives
        .iter()
        .enumerate()
        .flat_map(|(index, lives)| lives.iter().map(move |life| (TensorId(index), *life)))
        .filter(|(_, (slot, _, _))| slot.bytes != Bytes::ZERO)
        .map(|(id, (slot, lower, upper))| {
            let tensor = &graph.tensors[id.0];
            Holder {
                name: tensor.name.clone(),
                layer: tensor.layer,
                group: Group::of(tensor.kind),
                tensor: Some(id),
                slot,
                lower,
                upper,
            }
        })
        .collect();
    holders.sort_by_key(|holder| (holder.slot.offset, holder.lower, holder.upper));
    // The event until which the buffer at an offset is taken by earlier holders.
    let mut taken = (Bytes::ZERO, 0);
    for holder in &mut holders {
        if taken.0 != holder.slot.offset {
            taken = (holder.slot.offset, 0);
        }
        holder.lower = holder.lower.max(taken.1).min(holder.upper);
        taken.1 = taken.1.max(holder.upper);
    }
    holders.retain(|holder| holder.lower < holder.upper);
    holders
}

fn held_over_time(holders: &[Holder], count: usize) -> Vec<Held> {
    let mut changes = vec![[0i64; 6]; count + 1];
    for holder in holders {
        let bytes = i64::try_from(holder.slot.bytes.0).expect("a slot is smaller than 8 EiB");
        changes[holder.lower][holder.group as usize] += bytes;
        changes[holder.upper][holder.group as usize] -= bytes;
    }
    let mut now = [0i64; 6];
    changes[..count]
        .iter()
        .map(|change| {
            for (sum, delta) in now.iter_mut().zip(change) {
                *sum += delta;
            }
            Held(now.map(|bytes| Bytes(u64::try_from(bytes).expect("what is freed was held"))))
        })
        .collect()
}
