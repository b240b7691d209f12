//! Blocks: what a segment may give up, solved once for all segments that are the same, and a whole network put together from that.

use memfit_ir::TensorId;

use crate::figures::CostTables;
use crate::moves::recompute::chain::{Link, Ways, fastest};
use crate::moves::recompute::rewrite::{Rewrite, without_waits};
use crate::moves::recompute::segments::{Segment, Segments, Waiting};
use crate::schedule::Schedule;
use crate::storage::Storage;

/// A chain of fewer segments has nothing to choose from.
const FEWEST_SEGMENTS: usize = 4;

/// In segments of up to this many values, every subset of values to give up is tried; in longer ones, one
/// value after the other.
const EVERYTHING: usize = 9;

/// The most values of a segment that are considered.
const MOST_WAITS: usize = 64;

/// The most options of a segment that the chain chooses from.
const MOST_WAYS: usize = 18;

/// A chain of more segments is too long to look at what each does.
const MOST_SEGMENTS: usize = 128;

/// The resolution in bytes: the parts into which the bytes are divided.
const PARTS: usize = 112;

/// A schedule as a chain of blocks.
pub struct Blocks<'a> {
    figures: &'a CostTables<'a>,
    schedule: &'a Schedule,
    segments: Segments,
    /// What each segment may do; of those that are the same, by the first.
    ways: Vec<Vec<Direction>>,
    links: Vec<Link>,
}

/// One thing that a block may do: what it gives up, as bits of its waiting values.
#[derive(Clone, Copy)]
struct Direction {
    given: u64,
    /// Whether a value that is brought back to compute the output is kept then.
    stays: bool,
    gain: u64,
    output: u64,
    nanos: f64,
    /// Most bytes in backward, beside what stands there if nothing is given up.
    higher: i64,
}

impl<'a> Blocks<'a> {
    /// Cuts and solves; none where a schedule is no chain.
    pub fn new(figures: &'a CostTables<'a>, schedule: &'a Schedule) -> Option<Blocks<'a>> {
        let segments = Segments::new(figures, schedule)?;
        if !(FEWEST_SEGMENTS..=MOST_SEGMENTS).contains(&segments.all.len()) {
            return None;
        }
        let mut ways: Vec<Vec<Direction>> = Vec::new();
        for (index, segment) in segments.all.iter().enumerate() {
            let solved = segment.same_as < index;
            ways.push(if solved { Vec::new() } else { solve(figures, schedule, &segments, index) });
        }
        let profile = Storage::new(figures, schedule).profile();
        let highest =
            |events: &std::ops::Range<usize>| profile[events.clone()].iter().copied().max().unwrap_or(0);
        let link = |segment: &Segment| {
            let high = highest(&segment.backward);
            let way = |way: &Direction| Ways {
                gain: way.gain,
                output: way.output,
                nanos: way.nanos,
                high: high.saturating_add_signed(way.higher),
            };
            Link { high: highest(&segment.forward), ways: ways[segment.same_as].iter().map(way).collect() }
        };
        let links = segments.all.iter().map(link).collect();
        Some(Blocks { figures, schedule, segments, ways, links })
    }

    /// The fastest schedule below a limit, as far as the chain knows: which values share bytes is only known
    /// of the whole.
    pub fn below(&self, limit: u64) -> Option<Schedule> {
        let chosen = fastest(&self.links, limit, PARTS)?;
        let given_up = self
            .segments
            .all
            .iter()
            .zip(&chosen)
            .flat_map(|(segment, way)| given(segment, self.ways[segment.same_as][*way].given));
        let way = |(segment, way): (&Segment, &usize)| self.ways[segment.same_as][*way].stays;
        let stays = self.segments.all.iter().zip(&chosen).map(way).collect();
        without_waits(self.figures, &self.segments, self.schedule, given_up, stays)
    }
}

/// The values that the bits select.
fn given(segment: &Segment, bits: u64) -> impl Iterator<Item = TensorId> + '_ {
    let waits = segment.waits.iter().take(MOST_WAITS).enumerate();
    waits
        .filter(move |(index, _)| bits >> index & 1 == 1)
        .flat_map(|(_, waiting)| waiting.tensors.iter().copied())
}

/// What a segment may do, whatever the others do.
fn solve(figures: &CostTables, schedule: &Schedule, segments: &Segments, index: usize) -> Vec<Direction> {
    let mut block = Block { figures, schedule, segments, index, rewrite: Rewrite::new(figures, segments) };
    let count = segments.all[index].waits.len().min(MOST_WAITS);
    let mut ways: Vec<Direction> = Vec::new();
    if count <= EVERYTHING {
        let ways_of = |bits: u64| [block.way(bits, false), block.way(bits, true)];
        ways.extend((0..1u64 << count).flat_map(ways_of).flatten());
    } else {
        for stays in [false, true] {
            let mut last = block.way(0, stays);
            while let Some(way) = last {
                ways.push(way);
                last = block.next(way);
            }
        }
    }
    let mut ways = thinned(ways);
    let low = block.highest(0, false);
    for way in &mut ways {
        way.higher = block.highest(way.given, way.stays) as i64 - low as i64;
    }
    ways
}

/// One segment by itself.
struct Block<'a> {
    figures: &'a CostTables<'a>,
    schedule: &'a Schedule,
    segments: &'a Segments,
    index: usize,
    rewrite: Rewrite<'a>,
}

impl Block<'_> {
    /// Writes the segment's events with some values given up; says where its part in backward begins, and how many bytes came back
    /// with its output.
    fn write(&mut self, bits: u64, stays: bool) -> Option<(usize, u64)> {
        let segment = &self.segments.all[self.index];
        let rewrite = &mut self.rewrite;
        rewrite.clear(given(segment, u64::MAX));
        rewrite.give_up(given(segment, bits));
        rewrite.stays[self.index] = stays;
        for time in segment.forward.clone() {
            rewrite.write(time, &self.schedule.events[time], self.index)?;
        }
        let mut output = 0;
        if let Some(leads) = segment.output.filter(|leads| given(segment, bits).any(|given| given == *leads))
        {
            // The next segment is the first to miss it.
            rewrite.bring_for(leads, segment.backward.start, self.index + 1)?;
            let is_back = |waiting: &&Waiting| waiting.tensors.iter().any(|tensor| rewrite.is_back(*tensor));
            output = segment.waits.iter().filter(is_back).map(|waiting| waiting.bytes).sum();
        }
        let back = rewrite.events.len();
        for time in segment.backward.clone() {
            rewrite.write(time, &self.schedule.events[time], self.index)?;
        }
        Some((back, output))
    }

    fn way(&mut self, bits: u64, stays: bool) -> Option<Direction> {
        let (_, output) = self.write(bits, stays)?;
        let waits = self.segments.all[self.index].waits.iter().take(MOST_WAITS).enumerate();
        let given_up = waits.filter(|(index, _)| bits >> index & 1 == 1);
        let gain = given_up.map(|(_, waiting)| waiting.bytes).sum();
        Some(Direction { given: bits, stays, gain, output, nanos: self.rewrite.nanos, higher: 0 })
    }

    /// Besides what is given up, the value that costs the least time for its bytes.
    fn next(&mut self, before: Direction) -> Option<Direction> {
        let count = self.segments.all[self.index].waits.len().min(MOST_WAITS);
        let more = (0..count).filter(|index| before.given >> index & 1 == 0);
        let ways: Vec<Direction> =
            more.filter_map(|index| self.way(before.given | 1 << index, before.stays)).collect();
        let price = |way: &Direction| (way.nanos - before.nanos) / (way.gain - before.gain).max(1) as f64;
        ways.into_iter().min_by(|a, b| price(a).total_cmp(&price(b)))
    }

    /// Most bytes of the segment's own in backward.
    fn highest(&mut self, bits: u64, stays: bool) -> u64 {
        let Some((back, _)) = self.write(bits, stays) else { return u64::MAX };
        let events = std::mem::take(&mut self.rewrite.events);
        let schedule = Schedule { body: 0, epilogue: events.len(), events };
        let profile = Storage::new(self.figures, &schedule).profile();
        profile[back..].iter().copied().max().unwrap_or(0)
    }
}

/// The options that free more bytes than all that are as fast; of many, those that no mean of two others is
/// better than.
fn thinned(mut ways: Vec<Direction>) -> Vec<Direction> {
    let mut kept = Vec::new();
    // Keeping values is an option of its own where a value other than the output is kept.
    for (gives_output, stays) in [(false, false), (true, false), (true, true)] {
        let wanted = |way: &mut Direction| (0 < way.output) == gives_output && way.stays == stays;
        let mut some: Vec<Direction> = ways.extract_if(.., wanted).collect();
        some.sort_by(|a, b| b.gain.cmp(&a.gain).then(a.nanos.total_cmp(&b.nanos)));
        let mut least = f64::INFINITY;
        some.retain(|way| {
            let faster = way.nanos < least;
            least = least.min(way.nanos);
            faster
        });
        if MOST_WAYS / 3 < some.len() {
            some = hull(some);
        }
        kept.extend(some);
    }
    kept
}

/// The lower hull of time over bytes, of options in order, from the most bytes given up to the least.
fn hull(ways: Vec<Direction>) -> Vec<Direction> {
    let mut hull: Vec<Direction> = Vec::new();
    for way in ways {
        while let [.., a, b] = hull[..] {
            let nanos_per_byte = |from: Direction, to: Direction| {
                (from.nanos - to.nanos) / (from.gain - to.gain).max(1) as f64
            };
            if nanos_per_byte(a, b) < nanos_per_byte(b, way) {
                hull.pop()
            } else {
                break;
            };
        }
        hull.push(way);
    }
    hull
}

#[cfg(test)]
mod tests {
    use memfit_grad::{Optimizer, Training, training_graph};
    use memfit_ir::{
        Binary, Budget, Bytes, Chain, Cost, DType, Graph, Kind, Loss, LossKind, Op, Problem, Shape,
        Transfers, Unary,
    };

    use super::*;
    use crate::choose::schedule;

    /// Blocks `x + dense(relu(dense(x)))`, all but one as wide as the others.
    fn residual(blocks: usize, odd: usize) -> Problem {
        let mut graph = Graph::default();
        let layer = graph.layer("blocks");
        let mut x = graph.tensor("x", Shape::rows([64]), DType::F32, Kind::Input, layer);
        graph.inputs.push(x);
        let dense = |graph: &mut Graph, x: TensorId, units: usize| {
            let wide = graph.tensors[x.0].shape.last();
            let kind = Kind::Weight { trainable: true };
            let kernel = graph.tensor("kernel", Shape::fixed([wide, units]), DType::F32, kind, layer);
            graph.push(Op::Dense, &[x, kernel], layer).expect("shapes agree")[0]
        };
        let chain = |graph: &mut Graph, chain: Chain, inputs: &[TensorId]| {
            graph.push(Op::Elementwise(chain), inputs, layer).expect("shapes agree")[0]
        };
        for index in 0..blocks {
            let inner = dense(&mut graph, x, if index == odd { 96 } else { 128 });
            let inner = chain(&mut graph, Chain::unary(Unary::Tanh), &[inner]);
            let inner = dense(&mut graph, inner, 64);
            x = chain(&mut graph, Chain::binary(Binary::Add), &[x, inner]);
        }
        graph.outputs.push(x);
        let losses = vec![Loss { kind: LossKind::MeanSquaredError, weight: 1.0 }];
        let training = Training { losses, ..Training::new(Optimizer::sgd(0.1)) };
        let graph = training_graph(&graph, &training).expect("it has gradients");
        let budget =
            Budget { total: Bytes(1 << 40), runtime: Bytes::ZERO, granule: Bytes(1), host: Bytes::ZERO };
        // The same op costs the same wherever it stands.
        let cost = |op: &Op| Cost { nanos_fixed: 100.0 + 9.0 * op.name().len() as f64, ..Cost::default() };
        let costs = graph.nodes.iter().map(|node| cost(&node.op)).collect();
        Problem {
            costs,
            graph,
            budget,
            batch: 32,
            costs_rewritten: Default::default(),
            allow_batchnorm_split: false,
            transfers: Transfers::default(),
            pinned: memfit_ir::Pinned::default(),
        }
    }

    #[test]
    fn equal_blocks_are_solved_once_and_the_odd_one_by_itself() {
        let problem = residual(12, 5);
        let figures = CostTables::new(&problem, problem.batch);
        let schedule = schedule(&figures);
        let blocks = Blocks::new(&figures, &schedule).expect("it is a chain");
        let solved = blocks.ways.iter().filter(|ways| !ways.is_empty()).count();
        assert!(12 <= blocks.segments.all.len(), "{} segments", blocks.segments.all.len());
        // The first and the last are at the ends of the chain, and one beside the odd one may read another gradient.
        assert!((3..=6).contains(&solved), "{solved} solved");
    }

    #[test]
    fn a_chain_of_blocks_goes_far_down_and_costs_more_the_lower_it_goes() {
        let problem = residual(12, 5);
        let figures = CostTables::new(&problem, problem.batch);
        let schedule = schedule(&figures);
        let blocks = Blocks::new(&figures, &schedule).expect("it is a chain");
        let high = Storage::new(&figures, &schedule).live();
        let mut before = figures.nanos_of_piece(&schedule);
        for eighths in [7, 6, 5, 4] {
            let limit = high * eighths / 8;
            let found = blocks.below(limit).expect("half of it is little to ask");
            let live = Storage::new(&figures, &found).live();
            assert!(live <= limit, "{live} bytes below {limit}");
            let nanos = figures.nanos_of_piece(&found);
            assert!(before < nanos, "{eighths} eighths in {nanos} ns, more than that in {before}");
            before = nanos;
        }
        assert!(blocks.below(high / 64).is_none(), "nothing goes as low as that");
    }
}
