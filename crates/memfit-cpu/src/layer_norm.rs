//! Layer normalisation: statistics over the last axes of every position.

use std::ops::Range;

use memfit_ir::Operand::{Dx, Dy, Gamma, Mean, Rstd, X, Y};
use memfit_ir::{Norm, Shape};

use super::floats::Floats;
use super::lanes::{Lanes, Mask, load, store};
use super::norm::{weight_gradients, weights};
use super::operands::Operands;
use super::sums::{Columns, Terms, add_or_overwrite, sum_row};
use super::tasks::{self, Cut, Tasks};
use super::threads::Shared;

/// Normalises every position, and writes its mean and its rstd (one over the standard deviation).
pub(crate) fn forward(operands: &Operands, norm: &Norm, axes: usize) {
    let (x, y) = (operands.input_floats(X), operands.output_floats(Y));
    let width = width(operands.shape(X), axes);
    let (gamma, beta) = weights(operands);
    let cut = Cut::items(x.len() / width, width);
    let (mean, inverse) = (Shared::new(operands.output(Mean)), Shared::new(operands.output(Rstd)));
    let epsilon = f64::from(norm.epsilon);
    let work = Forward { cut, width, epsilon, x, gamma, beta, y, mean, inverse };
    tasks::run(operands.threads, cut.count(), &work);
}

/// Doubles of workspace that `grad` needs: two sums a weight.
pub(crate) fn grad_workspace(dy: &Shape, axes: usize) -> usize {
    Columns::workspace(width(dy, axes), 2)
}

/// The gradient through normalised values, mean and deviation, which is handed back; adds those of gamma and
/// beta.
pub(crate) fn grad<'a>(operands: &Operands<'a>, norm: &Norm, axes: usize) -> &'a mut [f32] {
    let (dy, x, dx) = (operands.input_floats(Dy), operands.input_floats(X), operands.output_floats(Dx));
    let (mean, inverse) = (operands.input(Mean), operands.input(Rstd));
    let gamma = operands.input_if_given(Gamma);
    let (mut dgamma, mut dbeta) = weight_gradients(operands, norm);
    let width = width(operands.shape(Dy), axes);
    assert!(!dy.is_half() && !x.is_half(), "what is summed is of single precision");

    // Before the other gradient, which may be written over `dy` or `x`.
    if dgamma.is_some() || dbeta.is_some() {
        let workspace = operands.workspace().take_doubles(grad_workspace(operands.shape(Dy), axes));
        let terms = Products { dy, x, mean, inverse };
        Columns::plain(dy.len(), width).sum(operands.threads, &terms, workspace, |column, [sum, product]| {
            if let Some(dgamma) = &mut dgamma {
                add_or_overwrite(&mut dgamma[column], product, operands.fresh);
            }
            if let Some(dbeta) = &mut dbeta {
                add_or_overwrite(&mut dbeta[column], sum, operands.fresh);
            }
        });
    }
    let cut = Cut::items(dy.len() / width, 2 * width);
    tasks::run(operands.threads, cut.count(), &Grad { cut, width, dy, x, mean, inverse, gamma, dx });
    // SAFETY: all tasks are done, and what was read in the same place is not read again.
    unsafe { dx.write(0..dx.len()) }
}

/// Elements of a position.
fn width(shape: &Shape, axes: usize) -> usize {
    shape.dims[shape.dims.len() - axes..].iter().product::<usize>().max(1)
}

struct Forward<'a> {
    cut: Cut,
    width: usize,
    epsilon: f64,
    x: Floats<'a>,
    gamma: Option<&'a [f32]>,
    beta: Option<&'a [f32]>,
    y: Floats<'a>,
    mean: Shared<'a, f32>,
    inverse: Shared<'a, f32>,
}

impl Tasks for Forward<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        for position in self.cut.range(task) {
            let elements = position * self.width..(position + 1) * self.width;
            let (mean, inverse) = self.statistics::<L>(elements.clone());
            // SAFETY: every position belongs to one task.
            unsafe {
                self.mean.slice(position..position + 1)[0] = mean;
                self.inverse.slice(position..position + 1)[0] = inverse;
            }
            self.normalise::<L>(elements, mean, inverse);
        }
    }
}

impl Forward<'_> {
    /// One pass for both moments, about the first element, so that a mean far from 0 costs no digits.
    #[inline(always)]
    fn statistics<L: Lanes>(&self, elements: Range<usize>) -> (f32, f32) {
        let count = elements.len() as f64;
        // SAFETY: the position belongs to this task, which writes it after these reads.
        let (pivot, [sum, squares]) = unsafe {
            let pivot = self.x.read(elements.start..elements.start + 1)[0];
            (pivot, sum_row::<L, 2>(&Moments { x: self.x, pivot }, 0, elements))
        };
        let shift = sum / count;
        let variance = squares / count - shift * shift;
        // A difference of squares may fall a rounding below 0; NaN stays.
        let variance = if variance < 0.0 { 0.0 } else { variance };
        ((f64::from(pivot) + shift) as f32, (1.0 / (variance + self.epsilon).sqrt()) as f32)
    }

    #[inline(always)]
    fn normalise<L: Lanes>(&self, elements: Range<usize>, mean: f32, inverse: f32) {
        let (mean, inverse) = (L::splat(mean), L::splat(inverse));
        // SAFETY: the position belongs to this task; every vector is read before it is written.
        let (x, y) = unsafe { (self.x.read(elements.clone()).as_ptr(), self.y.write(elements).as_mut_ptr()) };
        let mut at = 0;
        while at < self.width {
            let count = L::COUNT.min(self.width - at);
            // SAFETY: `count` elements are left, and as many weights.
            unsafe {
                let mut value = load::<L>(x.add(at), count).sub(mean).mul(inverse);
                if let Some(gamma) = self.gamma {
                    value = value.mul(load(gamma.as_ptr().add(at), count));
                }
                if let Some(beta) = self.beta {
                    value = value.add(load(beta.as_ptr().add(at), count));
                }
                store(value, y.add(at), count);
            }
            at += L::COUNT;
        }
    }
}

struct Moments<'a> {
    x: Floats<'a>,
    pivot: f32,
}

impl Terms<2> for Moments<'_> {
    #[inline(always)]
    unsafe fn terms<L: Lanes>(&self, _row: usize, element: usize, _column: usize, count: usize) -> [L; 2] {
        // SAFETY: the input is not written while sums are taken.
        let distance = unsafe { self.x.vector_of::<L, false>(element, count) }.sub(L::splat(self.pivot));
        let distance = if count == L::COUNT { distance } else { distance.keep(Mask::of((1 << count) - 1)) };
        [distance, distance.mul(distance)]
    }
}

struct Products<'a> {
    dy: Floats<'a>,
    x: Floats<'a>,
    mean: &'a [f32],
    inverse: &'a [f32],
}

impl Terms<2> for Products<'_> {
    const ROWS: usize = 8;

    #[inline(always)]
    unsafe fn terms<L: Lanes>(&self, row: usize, element: usize, _column: usize, count: usize) -> [L; 2] {
        let (mean, inverse) = (L::splat(self.mean[row]), L::splat(self.inverse[row]));
        // SAFETY: the inputs are not written while sums are taken.
        let (dy, x) = unsafe {
            (self.dy.vector_of::<L, false>(element, count), self.x.vector_of::<L, false>(element, count))
        };
        [dy, dy.mul(x.sub(mean).mul(inverse))]
    }
}

struct Grad<'a> {
    cut: Cut,
    width: usize,
    dy: Floats<'a>,
    x: Floats<'a>,
    mean: &'a [f32],
    inverse: &'a [f32],
    gamma: Option<&'a [f32]>,
    dx: Floats<'a>,
}

impl Tasks for Grad<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        for position in self.cut.range(task) {
            self.position::<L>(position);
        }
    }
}

impl Grad<'_> {
    /// `dx = inverse (g − mean(g) − x̂ mean(g x̂))` with `g = dy gamma`.
    #[inline(always)]
    fn position<L: Lanes>(&self, position: usize) {
        let elements = position * self.width..(position + 1) * self.width;
        let inverse = self.inverse[position];
        // SAFETY: the position belongs to this task, which writes it after this read.
        let [total, product] = unsafe { sum_row::<L, 2>(self, position, elements.clone()) };
        let count = self.width as f64;
        // x̂ = (x − mean) inverse, once here and once in the product.
        let correction = product / count * f64::from(inverse) * f64::from(inverse);
        let (total, correction) = (L::splat((total / count) as f32), L::splat(correction as f32));
        let (mean, inverse) = (L::splat(self.mean[position]), L::splat(inverse));
        let start = elements.start;
        // SAFETY: the position belongs to this task; every vector is read before it is written.
        let dx = unsafe { self.dx.write(elements) }.as_mut_ptr();
        let mut at = 0;
        while at < self.width {
            let count = L::COUNT.min(self.width - at);
            // SAFETY: `count` elements are left.
            unsafe {
                let (gradient, distance) = self.pair(start + at, at, count, mean);
                store(gradient.sub(total).sub(distance.mul(correction)).mul(inverse), dx.add(at), count);
            }
            at += L::COUNT;
        }
    }

    /// `dy gamma` and `x − mean` of a few elements.
    ///
    /// # Safety
    /// They lie inside their tensors, and no other task writes them.
    #[inline(always)]
    unsafe fn pair<L: Lanes>(&self, element: usize, weight: usize, count: usize, mean: L) -> (L, L) {
        // SAFETY: the caller's promise; there is a weight for every element of a position.
        unsafe {
            let (dy, x) =
                (self.dy.vector_of::<L, false>(element, count), self.x.vector_of::<L, false>(element, count));
            let gradient = match self.gamma {
                Some(gamma) => dy.mul(load(gamma.as_ptr().add(weight), count)),
                None => dy,
            };
            (gradient, x.sub(mean))
        }
    }
}

impl Terms<2> for Grad<'_> {
    #[inline(always)]
    unsafe fn terms<L: Lanes>(&self, row: usize, element: usize, column: usize, count: usize) -> [L; 2] {
        // SAFETY: the caller's promise. After the last element `dy` is 0.
        let (gradient, distance) = unsafe { self.pair(element, column, count, L::splat(self.mean[row])) };
        [gradient, gradient.mul(distance)]
    }
}
