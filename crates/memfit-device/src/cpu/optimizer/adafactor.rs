//! Adafactor: of the squares, means over rows and over columns are kept, and no matrix of them.

use std::ops::Range;

use memfit_ir::UpdateRule;

use super::super::lanes::Lanes;
use super::rules::Before;
use crate::cpu::operands::Operands;
use crate::cpu::sums::{self, Part, sum, sum_parts};
use crate::cpu::tasks::{self, BLOCK, Cut, Tasks, blocks};
use crate::cpu::threads::Shared;

/// Doubles of workspace that `update` wants: partial sums, and a mean for each matrix of the weight.
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

/// Changes a weight and its means.
pub(super) fn update(
    operands: &Operands,
    rule: &UpdateRule,
    iteration: u64,
    before: &Before,
    gradient: &[f32],
    weight: &mut [f32],
) {
    let UpdateRule::Adafactor { beta_2_decay, epsilon_1, epsilon_2, clip_threshold, .. } = *rule else {
        unreachable!("only Adafactor comes here");
    };
    let step = iteration as f64 + 1.0;
    let fresh = step.powf(f64::from(beta_2_decay)) as f32;
    let squares = Squares { gradient, before, epsilon: epsilon_1, fresh };
    let threads = operands.threads;
    let mut workspace = operands.workspace();
    let partials = workspace.take_doubles(sums::PARTS_WORKSPACE);
    let root_mean = |squares: f64| (squares / gradient.len() as f64).sqrt();
    let size = root_mean(sum_parts(threads, weight.len(), 1, &Weights { weight, before }, partials));
    let rate = f64::from(operands.context.learning_rate).min(1.0 / step.sqrt());
    let alpha = size.max(f64::from(epsilon_2)) * rate;
    let dims = &operands.update_shape(0).dims;
    let scale = |steps: f64| (alpha / 1.0f64.max(root_mean(steps) / f64::from(clip_threshold))) as f32;
    if let Some(matrices) = Matrices::of(dims) {
        let (rows, columns) = (operands.update(1), operands.update(2));
        let means = workspace.take_doubles(matrices.count);
        move_means(operands, matrices, &squares, rows, columns, means);
        let steps = Steps { matrices, gradient, before, rows, columns, means };
        let factor =
            scale(sum_parts(threads, matrices.count * matrices.rows, matrices.columns, &steps, partials));
        let cut = Cut::items(matrices.count * matrices.rows, matrices.columns);
        let apply = Apply { cut, steps: &steps, weight: Shared::new(weight), factor };
        tasks::run(threads, cut.count(), &apply);
    } else {
        let velocity = Shared::new(operands.update(1));
        let moved = Vector { squares: &squares, velocity: &velocity };
        let factor = scale(sum_parts(threads, gradient.len(), 1, &moved, partials));
        let cut = Cut::items(gradient.len(), 1);
        let apply =
            ApplyVector { cut, squares: &squares, velocity: &velocity, weight: Shared::new(weight), factor };
        tasks::run(threads, cut.count(), &apply);
    }
}

struct Weights<'a> {
    weight: &'a [f32],
    before: &'a Before,
}

impl Part for Weights<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        sum(&self.weight[range], |w| {
            let w = f64::from(self.before.weight(w as f32));
            w * w
        })
    }
}

/// The squares of a gradient, and the share of them that is new in a mean.
struct Squares<'a> {
    gradient: &'a [f32],
    before: &'a Before,
    epsilon: f32,
    fresh: f32,
}

impl Squares<'_> {
    #[inline(always)]
    fn at(&self, index: usize) -> f32 {
        let g = self.before.gradient(self.gradient[index]);
        g * g + self.epsilon
    }

    #[inline(always)]
    fn moved(&self, mean: f32, new: f32) -> f32 {
        (1.0 - self.fresh) * mean + self.fresh * new
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

/// Steps of a weight with rows and columns, before they are cut to size.
struct Steps<'a> {
    matrices: Matrices,
    gradient: &'a [f32],
    before: &'a Before,
    rows: &'a [f32],
    columns: &'a [f32],
    means: &'a [f64],
}

impl Steps<'_> {
    /// The steps of one row of one matrix.
    #[inline(always)]
    fn row(&self, row: usize) -> impl Iterator<Item = f32> + '_ {
        let (matrix, width) = (row / self.matrices.rows, self.matrices.columns);
        let share = (f64::from(self.rows[row]) / self.means[matrix]) as f32;
        let columns = &self.columns[matrix * width..(matrix + 1) * width];
        let gradient = &self.gradient[row * width..(row + 1) * width];
        gradient
            .iter()
            .zip(columns)
            .map(move |(g, column)| self.before.gradient(*g) / (share * column).sqrt())
    }
}

impl Part for Steps<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        range.flat_map(|row| self.row(row)).map(|step| f64::from(step) * f64::from(step)).sum()
    }
}

struct Apply<'a> {
    cut: Cut,
    steps: &'a Steps<'a>,
    weight: Shared<'a, f32>,
    factor: f32,
}

impl Tasks for Apply<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let width = self.steps.matrices.columns;
        for row in self.cut.range(task) {
            // SAFETY: every row belongs to one task.
            let weight = unsafe { self.weight.slice(row * width..(row + 1) * width) };
            for (w, step) in weight.iter_mut().zip(self.steps.row(row)) {
                *w = self.steps.before.weight(*w) - self.factor * step;
            }
        }
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
            let step = f64::from(self.squares.before.gradient(self.squares.gradient[at]) / v.sqrt());
            total += step * step;
        }
        total
    }
}

struct ApplyVector<'a> {
    cut: Cut,
    squares: &'a Squares<'a>,
    velocity: &'a Shared<'a, f32>,
    weight: Shared<'a, f32>,
    factor: f32,
}

impl Tasks for ApplyVector<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let range = self.cut.range(task);
        // SAFETY: ranges do not overlap, and every range belongs to one task.
        let (weight, velocity) =
            unsafe { (self.weight.slice(range.clone()), self.velocity.slice(range.clone())) };
        let before = self.squares.before;
        for ((w, v), g) in weight.iter_mut().zip(velocity).zip(&self.squares.gradient[range]) {
            *w = before.weight(*w) - self.factor * (before.gradient(*g) / v.sqrt());
        }
    }
}
