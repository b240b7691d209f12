//! Copies to and from the second store run beside launches: each begins as early as it can, and is waited for as late as it may be.
//!
//! Nothing stands elsewhere by it, and nothing is taken but the time for which bytes lie free anyway:
//!
//! ```text
//! before   make A   read A   copy A out   write over A   …   write over B        copy in to B   read B
//! after    make A   copy A out   read A   wait A   write over A   …   write over B   copy in to B   …   wait B   read B
//! ```

use memfit_ir::{Bytes, Graph, Place, Slot, Step};

/// The steps of a section with copies begun earlier and waited for.
pub fn beside_launches(graph: &Graph, mut steps: Vec<Step>) -> Vec<Step> {
    if !steps.iter().any(|step| Transfer::of(step).is_some()) {
        return steps;
    }
    for at in 0..steps.len() {
        if let Some(transfer) = Transfer::of(&steps[at]).filter(|transfer| transfer.out) {
            let first = behind_last(&steps[..at], |step| transfer.conflicts(graph, step));
            steps[first..=at].rotate_right(1);
        }
    }
    // What comes back first is needed first: the order of those that come back stays.
    let mut first = 0;
    for at in 0..steps.len() {
        if let Some(transfer) = Transfer::of(&steps[at]).filter(|transfer| !transfer.out) {
            let free = behind_last(&steps[..at], |step| transfer.conflicts(graph, step));
            first = first.max(free).max(behind_readers(graph, &steps[..at], transfer.host));
            steps[first..=at].rotate_right(1);
            first += 1;
        }
    }
    with_waits(graph, steps)
}

/// Waits before the first step that cannot run beside a copy, at the latest at the section's end.
fn with_waits(graph: &Graph, steps: Vec<Step>) -> Vec<Step> {
    let mut under_way: Vec<Transfer> = Vec::new();
    let mut all = Vec::with_capacity(steps.len());
    for step in steps {
        under_way.retain(|transfer| {
            let ends = transfer.conflicts(graph, &step);
            if ends {
                all.push(Step::Wait(transfer.arena));
            }
            !ends
        });
        under_way.extend(Transfer::of(&step));
        all.push(step);
    }
    all.extend(under_way.iter().map(|transfer| Step::Wait(transfer.arena)));
    all
}

/// A copy between a stretch of the arena and one of the second store.
#[derive(Clone, Copy)]
struct Transfer {
    arena: Slot,
    host: Slot,
    out: bool,
}

impl Transfer {
    fn of(step: &Step) -> Option<Transfer> {
        match step {
            Step::Copy { from: Place::Arena(arena), to: Place::Host(host) } => {
                Some(Transfer { arena: *arena, host: *host, out: true })
            }
            Step::Copy { from: Place::Host(host), to: Place::Arena(arena) } => {
                Some(Transfer { arena: *arena, host: *host, out: false })
            }
            Step::Copy { .. } | Step::Launch { .. } | Step::Wait(_) => None,
        }
    }

    /// Whether a step writes what the copy reads, or touches what it writes.
    fn conflicts(&self, graph: &Graph, step: &Step) -> bool {
        let in_store = |other: Transfer| (self.out || other.out) && shares(&self.host, &other.host);
        touches(graph, step, &self.arena, self.out) || Transfer::of(step).is_some_and(in_store)
    }
}

/// Whether a step has to do with bytes of the arena, or writes them.
fn touches(graph: &Graph, step: &Step, slot: &Slot, written: bool) -> bool {
    match step {
        Step::Launch { node, args, workspace, .. } => {
            let read = if written { graph.nodes[node.0].inputs.len() } else { 0 };
            args[read..].iter().chain([workspace]).any(|other| shares(slot, other))
        }
        Step::Copy { from: Place::Arena(other), .. } => !written && shares(slot, other),
        Step::Copy { to: Place::Arena(other), .. } => shares(slot, other),
        Step::Copy { .. } | Step::Wait(_) => false,
    }
}

/// The first place that is behind every reader of what was copied out to a stretch of the store: they read it where it stood.
fn behind_readers(graph: &Graph, steps: &[Step], host: Slot) -> usize {
    let is_source = |step: &Step| Transfer::of(step).is_some_and(|known| known.out && known.host == host);
    let Some(out) = steps.iter().rposition(is_source) else { return 0 };
    let Some(Transfer { arena, .. }) = Transfer::of(&steps[out]) else { return 0 };
    let mut last = out;
    for (at, step) in steps.iter().enumerate().skip(out + 1) {
        if touches(graph, step, &arena, false) {
            last = at;
        }
        if touches(graph, step, &arena, true) {
            break;
        }
    }
    last + 1
}

/// One past the last step of which something holds.
fn behind_last(steps: &[Step], holds: impl Fn(&Step) -> bool) -> usize {
    steps.iter().rposition(holds).map_or(0, |last| last + 1)
}

/// Whether two stretches have a byte in common.
fn shares(one: &Slot, other: &Slot) -> bool {
    one.bytes != Bytes::ZERO && other.bytes != Bytes::ZERO && one.overlaps(other)
}
