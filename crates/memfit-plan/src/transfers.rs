//! Copies to and from offload memory run beside launches. A copy out begins as soon as its value is computed.
//! A copy in begins so early that it should be over when the value is read, if its bytes lie free. Both are
//! waited for as late as possible.
//!
//! No offset changes, and copies only use the time for which their bytes lie free:
//!
//! ```text
//! before   make A   read A   copy A out   write over A   …   last use of B   …   copy in to B   read B
//! after    make A   copy A out   read A   wait A   write over A   …   last use of B   copy in to B   …   wait B   read B
//! ```

use memfit_ir::{Bytes, Graph, Place, Slot, Step};

/// The steps of a section with copies begun earlier and waited for. `nanos` is what a step takes by itself.
pub fn beside_launches(graph: &Graph, mut steps: Vec<Step>, nanos: impl Fn(&Step) -> f64) -> Vec<Step> {
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
            // Earlier than in time is no use: what leaves would have to be there before it comes back.
            let (mut begins, mut left) = (at, nanos(&steps[at]));
            while first < begins && 0.0 < left {
                begins -= 1;
                left -= if Transfer::of(&steps[begins]).is_some() { 0.0 } else { nanos(&steps[begins]) };
            }
            steps[begins..=at].rotate_right(1);
            first = begins + 1;
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

/// A copy between a buffer of the arena and one of offload memory.
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

/// The first place after every reader of what was copied out to a buffer of offload memory: they read it in
/// the arena.
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

/// Whether two buffers have a byte in common.
fn shares(one: &Slot, other: &Slot) -> bool {
    one.bytes != Bytes::ZERO && other.bytes != Bytes::ZERO && one.overlaps(other)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use memfit_ir::{Chain, DType, Kind, NodeId, Op, Shape, Unary};

    use super::*;

    const A: Slot = Slot { offset: Bytes(0), bytes: Bytes(64) };
    const B: Slot = Slot { offset: Bytes(64), bytes: Bytes(64) };
    const C: Slot = Slot { offset: Bytes(128), bytes: Bytes(64) };
    const STORE: Slot = Slot { offset: Bytes(0), bytes: Bytes(64) };

    /// A launch that reads one slot and writes another.
    fn launch(from: Slot, to: Slot) -> Step {
        Step::Launch {
            node: NodeId(0),
            args: vec![from, to],
            workspace: Slot { bytes: Bytes::ZERO, ..A },
            fresh: false,
        }
    }

    fn out(from: Slot) -> Step {
        Step::Copy { from: Place::Arena(from), to: Place::Host(STORE) }
    }

    fn back(to: Slot) -> Step {
        Step::Copy { from: Place::Host(STORE), to: Place::Arena(to) }
    }

    /// The steps when a copy takes as long as this many launches.
    fn spread(steps: Vec<Step>, launches: f64) -> Vec<Step> {
        let mut graph = Graph::default();
        let layer = graph.layer("layer");
        let x = graph.tensor("x", Shape::fixed([16]), DType::F32, Kind::Input, layer);
        graph.push(Op::Elementwise(Chain::unary(Unary::Relu)), &[x], layer).unwrap();
        beside_launches(&graph, steps, |step| if Transfer::of(step).is_some() { launches } else { 1.0 })
    }

    #[test]
    fn copies_begin_early_and_are_waited_for_late() {
        let before = vec![
            launch(C, A),
            launch(A, C),
            out(A),
            launch(C, A),
            launch(A, B),
            launch(B, A),
            launch(A, C),
            launch(C, A),
            back(B),
            launch(B, C),
        ];
        let after = spread(before.clone(), 2.0);
        let wanted = vec![
            launch(C, A),
            out(A),
            launch(A, C),
            Step::Wait(A),
            launch(C, A),
            launch(A, B),
            launch(B, A),
            back(B),
            launch(A, C),
            launch(C, A),
            Step::Wait(B),
            launch(B, C),
        ];
        assert_eq!(after, wanted);
        // A copy that takes no time begins where it is needed, and one that takes long where its bytes lie free.
        let begins = |steps: &[Step]| steps.iter().position(|step| *step == back(B)).unwrap();
        assert_eq!([0.0, 1.0, 9.0].map(|time| begins(&spread(before.clone(), time))), [9, 8, 7]);
    }

    #[test]
    fn untouched_copies_are_waited_for_at_the_end() {
        assert_eq!(spread(vec![launch(C, A), out(A)], 1.0), [launch(C, A), out(A), Step::Wait(A)]);
        assert_eq!(spread(vec![launch(C, A)], 1.0), [launch(C, A)]);
    }
}
