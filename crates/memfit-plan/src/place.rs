//! Placing: offsets for every buffer, and the plan that follows from them.

use memfit_ir::{ALIGNMENT, Bytes, Place, Plan, Slot, Step, TensorId};
use memfit_pack::{Effort, Item, bound, bytes_of_search, pack};

use crate::figures::{CostTables, persistent_tensors};
use crate::schedule::{Event, Schedule};
use crate::storage::{Storage, Within};
use crate::transfers;
use crate::ways::{self, Level};

/// Placements the packer may try beyond its greedy orders, where these miss the bound.
const SEARCH_NODES: u64 = 5_000;

/// With more buffers than this, only greedy orders are tried.
const SEARCH_ITEMS: usize = 6_000;

/// What a search for a lower packing may hold whatever is packed. Beyond it, it may hold as much as the arena that it packs, which is taken
/// when the search is over.
const SEARCH_BYTES: u64 = 2 << 20;

/// How hard the packer tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Greedy orders alone: for the many plans that are only compared.
    Quick,
    /// A search beyond them where they miss the bound: for a plan that is to run.
    Well,
}

/// The plan of a schedule over micro-batches of `rows`, whose launches reach to a level.
pub fn place(figures: &CostTables, schedule: &Schedule, packing: Packing, level: Level) -> Plan {
    let (problem, graph, rows) = (figures.problem, figures.graph(), figures.rows);
    let mut storage = Storage::new(figures, schedule);
    ways::spend(figures, schedule, &mut storage, level);
    let items = storage.items();
    let base = figures.persistent_bytes;
    let effort = match packing {
        Packing::Well if items.len() <= SEARCH_ITEMS => {
            Effort::nodes(SEARCH_NODES).holding(bytes_to_search(base, &items))
        }
        Packing::Well | Packing::Quick => Effort::GREEDY,
    };
    let packing = pack(&items, effort);

    let mut fixed: Vec<Option<Slot>> = vec![None; graph.tensors.len()];
    let mut next = Bytes::ZERO;
    let mut persistent = Vec::new();
    for id in persistent_tensors(graph) {
        let slot = Slot { offset: next, bytes: figures.bytes[id.0] };
        next = (next + slot.bytes).align_up(ALIGNMENT);
        fixed[id.0] = Some(slot);
        persistent.push((id, slot));
    }
    let offset = |buffer: usize| base + Bytes(packing.offsets[buffer]);
    let slot = |id: TensorId, within: Within| match within.index() {
        Some(buffer) => Slot { offset: offset(buffer), bytes: figures.bytes[id.0] },
        None => fixed[id.0].expect("what has no stretch is persistent"),
    };
    let host_items: Vec<Item> = storage
        .host
        .iter()
        .map(|buffer| Item::new(buffer.lower, buffer.upper, buffer.bytes.0).aligned(ALIGNMENT))
        .collect();
    let host = pack(&host_items, Effort::GREEDY);
    // A value that is copied: where it stands in the arena, and where in offload memory.
    let copied = |time: usize, tensor: TensorId| {
        let buffer =
            storage.host_of[time].index().expect("what is copied has its stretch of the second store");
        let outside = Slot { offset: Bytes(host.offsets[buffer]), bytes: storage.host[buffer].bytes };
        (Place::Arena(slot(tensor, storage.operands(time)[0])), Place::Host(outside))
    };
    let step = |time: usize| match &schedule.events[time] {
        Event::Out(tensor) => {
            let (from, to) = copied(time, *tensor);
            Step::Copy { from, to }
        }
        Event::In(tensor) => {
            let (to, from) = copied(time, *tensor);
            Step::Copy { from, to }
        }
        Event::Feed(tensor) => {
            let to = Place::Arena(slot(*tensor, storage.operands(time)[0]));
            Step::Copy { from: Place::Feed(*tensor), to }
        }
        Event::Launch { node, fresh } => {
            let operands = &graph.nodes[node.0];
            let tensors = operands.inputs.iter().chain(&operands.outputs).chain(&operands.updates);
            let args = tensors.zip(storage.operands(time)).map(|(id, buffer)| slot(*id, *buffer)).collect();
            let workspace = match storage.workspace[time].index() {
                Some(buffer) => Slot { offset: offset(buffer), bytes: storage.transient[buffer].bytes },
                None => Slot { offset: Bytes::ZERO, bytes: Bytes::ZERO },
            };
            Step::Launch { node: *node, args, workspace, fresh: *fresh }
        }
    };
    let nanos = |step: &Step| match step {
        Step::Launch { node, .. } => figures.nanos[node.0],
        Step::Copy { from: Place::Host(slot), .. } | Step::Copy { to: Place::Host(slot), .. } => {
            slot.bytes.0 as f64 * problem.transfers.nanos_per_byte_moved
        }
        Step::Copy { .. } | Step::Wait(_) => 0.0,
    };
    let steps =
        |range: std::ops::Range<usize>| transfers::beside_launches(graph, range.map(step).collect(), nanos);
    let kept = graph.keep.iter().map(|id| (*id, slot(*id, storage.last[id.0]))).collect();
    let mut plan = Plan {
        batch: problem.batch.max(rows),
        micro_batch: rows,
        rewrites: graph.rewrites.clone(),
        bytes_peak: Bytes::ZERO,
        bytes_bound: Bytes::ZERO,
        bytes_host: Bytes(host.height),
        persistent,
        kept,
        ahead: None,
        prologue: steps(0..schedule.body),
        body: steps(schedule.body..schedule.epilogue),
        epilogue: steps(schedule.epilogue..schedule.events.len()),
    };
    plan.bytes_peak = peak(&plan);
    // Alignment may round the last buffer of the bound beyond the last byte that is used.
    plan.bytes_bound = (base + Bytes(packing.bound)).min(plan.bytes_peak);
    plan
}

/// What a search may hold.
fn bytes_to_search(base: Bytes, items: &[Item]) -> u64 {
    SEARCH_BYTES.max(base.0 + bound(items))
}

/// Heap that packing a schedule well holds at the most, besides what packing it quickly does.
pub fn bytes_of_packing_well(figures: &CostTables, schedule: &Schedule, level: Level) -> u64 {
    let mut storage = Storage::new(figures, schedule);
    ways::spend(figures, schedule, &mut storage, level);
    let items = storage.items();
    let bytes = if SEARCH_ITEMS < items.len() { 0 } else { bytes_of_search(&items) };
    // A part beyond what may be held is not searched, and others hold no more than may be held.
    bytes.min(bytes_to_search(figures.persistent_bytes, &items))
}

fn peak(plan: &Plan) -> Bytes {
    let persistent = plan.persistent.iter().map(|(_, slot)| *slot);
    let steps = plan.steps().flat_map(|step| match step {
        Step::Launch { args, workspace, .. } => {
            args.iter().copied().chain([*workspace]).collect::<Vec<Slot>>()
        }
        Step::Copy { from, to } => [from, to]
            .into_iter()
            .filter_map(|place| match place {
                Place::Arena(slot) => Some(*slot),
                Place::Feed(_) | Place::Host(_) => None,
            })
            .collect(),
        Step::Wait(_) => Vec::new(),
    });
    persistent
        .chain(steps)
        .filter(|slot| slot.bytes != Bytes::ZERO)
        .map(|slot| slot.end())
        .max()
        .unwrap_or(Bytes::ZERO)
}
