//! The choice: of all schedules the moves can make, the fastest whose packed peak fits.
//!
//! What can be chosen from does not depend on the budget, and the fastest that fits is taken. So a larger budget, which
//! leaves more to choose from, never gives a slower plan.

use std::sync::atomic::{AtomicUsize, Ordering};

use memfit_ir::{Bytes, Plan, Problem};

use crate::figures::CostTables;
use crate::moves::recompute::{Direction, Effort, Heuristic, Point, first_within, least_nanos, path};
use crate::moves::region::Candidates;
use crate::moves::reorder::reorder;
use crate::moves::split;
use crate::moves::{fuse_producer, fuse_update};
use crate::place::{Packing, bytes_of_packing_well, place};
use crate::schedule::{Schedule, in_pieces, whole};
use crate::storage::Storage;
use crate::ways::{FASTEST, LEAST, Level, Variant, spend, variants};
use crate::{pinned, seconds, solved};

/// In graphs of more nodes, recomputing is tried for the largest and the smallest micro-batches only.
const NODES_FOR_EVERY_SIZE: usize = 4_000;

/// In smaller graphs all paths take milliseconds, and threads of their own would only take memory.
const NODES_SIDE_BY_SIDE: usize = 200;

/// In graphs of more nodes, the path by measured costs is searched with the first heuristic alone.
const SEVERAL_TASTES: usize = 1_200;

/// The heuristics of the search paths. One begins with the chain of blocks. The other begins with the gaps
/// that it finds itself: for graphs that are no chain, and for what a chain cannot express.
const TASTES: [Heuristic; 2] = [
    Heuristic { shortest_gap: 12, careful: false, chained: true },
    Heuristic { shortest_gap: 2, careful: true, chained: false },
];

/// Everything the moves can make of a problem.
pub struct Choices<'a> {
    problem: &'a Problem,
    sizes: Vec<Size<'a>>,
}

/// All schedules over micro-batches of one size.
struct Size<'a> {
    figures: CostTables<'a>,
    /// The first with nothing computed twice.
    points: Vec<Point>,
    /// The peak and time of each with other workspaces.
    variants: Vec<Vec<Variant>>,
    /// Whether its points may decide what fits at all.
    may_decide: bool,
    /// Whether each does: those on a downward path by estimates, so that it depends neither on a clock nor on
    /// how many schedules were tried.
    decides: Vec<bool>,
    /// Time of a whole step without recomputing.
    nanos: f64,
    /// How the others are found.
    walks: Vec<Walk>,
}

/// One schedule.
#[derive(Clone, Copy)]
struct Choice {
    size: usize,
    point: usize,
    level: Level,
    nanos: f64,
    /// No packing is lower.
    bound: Bytes,
    decides: bool,
}

/// The fastest plan that fits the budget.
pub fn fastest(problem: &Problem) -> Option<Plan> {
    let problem = &*pinned::restricted(problem);
    unsplit(problem, &|_| true).or_else(|| {
        let candidates = Candidates::of(problem);
        let choices = Choices::new(&candidates, Direction::DownAndUp);
        let smallest = choices.smallest();
        choices.fastest(&smallest, &|_| true)
    })
}

/// The whole batch with nothing computed twice, the fastest plan there is, where it fits and may be held:
/// with fused updates, which is faster, or else without.
pub fn unsplit(problem: &Problem, may_hold: &dyn Fn(&Plan) -> bool) -> Option<Plan> {
    let rewritten = fuse_update::fused(problem);
    let plan = rewritten.as_ref().and_then(|fused| unsplit_as_it_is(fused, may_hold));
    plan.or_else(|| unsplit_as_it_is(problem, may_hold))
}

fn unsplit_as_it_is(problem: &Problem, may_hold: &dyn Fn(&Plan) -> bool) -> Option<Plan> {
    if !problem.pinned.allows_rows(problem.batch) || !problem.pinned.allows_region(problem.graph.region()) {
        return None;
    }
    let figures = CostTables::new(problem, problem.batch);
    let schedule = schedule(&figures);
    // Far above the budget, packing well would be in vain.
    if problem.budget.arena() < bound(&figures, live_fastest(&figures, &schedule)) {
        return None;
    }
    Some(place(&figures, &schedule, Packing::Well, FASTEST))
        .filter(|plan| fits(problem, plan) && may_hold(plan))
}

/// The first plan that is found to fit, in a fraction of the time: the largest micro-batches that fit with
/// nothing computed twice, or the result of large strides of recomputing. None does not mean that no other
/// plan fits.
pub fn first(problem: &Problem) -> Option<Plan> {
    let problem = &*pinned::restricted(problem);
    if !problem.pinned.allows_region(None) {
        return None;
    }
    unsplit(problem, &|_| true).or_else(|| {
        let micro_batches = if split::may_split(problem) { split::pieces(problem.batch) } else { Vec::new() };
        let all = || std::iter::once(problem.batch).chain(micro_batches.iter().copied());
        let sizes = || all().filter(|rows| problem.pinned.allows_rows(*rows));
        let in_room = |rows: usize, recomputes: bool| {
            let figures = CostTables::new(problem, rows);
            let whole = schedule(&figures);
            let room = problem.budget.arena().saturating_sub(figures.persistent_bytes).0;
            let found = if recomputes { first_within(&figures, &whole, room)? } else { whole };
            Some(place(&figures, &found, Packing::Quick, LEAST)).filter(|plan| fits(problem, plan))
        };
        let split_alone = || sizes().find_map(|rows| in_room(rows, false));
        split_alone().or_else(|| sizes().find_map(|rows| in_room(rows, true)))
    })
}

/// Most live bytes of a schedule in which every launch has the workspace of its fastest algorithm.
fn live_fastest(figures: &CostTables, schedule: &Schedule) -> u64 {
    let mut storage = Storage::new(figures, schedule);
    spend(figures, schedule, &mut storage, FASTEST);
    storage.live()
}

/// No packing of this many live bytes is lower.
fn bound(figures: &CostTables, live: u64) -> Bytes {
    figures.persistent_bytes + Bytes(live.saturating_sub(memfit_ir::ALIGNMENT))
}

fn fits(problem: &Problem, plan: &Plan) -> bool {
    problem.budget.arena_for(plan.bytes_peak) <= problem.budget.arena()
        && plan.bytes_host <= problem.budget.host
}

/// The plan with the lowest peak, whatever the budget.
pub fn smallest(problem: &Problem) -> Plan {
    smallest_measured(problem, &Gauge::NONE).0
}

/// The same, with the heap that was held at the most to find it: the same bytes in every run, whatever threads did when.
pub fn smallest_measured(problem: &Problem, gauge: &Gauge) -> (Plan, u64) {
    let problem = &*pinned::restricted(problem);
    let (before, mut candidates, mut choices, mut lowest, mut beside) = ((gauge.here)(), None, None, None, 0);
    let most = (gauge.most)(&mut || candidates = Some(Candidates::of(problem)));
    let candidates = candidates.expect("the work was done");
    let left = ((gauge.here)() - before).max(0) as u64;
    let most_choosing = (gauge.most)(&mut || {
        let all = choices.insert(Choices::measured(&candidates, Direction::Down, gauge, &mut beside));
        lowest = Some(all.lowest());
    });
    let (choices, (choice, plan)) = choices.zip(lowest).expect("the work was done");
    let (figures, schedule) = choices.taken(&choice);
    let left_packing = ((gauge.here)() - before).max(0) as u64;
    // The packer's search runs on threads and throws work away as these meet: what it may hold is known, and not measured.
    let searched = if plan.bytes_peak == plan.bytes_bound {
        0
    } else {
        bytes_of_packing_well(&figures, &schedule, choice.level)
    };
    let mut quick = None;
    let most_placing =
        (gauge.most)(&mut || quick = Some(place(&figures, &schedule, Packing::Quick, choice.level)));
    drop(quick);
    let most = most.max(left + most_choosing + beside).max(left_packing + most_placing + searched);
    (packed_well(&figures, &schedule, choice.level, plan), most)
}

/// Reads how much heap a thread holds, in a program that counts it.
#[derive(Clone, Copy)]
pub struct Gauge {
    /// Does some work and says how much more heap this thread held at the most while it did.
    pub most: fn(&mut dyn FnMut()) -> u64,
    /// Heap that this thread took less what it freed.
    pub here: fn() -> i64,
}

impl Gauge {
    /// For programs that do not count their heap.
    pub const NONE: Gauge = Gauge {
        most: |work| {
            work();
            0
        },
        here: || 0,
    };
}

/// Plans from the fastest to the smallest, each at least a hundredth smaller than the one before it: what a budget can buy.
pub fn curve(problem: &Problem) -> Vec<Plan> {
    let problem = &*pinned::restricted(problem);
    Choices::new(&Candidates::of(problem), Direction::DownAndUp).curve()
}

/// How many threads planning a problem takes at the most, those of the packer included.
pub fn threads(problem: &Problem) -> usize {
    const PACKER: usize = 2;
    match problem.graph.nodes.len() < NODES_SIDE_BY_SIDE {
        true => PACKER,
        false => PACKER + std::thread::available_parallelism().map_or(1, |count| count.get()),
    }
}

/// Whether a graph is too large to search a path for every micro-batch size.
pub fn is_large(problem: &Problem) -> bool {
    NODES_FOR_EVERY_SIZE < problem.graph.nodes.len()
}

impl<'a> Choices<'a> {
    /// Goes down every path once.
    pub fn new(candidates: &'a Candidates<'a>, way: Direction) -> Choices<'a> {
        Choices::measured(candidates, way, &Gauge::NONE, &mut 0)
    }

    /// The same; `beside` is the heap that threads of its own held at the most.
    fn measured(
        candidates: &'a Candidates<'a>,
        way: Direction,
        gauge: &Gauge,
        beside: &mut u64,
    ) -> Choices<'a> {
        let mut sizes: Vec<Size> =
            candidates.members().flat_map(|(problem, may_decide)| sizes(problem, may_decide, way)).collect();
        let paths: Vec<(&Size, &Walk)> =
            sizes.iter().flat_map(|size| size.walks.iter().map(move |walk| (size, walk))).collect();
        let alone = candidates.problem.graph.nodes.len() < NODES_SIDE_BY_SIDE;
        let walked = |(size, walk): (&Size, &Walk)| {
            let (before, mut points) = ((gauge.here)(), Vec::new());
            let most = (gauge.most)(&mut || points = size.walk(walk));
            (points, most, (gauge.here)() - before)
        };
        let (found, threads) = side_by_side(&paths, alone, walked);
        if 1 < threads {
            // At the worst, the walks that take the most meet, and all others have left what they leave.
            let left = |of: &(Vec<Point>, u64, i64)| of.2.max(0) as u64;
            let mut passing: Vec<u64> = found.iter().map(|of| of.1.saturating_sub(left(of))).collect();
            passing.sort_unstable_by(|a, b| b.cmp(a));
            *beside = found.iter().map(left).sum::<u64>() + passing.iter().take(threads).sum::<u64>();
        }
        let mut found = found.into_iter();
        for size in &mut sizes {
            let found: Vec<Vec<Point>> =
                found.by_ref().take(size.walks.len()).map(|(points, ..)| points).collect();
            size.join(found);
        }
        let high = sizes.iter().map(|size| live_fastest(&size.figures, &size.points[0].schedule)).max();
        for size in &mut sizes {
            let variants = |at: &Point| variants(&size.figures, &at.schedule, at.live, high.unwrap_or(0));
            size.variants = size.points.iter().map(variants).collect();
        }
        Choices { problem: candidates.problem, sizes }
    }

    /// The fastest plan that fits the budget and may be held; none below the smallest plan, even if what was measured led lower.
    pub fn fastest(self, smallest: &Plan, may_hold: &dyn Fn(&Plan) -> bool) -> Option<Plan> {
        let arena = self.problem.budget.arena();
        let fits = |plan: &Plan| fits(self.problem, plan) && may_hold(plan);
        if !fits(smallest) {
            return None;
        }
        let mut all = self.all();
        all.sort_by(|a, b| a.nanos.total_cmp(&b.nanos).then(b.size.cmp(&a.size)));
        let low = all.iter().filter(|choice| choice.bound <= arena);
        let found = low.map(|choice| (choice, self.place(choice))).find(|(_, plan)| fits(plan));
        let time = |plan: &Plan| seconds(self.problem, plan);
        Some(match found {
            // The smallest is packed well; it may be the only one that fits, or the fastest.
            Some((choice, plan)) if time(&plan) <= time(smallest) => {
                let (choice, (figures, schedule)) = (*choice, self.taken(choice));
                packed_well(&figures, &schedule, choice.level, plan)
            }
            Some(_) | None => smallest.clone(),
        })
    }

    /// The plan with the lowest peak, whatever the budget.
    pub fn smallest(&self) -> Plan {
        let (choice, plan) = self.lowest();
        let size = &self.sizes[choice.size];
        packed_well(&size.figures, &size.points[choice.point].schedule, choice.level, plan)
    }

    /// The choice with the lowest peak as greedy orders pack it, whatever the budget.
    fn lowest(&self) -> (Choice, Plan) {
        let mut all = self.all();
        all.retain(|choice| choice.decides);
        all.sort_by(|a, b| a.bound.cmp(&b.bound).then(a.nanos.total_cmp(&b.nanos)));
        let mut lowest: Option<(Choice, Plan)> = None;
        for choice in all {
            if lowest.as_ref().is_some_and(|(_, plan)| plan.bytes_peak < choice.bound) {
                break;
            }
            let plan = self.place(&choice);
            if plan.bytes_host <= self.problem.budget.host
                && lowest.as_ref().is_none_or(|(_, lowest)| plan.bytes_peak < lowest.bytes_peak)
            {
                lowest = Some((choice, plan));
            }
        }
        lowest.expect("there is the whole batch, or what is pinned")
    }

    /// The schedule of a choice. All others are dropped, since packing it well takes memory itself.
    fn taken(mut self, choice: &Choice) -> (CostTables<'a>, Schedule) {
        let Size { figures, mut points, .. } = self.sizes.swap_remove(choice.size);
        (figures, points.swap_remove(choice.point).schedule)
    }

    /// Plans from the fastest to the smallest, each at least a hundredth smaller than the one before it.
    pub fn curve(&self) -> Vec<Plan> {
        let mut all = self.all();
        all.sort_by(|a, b| a.nanos.total_cmp(&b.nanos).then(b.size.cmp(&a.size)));
        let smaller = |bytes: Bytes, last: &Plan| bytes.0 + last.bytes_peak.0 / 100 < last.bytes_peak.0;
        let mut curve: Vec<Plan> = Vec::new();
        for choice in all {
            if curve.last().is_none_or(|last| smaller(choice.bound, last)) {
                let plan = self.place(&choice);
                if plan.bytes_host <= self.problem.budget.host
                    && curve.last().is_none_or(|last| smaller(plan.bytes_peak, last))
                {
                    curve.push(plan);
                }
            }
        }
        let smallest = self.smallest();
        let time = seconds(self.problem, &smallest);
        curve.retain(|plan| smallest.bytes_peak <= plan.bytes_peak && seconds(self.problem, plan) <= time);
        if curve.last().is_none_or(|last| smallest.bytes_peak < last.bytes_peak) {
            curve.push(smallest);
        }
        curve
    }

    fn all(&self) -> Vec<Choice> {
        let mut all = Vec::new();
        for (index, size) in self.sizes.iter().enumerate() {
            let micro_batches = self.problem.batch.div_ceil(size.figures.rows) as f64;
            for (point, (at, variants)) in size.points.iter().zip(&size.variants).enumerate() {
                // What fits at all is decided by the least workspaces, which no clock has a part in.
                let least = variants.first().map(|variant| variant.level);
                all.extend(variants.iter().map(|Variant { level, live, nanos }| Choice {
                    size: index,
                    point,
                    level: *level,
                    nanos: size.nanos + (at.nanos - size.points[0].nanos) * micro_batches + nanos,
                    decides: size.decides[point] && Some(*level) == least,
                    bound: bound(&size.figures, *live),
                }));
            }
        }
        all
    }

    fn place(&self, choice: &Choice) -> Plan {
        let size = &self.sizes[choice.size];
        place(&size.figures, &size.points[choice.point].schedule, Packing::Quick, choice.level)
    }
}

/// The same plan with more effort spent on packing it, where greedy orders missed the bound.
fn packed_well(figures: &CostTables, schedule: &Schedule, level: Level, plan: Plan) -> Plan {
    if plan.bytes_peak == plan.bytes_bound {
        return plan;
    }
    let well = place(figures, schedule, Packing::Well, level);
    if well.bytes_peak < plan.bytes_peak { well } else { plan }
}

/// One path to go down.
#[derive(Clone, Copy)]
struct Walk {
    heuristic: Heuristic,
    /// By what was measured, or by estimates.
    measured: bool,
    way: Direction,
}

/// The micro-batch sizes that are tried for one problem, with the paths that are to be searched.
fn sizes(problem: &Problem, may_decide: bool, way: Direction) -> Vec<Size<'_>> {
    let mut sizes = vec![problem.batch];
    if split::may_split(problem) {
        sizes.extend(split::pieces(problem.batch));
    }
    if let Some(rows) = problem.pinned.micro_batch {
        sizes = vec![rows];
    }
    let last = sizes.len() - 1;
    let large = is_large(problem);
    // One problem of several has its time for one path.
    let one_path = large || !problem.graph.rewrites.is_empty();
    let measured = problem.costs.iter().any(|cost| cost.measured.is_some());
    let walks = |index: usize, rows: usize| {
        // Between the powers of two, splitting alone is dense enough.
        let micro_batches = problem.batch.div_ceil(rows);
        // Of a large batch, a few sizes are enough.
        let is_round = match problem.batch <= split::EVERY_NUMBER {
            true => micro_batches.is_power_of_two(),
            false => index.is_multiple_of((sizes.len() / 8).max(1)),
        };
        let recomputes = index == 0 || index == last || (!large && is_round);
        let heuristics = match (recomputes, one_path) {
            (false, _) => &TASTES[..0],
            (true, true) => &TASTES[..1],
            (true, false) => &TASTES[..],
        };
        // Estimates decide how low one can go; measurements, where there are some, decide what is fast.
        let estimated = |heuristic: &Heuristic| Walk {
            heuristic: *heuristic,
            measured: false,
            way: if measured { Direction::Down } else { way },
        };
        let again = |heuristic: &Heuristic| Walk { heuristic: *heuristic, measured: true, way };
        let count = match (measured, way) {
            (false, _) | (true, Direction::Down) => 0,
            (true, Direction::DownAndUp) if SEVERAL_TASTES < problem.graph.nodes.len() => 1,
            (true, Direction::DownAndUp) => heuristics.len(),
        };
        if !may_decide {
            let walk = |heuristic: &Heuristic| Walk { heuristic: *heuristic, measured, way };
            return heuristics.iter().filter(|_| way == Direction::DownAndUp).map(walk).collect();
        }
        heuristics.iter().map(estimated).chain(heuristics.iter().take(count).map(again)).collect()
    };
    let size = |(index, rows): (usize, &usize)| Size::new(problem, *rows, may_decide, walks(index, *rows));
    sizes.iter().enumerate().map(size).collect()
}

impl<'a> Size<'a> {
    /// Micro-batches of `rows` rows with nothing computed twice.
    fn new(problem: &'a Problem, rows: usize, may_decide: bool, walks: Vec<Walk>) -> Size<'a> {
        let figures = CostTables::new(problem, rows);
        let schedule = schedule(&figures);
        let live = Storage::new(&figures, &schedule).live();
        let nanos_each = figures.nanos_of_piece(&schedule);
        let nanos = nanos_of_step(problem, &schedule, rows);
        let points = vec![Point { schedule, live, nanos: nanos_each, way: Direction::Down }];
        let (variants, decides) = (Vec::new(), vec![may_decide]);
        Size { figures, points, variants, may_decide, decides, nanos, walks }
    }

    /// What one path leads to.
    fn walk(&self, walk: &Walk) -> Vec<Point> {
        let CostTables { problem, rows, .. } = self.figures;
        let schedule = &self.points[0].schedule;
        let effort = match problem.graph.region() {
            None => Effort::of(schedule.events.len()),
            Some(_) => Effort::of_many(schedule.events.len()),
        };
        if walk.measured {
            return path(&self.figures, schedule, walk.heuristic, effort, walk.way);
        }
        let mut points =
            path(&CostTables::estimated(problem, rows), schedule, walk.heuristic, effort, walk.way);
        for point in &mut points {
            point.nanos = self.figures.nanos_of_piece(&point.schedule);
        }
        points
    }

    /// Takes in what the paths led to, which came in their order.
    fn join(&mut self, found: Vec<Vec<Point>>) {
        for (walk, points) in self.walks.iter().zip(found) {
            let estimated = !walk.measured && self.may_decide;
            self.decides.extend(points.iter().map(|point| estimated && point.way == Direction::Down));
            self.points.extend(points);
        }
    }
}

/// Does all work on threads of its own, one for each processor, and says on how many; the results stand in the order of the work. Alone,
/// and where no thread can be started, the caller does it.
fn side_by_side<W: Copy + Sync, R: Send>(
    work: &[W],
    alone: bool,
    body: impl Fn(W) -> R + Sync,
) -> (Vec<R>, usize) {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get()).min(work.len());
    if alone || threads < 2 {
        return (work.iter().map(|work| body(*work)).collect(), 1);
    }
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        while let Some((index, work)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|index| Some((index, work.get(index)?)))
        {
            done.push((index, body(*work)));
        }
        done
    };
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, worker).ok();
        let others: Vec<_> = (0..threads).filter_map(start).collect();
        let mut done = if others.is_empty() { worker() } else { Vec::new() };
        for other in others {
            match other.join() {
                Ok(theirs) => done.extend(theirs),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_by_key(|(index, _)| *index);
    (done.into_iter().map(|(_, result)| result).collect(), threads)
}

/// No plan with micro-batches of the same size and the same order is faster and as small: its least time in
/// seconds.
pub fn least_seconds(problem: &Problem, plan: &Plan) -> f64 {
    let own = least_seconds_of(&solved(problem, plan), plan);
    // What readers recompute may be kept or recomputed by its own node as well; then the order may be another.
    let recomputes = plan.producers_fused().next().is_some();
    let own = if recomputes { own.min(least_seconds_of(problem, plan)) } else { own };
    let in_one_piece = plan.micro_batch == problem.batch && plan.region().is_none();
    match fuse_update::fused(problem).filter(|_| in_one_piece && plan.updates_fused().next().is_none()) {
        Some(fused) => own.min(least_seconds_of(&fused, plan)),
        None => own,
    }
}

/// The same for plans of one graph, whose producers may all be fused yet.
fn least_seconds_of(problem: &Problem, plan: &Plan) -> f64 {
    let figures = CostTables::new(problem, plan.micro_batch);
    let schedule = schedule(&figures);
    let room = plan.bytes_peak.align_up(memfit_ir::ALIGNMENT).saturating_sub(figures.persistent_bytes).0;
    // The last micro-batch may be smaller, and costs at least its share.
    let micro_batches = problem.batch as f64 / plan.micro_batch as f64;
    let fused = fuse_producer::nanos(problem, plan.micro_batch);
    let extra = least_nanos(&figures, &schedule, room, &fused) * micro_batches;
    (nanos_of_step(problem, &schedule, plan.micro_batch) + extra) / 1e9
}

/// The schedule over micro-batches of `rows` with nothing computed twice.
pub fn schedule(figures: &CostTables) -> Schedule {
    let graph = figures.graph();
    let written = if figures.rows < figures.problem.batch { in_pieces(graph) } else { whole(graph) };
    reorder(figures, written)
}

/// Time of a whole step.
fn nanos_of_step(problem: &Problem, schedule: &Schedule, rows: usize) -> f64 {
    let micro_batches = problem.batch.div_ceil(rows);
    let last = problem.batch - (micro_batches - 1) * rows;
    let once = CostTables::new(problem, 0);
    let ends = schedule.events[..schedule.body].iter().chain(&schedule.events[schedule.epilogue..]);
    ends.map(|event| once.nanos_of(event)).sum::<f64>()
        + CostTables::new(problem, rows).nanos_of_piece(schedule) * (micro_batches - 1) as f64
        + CostTables::new(problem, last).nanos_of_piece(schedule)
}
