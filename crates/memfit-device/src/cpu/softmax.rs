//! Softmax over the last axis, and its gradient.

use std::ops::Range;

use super::maths::exp;
use super::operands::{Floats, Operands};
use super::sums::sum;
use super::tasks::{self, BLOCK, Cut, Tasks, blocks};

/// `y = eˣ / Σ eˣ`, the largest element subtracted first.
pub(crate) fn forward(operands: &Operands) {
    let (x, y) = (operands.input_floats(0), operands.output_floats(0));
    let classes = operands.input_shape(0).last().max(1);
    let cut = Cut::items(x.len() / classes, 4 * classes);
    tasks::run(operands.threads, cut.count(), &Forward { cut, classes, x, y });
}

/// `dx = y (dy − Σ dy y)`.
pub(crate) fn grad(operands: &Operands) {
    let (dy, y, dx) = (operands.input_floats(0), operands.input_floats(1), operands.output_floats(0));
    let classes = operands.input_shape(0).last().max(1);
    let cut = Cut::items(dy.len() / classes, 2 * classes);
    tasks::run(operands.threads, cut.count(), &Grad { cut, classes, dy, y, dx });
}

/// The largest element; NaN where one is.
#[inline(always)]
pub(crate) fn largest(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 16];
    let mut chunks = values.chunks_exact(16);
    for chunk in &mut chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, *value);
        }
    }
    let rest = chunks.remainder().iter().fold(f32::NEG_INFINITY, |most, value| larger(most, *value));
    lanes.iter().fold(rest, |most, value| larger(most, *value))
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b || a.is_nan() { a } else { b }
}

struct Forward<'a> {
    cut: Cut,
    classes: usize,
    x: Floats<'a>,
    y: Floats<'a>,
}

impl Tasks for Forward<'_> {
    #[inline(always)]
    fn task(&self, task: usize, _worker: usize) {
        let mut buffer = [0.0; BLOCK];
        for position in self.cut.range(task) {
            self.position(position * self.classes..(position + 1) * self.classes, &mut buffer);
        }
    }
}

impl Forward<'_> {
    #[inline(always)]
    fn position(&self, elements: Range<usize>, buffer: &mut [f32; BLOCK]) {
        // SAFETY, here and below: elements belong to one task, and a slice that reads is gone before one writes.
        let most = largest(unsafe { self.x.read(elements.clone()) });
        let mut total = 0.0;
        for block in blocks(elements.clone()) {
            let powers = &mut buffer[..block.len()];
            // SAFETY: as above.
            let x = unsafe { self.x.read(block.clone()) };
            powers.iter_mut().zip(x).for_each(|(power, x)| *power = exp(*x - most));
            total += sum(0..powers.len(), |i| f64::from(powers[i]));
            // SAFETY: as above.
            unsafe { self.y.write(block) }.copy_from_slice(powers);
        }
        let factor = (1.0 / total) as f32;
        // SAFETY: as above.
        unsafe { self.y.write(elements) }.iter_mut().for_each(|y| *y *= factor);
    }
}

struct Grad<'a> {
    cut: Cut,
    classes: usize,
    dy: Floats<'a>,
    y: Floats<'a>,
    dx: Floats<'a>,
}

impl Tasks for Grad<'_> {
    #[inline(always)]
    fn task(&self, task: usize, _worker: usize) {
        let mut buffer = [0.0; BLOCK];
        for position in self.cut.range(task) {
            self.position(position * self.classes..(position + 1) * self.classes, &mut buffer);
        }
    }
}

impl Grad<'_> {
    #[inline(always)]
    fn position(&self, elements: Range<usize>, buffer: &mut [f32; BLOCK]) {
        // SAFETY, here and below: elements belong to one task, and slices that read are gone before one writes.
        let (dy, y) = unsafe { (self.dy.read(elements.clone()), self.y.read(elements.clone())) };
        let mean = sum(0..y.len(), |i| f64::from(dy[i]) * f64::from(y[i])) as f32;
        for block in blocks(elements) {
            let slopes = &mut buffer[..block.len()];
            // SAFETY: as above.
            let (dy, y) = unsafe { (self.dy.read(block.clone()), self.y.read(block.clone())) };
            for ((slope, dy), y) in slopes.iter_mut().zip(dy).zip(y) {
                *slope = y * (dy - mean);
            }
            // SAFETY: as above.
            unsafe { self.dx.write(block) }.copy_from_slice(slopes);
        }
    }
}
