//! Layer normalisation: statistics over the last axes of every position.

use std::ops::Range;

use memfit_ir::{Norm, Shape};

use super::super::lanes::Lanes;
use super::super::operands::{Floats, Operands};
use super::super::sums::{Columns, Terms, settle, sum, sum_pairs};
use super::super::tasks::{self, BLOCK, Cut, Tasks, blocks};
use super::super::threads::Shared;
use super::{weight_gradients, weights};

/// Normalises every position, and writes its mean and inverse deviation.
pub(crate) fn forward(operands: &Operands, norm: &Norm, axes: usize) {
    let (x, y) = (operands.input_floats(0), operands.output_floats(0));
    let width = width(operands.input_shape(0), axes);
    let (gamma, beta) = weights(operands, norm, 1);
    let cut = Cut::items(x.len() / width, width);
    let (mean, inverse) = (Shared::new(operands.output(1)), Shared::new(operands.output(2)));
    let epsilon = f64::from(norm.epsilon);
    let work = Forward { cut, width, epsilon, x, gamma, beta, y, mean, inverse };
    tasks::run(operands.threads, cut.count(), &work);
}

/// Doubles of workspace that `grad` wants: two sums a weight.
pub(crate) fn grad_workspace(dy: &Shape, axes: usize) -> usize {
    Columns::workspace(width(dy, axes), 2)
}

/// The gradient through normalised values, mean and deviation; adds those of gamma and beta.
pub(crate) fn grad(operands: &Operands, norm: &Norm, axes: usize) {
    let (dy, x, dx) = (operands.input_floats(0), operands.input_floats(1), operands.output_floats(0));
    let (mean, inverse) = (operands.input(2), operands.input(3));
    let gamma = operands.input_if(norm.scale, 4);
    let (mut dgamma, mut dbeta) = weight_gradients(operands, norm);
    let width = width(operands.input_shape(0), axes);

    // Before the other gradient, which may be written over `dy` or `x`.
    if dgamma.is_some() || dbeta.is_some() {
        let workspace = operands.workspace().take_doubles(grad_workspace(operands.input_shape(0), axes));
        let terms = Products { dy, x, mean, inverse };
        Columns::plain(dy.len(), width).sum(operands.threads, &terms, workspace, |column, [sum, product]| {
            if let Some(dgamma) = &mut dgamma {
                settle(&mut dgamma[column], product, operands.fresh);
            }
            if let Some(dbeta) = &mut dbeta {
                settle(&mut dbeta[column], sum, operands.fresh);
            }
        });
    }
    let cut = Cut::items(dy.len() / width, 2 * width);
    tasks::run(operands.threads, cut.count(), &Grad { cut, width, dy, x, mean, inverse, gamma, dx });
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
        let mut buffer = [0.0; BLOCK];
        for position in self.cut.range(task) {
            let elements = position * self.width..(position + 1) * self.width;
            // SAFETY: the position belongs to this task, which writes it behind this read.
            let (mean, inverse) = self.statistics(unsafe { self.x.read(elements.clone()) });
            // SAFETY: every position belongs to one task.
            unsafe {
                self.mean.slice(position..position + 1)[0] = mean;
                self.inverse.slice(position..position + 1)[0] = inverse;
            }
            self.normalise(elements, mean, inverse, &mut buffer);
        }
    }
}

impl Forward<'_> {
    #[inline(always)]
    fn statistics(&self, x: &[f32]) -> (f32, f32) {
        let count = x.len() as f64;
        let mean = sum(x, |x| x) / count;
        let variance = sum(x, |x| (x - mean) * (x - mean)) / count;
        (mean as f32, (1.0 / (variance + self.epsilon).sqrt()) as f32)
    }

    #[inline(always)]
    fn normalise(&self, elements: Range<usize>, mean: f32, inverse: f32, buffer: &mut [f32; BLOCK]) {
        let first = elements.start;
        for block in blocks(elements) {
            let weights = block.start - first..block.end - first;
            let values = &mut buffer[..block.len()];
            // SAFETY: the position belongs to this task, and the slice that reads is gone before one writes.
            let x = unsafe { self.x.read(block.clone()) };
            values.iter_mut().zip(x).for_each(|(value, x)| *value = (x - mean) * inverse);
            if let Some(gamma) = self.gamma {
                values.iter_mut().zip(&gamma[weights.clone()]).for_each(|(value, gamma)| *value *= gamma);
            }
            if let Some(beta) = self.beta {
                values.iter_mut().zip(&beta[weights]).for_each(|(value, beta)| *value += beta);
            }
            // SAFETY: as above.
            unsafe { self.y.write(block) }.copy_from_slice(values);
        }
    }
}

struct Products<'a> {
    dy: Floats<'a>,
    x: Floats<'a>,
    mean: &'a [f32],
    inverse: &'a [f32],
}

impl Terms<2> for Products<'_> {
    #[inline(always)]
    unsafe fn terms<L: Lanes>(&self, row: usize, element: usize, _column: usize, count: usize) -> [L; 2] {
        let (mean, inverse) = (L::splat(self.mean[row]), L::splat(self.inverse[row]));
        // SAFETY: nobody writes while sums are taken.
        let (dy, x) = unsafe { (self.dy.vector::<L>(element, count), self.x.vector::<L>(element, count)) };
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
        let mut buffer = [0.0; BLOCK];
        for position in self.cut.range(task) {
            self.position(position, &mut buffer);
        }
    }
}

impl Grad<'_> {
    /// `dx = inverse (g − mean(g) − x̂ mean(g x̂))` with `g = dy gamma`.
    #[inline(always)]
    fn position(&self, position: usize, buffer: &mut [f32; BLOCK]) {
        let elements = position * self.width..(position + 1) * self.width;
        let (mean, inverse) = (self.mean[position], self.inverse[position]);
        let (center, scale) = (f64::from(mean), f64::from(inverse));
        let (mut total, mut product) = (0.0, 0.0);
        for block in blocks(elements.clone()) {
            let slopes = self.slopes(block.clone(), elements.start, buffer);
            // SAFETY, here and below: the position belongs to this task, and slices that read are gone before one writes.
            let x = unsafe { self.x.read(block) };
            total += sum(slopes, |slope| slope);
            product += sum_pairs(slopes, x, |slope, x| slope * (x - center) * scale);
        }
        let count = self.width as f64;
        let (total, product) = ((total / count) as f32, (product / count) as f32);
        for block in blocks(elements.clone()) {
            let slopes = self.slopes(block.clone(), elements.start, buffer);
            // SAFETY: as above.
            let x = unsafe { self.x.read(block.clone()) };
            for (slope, x) in slopes.iter_mut().zip(x) {
                *slope = inverse * (*slope - total - (x - mean) * inverse * product);
            }
            // SAFETY: as above.
            unsafe { self.dx.write(block) }.copy_from_slice(slopes);
        }
    }

    /// `dy gamma` for a block.
    #[inline(always)]
    fn slopes<'b>(&self, block: Range<usize>, first: usize, buffer: &'b mut [f32; BLOCK]) -> &'b mut [f32] {
        let slopes = &mut buffer[..block.len()];
        // SAFETY: the position belongs to this task, which writes the block behind this read.
        slopes.copy_from_slice(unsafe { self.dy.read(block.clone()) });
        if let Some(gamma) = self.gamma {
            let gamma = &gamma[block.start - first..block.end - first];
            slopes.iter_mut().zip(gamma).for_each(|(slope, gamma)| *slope *= gamma);
        }
        slopes
    }
}
