//! Adafactor: of the squares, means over rows and over columns are kept, and no matrix of them.

use std::ops::Range;
use std::sync::atomic::AtomicBool;

use memfit_ir::Operand::{State, Weight};
use memfit_ir::UpdateRule;

use super::super::lanes::Lanes;
use super::look::Look;
use super::rules::Before;
use crate::operands::{Operands, Workspace};
use crate::sums::{self, Part, sum, sum_parts};
use crate::tasks::{self, BLOCK, Cut, Tasks, blocks};
use crate::threads::Shared;
use memfit_device::found_inf::{FoundInf, is_finite, magnitude};

/// Doubles of workspace that `update` needs: partial sums, and a mean for each matrix of the weight.
pub(super) fn workspace(dims: &[usize]) -> usize {
    sums::PARTS_WORKSPACE + Matrices::of(dims).map_or(0, |matrices| matrices.count)
}

/// A weight as matrices of its last two axes.
#[derive(Clone, Copy)]
struct Matrices {
    count: usize,
    rows: usize,
    columns: usize,
}

impl Matrices {
    fn of(dims: &[usize]) -> Option<Matrices> {
        let [outer @ .., rows, columns] = dims else { return None };
        Some(Matrices { count: outer.iter().product(), rows: *rows, columns: *columns })
    }
}

/// Changes a weight and its means. Nothing is written where a mean would not be finite, and no row of the
/// weight that would not be; says whether anything was.
pub(super) fn update(
    operands: &Operands,
    rule: &UpdateRule,
    iteration: u64,
    before: &Before,
    gradient: &[f32],
    weight: &mut [f32],
) -> bool {
    let dims = &operands.shape(Weight).dims;
    let second: &mut [f32] = operands.update_if_given((State, 1)).unwrap_or_default();
    let states = [operands.update(State), second];
    let mut workspace = operands.workspace();
    let [partials, means] = take_doubles(&mut workspace, dims);
    let whole = Whole { operands, rule, iteration, before, dims, gradient };
    let Some((steps, factor)) = whole.moved(weight, states, partials, means) else { return false };
    let cut = Cut::items(steps.lines(weight.len()), steps.width());
    let found_inf = operands.found_inf();
    let apply = Apply { cut, steps: &steps, weight: Shared::new(weight), factor, found_inf };
    tasks::run(operands.threads, cut.count(), &apply);
    true
}

/// Floats of workspace beside those of the update for a check: means that are moved and not written.
pub(super) fn check_floats(rule: &UpdateRule, dims: &[usize]) -> usize {
    match rule {
        UpdateRule::Adafactor { .. } => {
            rule.state(dims).iter().map(|(_, dims)| dims.iter().product::<usize>()).sum()
        }
        UpdateRule::Lamb { .. }
        | UpdateRule::Sgd { .. }
        | UpdateRule::Adam { .. }
        | UpdateRule::Rmsprop { .. }
        | UpdateRule::Adagrad { .. }
        | UpdateRule::Adadelta { .. }
        | UpdateRule::Adamax { .. }
        | UpdateRule::Nadam { .. }
        | UpdateRule::Ftrl { .. }
        | UpdateRule::Lion { .. } => 0,
    }
}

/// Whether an update would write nothing that is not finite.
#[expect(clippy::too_many_arguments, reason = "an update's operands as they are")]
pub(super) fn would_update(
    operands: &Operands,
    rule: &UpdateRule,
    iteration: u64,
    before: &Before,
    dims: &[usize],
    gradient: &[f32],
    weight: &[f32],
    states: [&[f32]; 2],
) -> bool {
    let mut workspace = operands.workspace();
    let [partials, means] = take_doubles(&mut workspace, dims);
    let whole = Whole { operands, rule, iteration, before, dims, gradient };
    let moved = states.map(|state| {
        let copy = workspace.take_floats(state.len());
        copy.copy_from_slice(state);
        copy
    });
    let Some((steps, factor)) = whole.moved(weight, moved, partials, means) else { return false };
    let (lines, look) = (steps.lines(weight.len()), Unwritten { steps: &steps, weight, factor });
    sum_parts(operands.threads, lines, steps.width(), &look, partials) == 0.0
}

fn take_doubles<'a>(workspace: &mut Workspace<'a>, dims: &[usize]) -> [&'a mut [f64]; 2] {
    let matrices = Matrices::of(dims).map_or(0, |matrices| matrices.count);
    [sums::PARTS_WORKSPACE, matrices].map(|count| workspace.take_doubles(count))
}

/// A weight's gradient and the rule for it.
struct Whole<'a> {
    operands: &'a Operands<'a>,
    rule: &'a UpdateRule,
    iteration: u64,
    before: &'a Before,
    dims: &'a [usize],
    gradient: &'a [f32],
}

impl<'a> Whole<'a> {
    /// Moves the means; returns steps and what they are multiplied by, or nothing where a mean would not be
    /// finite: then none is moved.
    fn moved<'b>(
        &self,
        weight: &[f32],
        [first, second]: [&'b mut [f32]; 2],
        partials: &mut [f64],
        means: &'b mut [f64],
    ) -> Option<(Steps<'b>, f32)>
    where
        'a: 'b,
    {
        let UpdateRule::Adafactor { beta_2_decay, epsilon_1, epsilon_2, clip_threshold, .. } = *self.rule
        else {
            unreachable!("only Adafactor comes here");
        };
        let (threads, gradient, before) = (self.operands.threads, self.gradient, self.before);
        let step = self.iteration as f64 + 1.0;
        let new_share = step.powf(f64::from(beta_2_decay)) as f32;
        let squares = Squares { gradient, before, epsilon: epsilon_1, new_share };
        let root_mean = |squares: f64| (squares / gradient.len() as f64).sqrt();
        let looked = Look { weight, gradient, before, found_inf: AtomicBool::new(false) };
        let size = root_mean(sum_parts(threads, weight.len(), 1, &looked, partials));
        if looked.found_inf.into_inner() {
            return None;
        }
        let rate = f64::from(self.operands.context.learning_rate).min(1.0 / step.sqrt());
        let alpha = size.max(f64::from(epsilon_2)) * rate;
        let scale = |steps: f64| (alpha / 1.0f64.max(root_mean(steps) / f64::from(clip_threshold))) as f32;
        let (sizes, total) = if let Some(matrices) = Matrices::of(self.dims) {
            move_means(self.operands, matrices, &squares, first, second, means);
            let steps = Steps {
                gradient,
                before,
                sizes: Sizes::Matrices { matrices, rows: first, columns: second, means },
            };
            let lines = matrices.count * matrices.rows;
            let total = sum_parts(threads, lines, matrices.columns, &steps, partials);
            (steps.sizes, total)
        } else {
            let velocity = Shared::new(first);
            let moved = Vector { squares: &squares, velocity: &velocity };
            let total = sum_parts(threads, gradient.len(), 1, &moved, partials);
            (Sizes::Vector(first), total)
        };
        Some((Steps { gradient, before, sizes }, scale(total)))
    }
}

/// The squares of a gradient, and the share of them that is new in a mean.
struct Squares<'a> {
    gradient: &'a [f32],
    before: &'a Before,
    epsilon: f32,
    new_share: f32,
}

impl Squares<'_> {
    #[inline(always)]
    fn at(&self, index: usize) -> f32 {
        let g = self.before.gradient(self.gradient[index]);
        g * g + self.epsilon
    }

    #[inline(always)]
    fn moved(&self, mean: f32, new: f32) -> f32 {
        (1.0 - self.new_share) * mean + self.new_share * new
    }
}

/// Moves the means over rows and columns, and takes the mean of each matrix's rows.
fn move_means(
    operands: &Operands,
    matrices: Matrices,
    squares: &Squares<'_>,
    rows: &mut [f32],
    columns: &mut [f32],
    means: &mut [f64],
) {
    let cut = Cut::items(rows.len(), matrices.columns);
    let by_rows = Rows { cut, matrices, squares, rows: Shared::new(rows) };
    tasks::run(operands.threads, cut.count(), &by_rows);
    let cut = Cut::items(columns.len(), matrices.rows);
    let by_columns = Columns { cut, matrices, squares, columns: Shared::new(columns) };
    tasks::run(operands.threads, cut.count(), &by_columns);
    for (mean, rows) in means.iter_mut().zip(rows.chunks_exact(matrices.rows.max(1))) {
        *mean = sum(rows, |row| row) / rows.len() as f64;
    }
}

struct Rows<'a> {
    cut: Cut,
    matrices: Matrices,
    squares: &'a Squares<'a>,
    rows: Shared<'a, f32>,
}

impl Tasks for Rows<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let range = self.cut.range(task);
        // SAFETY: ranges do not overlap, and every range belongs to one task.
        let rows = unsafe { self.rows.slice(range.clone()) };
        let width = self.matrices.columns;
        for (mean, row) in rows.iter_mut().zip(range) {
            let total: f64 = (row * width..(row + 1) * width).map(|at| f64::from(self.squares.at(at))).sum();
            *mean = self.squares.moved(*mean, (total / width as f64) as f32);
        }
    }
}

struct Columns<'a> {
    cut: Cut,
    matrices: Matrices,
    squares: &'a Squares<'a>,
    columns: Shared<'a, f32>,
}

impl Tasks for Columns<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let Matrices { rows, columns: width, .. } = self.matrices;
        let mut range = self.cut.range(task);
        while range.start < range.end {
            // Columns of one matrix, which are neighbours in each of its rows.
            let matrix = range.start / width;
            let end = range.end.min((matrix + 1) * width);
            for block in blocks(range.start..end) {
                let mut sums = [0.0; BLOCK];
                for row in 0..rows {
                    let first = (matrix * rows + row) * width + block.start - matrix * width;
                    for (sum, at) in sums[..block.len()].iter_mut().zip(first..) {
                        *sum += f64::from(self.squares.at(at));
                    }
                }
                // SAFETY: blocks do not overlap, and every block belongs to one task.
                let means = unsafe { self.columns.slice(block.clone()) };
                for (mean, sum) in means.iter_mut().zip(&sums) {
                    *mean = self.squares.moved(*mean, (sum / rows as f64) as f32);
                }
            }
            range.start = end;
        }
    }
}

/// Steps of a weight, line by line, before they are cut to size.
struct Steps<'a> {
    gradient: &'a [f32],
    before: &'a Before,
    sizes: Sizes<'a>,
}

/// What gradients are divided by.
enum Sizes<'a> {
    /// A line is a row of a matrix: roots of its share and of the columns.
    Matrices { matrices: Matrices, rows: &'a [f32], columns: &'a [f32], means: &'a [f64] },
    /// A line is a block of a weight without columns: the roots of its own means.
    Vector(&'a [f32]),
}

impl Steps<'_> {
    /// Elements of a line; the last one may have fewer.
    fn width(&self) -> usize {
        match &self.sizes {
            Sizes::Matrices { matrices, .. } => matrices.columns,
            Sizes::Vector(_) => BLOCK,
        }
    }

    /// Lines of this number of elements.
    fn lines(&self, elements: usize) -> usize {
        elements.div_ceil(self.width().max(1))
    }

    /// Where a line stands.
    #[inline(always)]
    fn range(&self, line: usize) -> Range<usize> {
        let width = self.width();
        line * width..self.gradient.len().min((line + 1) * width)
    }

    /// The steps of a line.
    #[inline(always)]
    fn line(&self, line: usize) -> impl Iterator<Item = f32> + '_ {
        let range = self.range(line);
        let (share, sizes) = match &self.sizes {
            Sizes::Matrices { matrices, rows, columns, means } => {
                let (matrix, width) = (line / matrices.rows, matrices.columns);
                // Roots first: where a row and a column have next to no gradient, the product of their
                // squares has no place among floats.
                let share = (f64::from(rows[line]) / means[matrix]).sqrt() as f32;
                (share, &columns[matrix * width..(matrix + 1) * width])
            }
            Sizes::Vector(velocity) => (1.0, &velocity[range.clone()]),
        };
        let gradient = self.gradient[range].iter();
        gradient.zip(sizes).map(move |(g, size)| step(self.before.gradient(*g), share * size.sqrt()))
    }
}

/// A gradient over its size. No gradient is no step, whatever its size.
#[inline(always)]
fn step(g: f32, size: f32) -> f32 {
    if g == 0.0 { 0.0 } else { g / size }
}

impl Part for Steps<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        range.flat_map(|line| self.line(line)).map(|step| f64::from(step) * f64::from(step)).sum()
    }
}

struct Apply<'a> {
    cut: Cut,
    steps: &'a Steps<'a>,
    weight: Shared<'a, f32>,
    factor: f32,
    found_inf: &'a FoundInf,
}

impl Tasks for Apply<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        for line in self.cut.range(task) {
            // SAFETY: every line belongs to one task.
            let weight = unsafe { self.weight.slice(self.steps.range(line)) };
            let next = |w: f32, step: f32| self.steps.before.weight(w) - self.factor * step;
            let pairs = weight.iter().zip(self.steps.line(line));
            let most = pairs.fold(0, |most, (w, step)| most.max(magnitude(next(*w, step))));
            if !is_finite(most) {
                self.found_inf.raise_with_state(weight.len());
                continue;
            }
            for (w, step) in weight.iter_mut().zip(self.steps.line(line)) {
                *w = next(*w, step);
            }
        }
    }
}

/// How many lines of new weights are not finite.
struct Unwritten<'a> {
    steps: &'a Steps<'a>,
    weight: &'a [f32],
    factor: f32,
}

impl Part for Unwritten<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        let mut bad = 0.0;
        for line in range {
            let pairs = self.weight[self.steps.range(line)].iter().zip(self.steps.line(line));
            let next = |w: f32, step: f32| self.steps.before.weight(w) - self.factor * step;
            let most = pairs.fold(0, |most, (w, step)| most.max(magnitude(next(*w, step))));
            bad += f64::from(u8::from(!is_finite(most)));
        }
        bad
    }
}

/// A weight without columns has a mean for each element.
struct Vector<'a> {
    squares: &'a Squares<'a>,
    velocity: &'a Shared<'a, f32>,
}

impl Part for Vector<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        // SAFETY: ranges do not overlap, and every range belongs to one part.
        let velocity = unsafe { self.velocity.slice(range.clone()) };
        let mut total = 0.0;
        for (v, at) in velocity.iter_mut().zip(range) {
            *v = self.squares.moved(*v, self.squares.at(at));
            let step = f64::from(step(self.squares.before.gradient(self.squares.gradient[at]), v.sqrt()));
            total += step * step;
        }
        total
    }
}
