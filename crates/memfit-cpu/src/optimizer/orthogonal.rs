//! The penalty on lines of a matrix that are not at right angles: `factor · Σ |cos| / pairs` over all pairs
//! of lines.

use std::ops::Range;

use memfit_ir::Operand::Weight;
use memfit_ir::Orthogonal;

use crate::operands::Operands;
use crate::sums::{Part, sum_parts};
use crate::tasks::Cut;
use crate::threads::Shared;

/// Keras divides by no length below this.
const EPSILON: f64 = 1e-7;

/// What the lines of a matrix cost.
pub(super) fn penalty(operands: &Operands, orthogonal: Orthogonal, workspace: &mut [f64]) -> f64 {
    let lines = Lines::of(operands, orthogonal);
    let share = f64::from(orthogonal.factor) / lines.pairs();
    sum_parts(operands.threads, lines.count, lines.count * lines.length, &lines, workspace) * 0.5 * share
}

/// Adds the penalty's gradient to the gradient.
pub(super) fn add_gradient(operands: &Operands, orthogonal: Orthogonal, gradient: &mut [f32], scale: f32) {
    let lines = Lines::of(operands, orthogonal);
    let factor = f64::from(scale) * f64::from(orthogonal.factor) / lines.pairs();
    let cut = Cut::items(lines.count, lines.count * lines.length);
    let gradient = Shared::new(gradient);
    operands.threads.for_each(cut.count(), |task, _| {
        for line in cut.range(task) {
            lines.add_line_gradient(line, factor, &gradient);
        }
    });
}

/// Lines of a matrix: rows, or columns.
struct Lines<'a> {
    weight: &'a [f32],
    count: usize,
    length: usize,
    /// From one line to the next, and from one element to the next.
    next: usize,
    step: usize,
}

impl<'a> Lines<'a> {
    fn of(operands: &Operands<'a>, orthogonal: Orthogonal) -> Lines<'a> {
        let weight: &[f32] = operands.input(Weight);
        let [rows, columns] = operands.shape(Weight).dims[..] else {
            unreachable!("an orthogonal penalty is on matrices alone")
        };
        match orthogonal.by_rows {
            true => Lines { weight, count: rows, length: columns, next: columns, step: 1 },
            false => Lines { weight, count: columns, length: rows, next: 1, step: columns },
        }
    }

    fn pairs(&self) -> f64 {
        self.count as f64 * (self.count as f64 - 1.0) / 2.0
    }

    fn at(&self, line: usize, element: usize) -> usize {
        line * self.next + element * self.step
    }

    fn dot(&self, a: usize, b: usize) -> f64 {
        let product = |element| {
            f64::from(self.weight[self.at(a, element)]) * f64::from(self.weight[self.at(b, element)])
        };
        (0..self.length).map(product).sum()
    }

    /// One over the length of a line.
    fn inverse(&self, line: usize) -> f64 {
        (1.0 / self.dot(line, line).sqrt()).min(1.0 / EPSILON)
    }

    /// A line's gradient: towards right angles with all others, less what would only change its length.
    fn add_line_gradient(&self, line: usize, factor: f64, gradient: &Shared<'_, f32>) {
        let inverse = self.inverse(line);
        let add = |from: usize, weight: f64| {
            for element in 0..self.length {
                let to = self.at(line, element);
                // SAFETY: every line belongs to one task, and no two lines share an element.
                let to = unsafe { gradient.slice(to..to + 1) };
                to[0] += (weight * f64::from(self.weight[self.at(from, element)])) as f32;
            }
        };
        let mut total = 0.0;
        for other in (0..self.count).filter(|other| *other != line) {
            let of_other = self.inverse(other);
            let cosine = self.dot(line, other) * inverse * of_other;
            total += cosine.abs();
            let sign = if cosine == 0.0 { 0.0 } else { cosine.signum() };
            add(other, factor * inverse * sign * of_other);
        }
        add(line, -factor * inverse * inverse * total);
    }
}

impl Part for Lines<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        let mut total = 0.0;
        for line in range {
            for other in (0..self.count).filter(|other| *other != line) {
                total += (self.dot(line, other) * self.inverse(line) * self.inverse(other)).abs();
            }
        }
        total
    }
}
