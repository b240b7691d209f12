//! Softmax over the last axis, and its gradient.

use std::ops::Range;

use memfit_ir::Operand::{Dx, Dy, X, Y};

use super::floats::Floats;
use super::lanes::{LANES_MAX, Lanes, Mask, load, store};
use super::operands::Operands;
use super::sums::{sum, sum_pairs, total};
use super::tasks::{self, BLOCK, Cut, Tasks, blocks};
use super::vector_maths;

/// `y = eˣ / Σ eˣ`, the maximum subtracted first.
pub(crate) fn forward(operands: &Operands) {
    let (x, y) = (operands.input_floats(X), operands.output_floats(Y));
    let classes = operands.shape(X).last().max(1);
    let cut = Cut::items(x.len() / classes, 4 * classes);
    tasks::run(operands.threads, cut.count(), &Forward { cut, classes, x, y });
}

/// `dx = y (dy − Σ dy y)`.
pub(crate) fn grad(operands: &Operands) {
    let (dy, y, dx) = (operands.input_floats(Dy), operands.input_floats(Y), operands.output_floats(Dx));
    let classes = operands.shape(Dy).last().max(1);
    let cut = Cut::items(dy.len() / classes, 2 * classes);
    tasks::run(operands.threads, cut.count(), &Grad { cut, classes, dy, y, dx });
}

/// Positions in groups that are handled together: as many as a block holds, or one that takes several blocks.
#[inline(always)]
pub(crate) fn groups(positions: Range<usize>, classes: usize) -> impl Iterator<Item = Range<usize>> {
    let (end, size) = (positions.end, (BLOCK / classes).max(1));
    positions.step_by(size).map(move |start| start..end.min(start + size))
}

/// `e` to the power of every element, less the maximum of its position.
#[inline(always)]
pub(crate) fn powers<L: Lanes>(x: &[f32], classes: usize, powers: &mut [f32]) {
    for (powers, x) in powers.chunks_exact_mut(classes).zip(x.chunks_exact(classes)) {
        let max = max_of_few(x);
        powers.iter_mut().zip(x).for_each(|(power, x)| *power = x - max);
    }
    let (length, powers) = (powers.len(), powers.as_mut_ptr());
    // SAFETY: both are the same slice.
    unsafe { weighted_powers::<L>(powers, 0.0, 1.0, powers, length) };
}

/// `Σ e^(x − most)`.
#[inline(always)]
pub(crate) fn sum_powers<L: Lanes>(x: &[f32], max: f32) -> f64 {
    let mut totals = [0.0; LANES_MAX];
    let mut at = 0;
    while at < x.len() {
        let count = L::COUNT.min(x.len() - at);
        // SAFETY: `count` elements are left, and there is room for every vector.
        unsafe {
            let power = vector_maths::exp(load::<L>(x.as_ptr().add(at), count).sub(L::splat(max)));
            let power = if count == L::COUNT { power } else { power.keep(Mask::of((1 << count) - 1)) };
            power.add_to(totals.as_mut_ptr());
        }
        at += L::COUNT;
    }
    total(totals)
}

/// Writes `factor e^(x − most)`.
///
/// # Safety
/// Both have `length` elements, and may stand at the same place.
#[inline(always)]
pub(crate) unsafe fn weighted_powers<L: Lanes>(
    x: *const f32,
    max: f32,
    factor: f32,
    to: *mut f32,
    length: usize,
) {
    let mut at = 0;
    while at < length {
        let count = L::COUNT.min(length - at);
        // SAFETY: `count` elements are left.
        unsafe {
            let power = vector_maths::exp(load::<L>(x.add(at), count).sub(L::splat(max)));
            store(power.mul(L::splat(factor)), to.add(at), count);
        }
        at += L::COUNT;
    }
}

/// Replaces every element by `e` to its power, less the maximum; returns their sum.
#[inline(always)]
pub(crate) fn powers_of<L: Lanes>(values: &mut [f32], max: f32) -> f64 {
    let (length, values) = (values.len(), values.as_mut_ptr());
    let mut totals = [0.0; LANES_MAX];
    let mut at = 0;
    while at < length {
        let count = L::COUNT.min(length - at);
        // SAFETY: `count` elements are left, and there is room for every vector.
        unsafe {
            let power = vector_maths::exp(load::<L>(values.add(at), count).sub(L::splat(max)));
            let power = if count == L::COUNT { power } else { power.keep(Mask::of((1 << count) - 1)) };
            store(power, values.add(at), count);
            power.add_to(totals.as_mut_ptr());
        }
        at += L::COUNT;
    }
    total(totals)
}

/// The maximum; NaN where an element is.
#[inline(always)]
pub(crate) fn max_of_few(values: &[f32]) -> f32 {
    let (whole, rest) = values.as_chunks::<16>();
    let mut max = rest.iter().fold(f32::NEG_INFINITY, |max, value| larger(max, *value));
    if let Some((first, others)) = whole.split_first() {
        let mut lanes = *first;
        for chunk in others {
            lanes.iter_mut().zip(chunk).for_each(|(lane, value)| *lane = larger(*lane, *value));
        }
        max = lanes.iter().fold(max, |max, value| larger(max, *value));
    }
    max
}

/// The same of many elements, in vectors.
#[inline(always)]
pub(crate) fn max_of<L: Lanes>(values: &[f32]) -> f32 {
    let lowest = L::splat(f32::NEG_INFINITY);
    // Two, so that one comparison need not wait for the last.
    let mut max = [lowest; 2];
    let mut at = 0;
    while at < values.len() {
        for max in &mut max {
            let count = L::COUNT.min(values.len().saturating_sub(at));
            // SAFETY: `count` elements are left.
            let value = unsafe { load::<L>(values.as_ptr().wrapping_add(at), count) };
            let value =
                if count == L::COUNT { value } else { lowest.or_where(Mask::of((1 << count) - 1), value) };
            *max = max.or_where(value.beats(*max), value);
            at += L::COUNT;
        }
    }
    let mut lanes = [f32::NEG_INFINITY; 2 * LANES_MAX];
    // SAFETY: there is room for two vectors.
    unsafe {
        max[0].store(lanes.as_mut_ptr());
        max[1].store(lanes.as_mut_ptr().add(LANES_MAX));
    }
    lanes.iter().fold(f32::NEG_INFINITY, |max, value| larger(max, *value))
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
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let mut buffer = [0.0; BLOCK];
        for group in groups(self.cut.range(task), self.classes) {
            let elements = group.start * self.classes..group.end * self.classes;
            match elements.len() <= BLOCK {
                true => self.group::<L>(elements, &mut buffer),
                false => self.position::<L>(elements),
            }
        }
    }
}

impl Forward<'_> {
    /// Several positions that fill at most one block.
    #[inline(always)]
    fn group<L: Lanes>(&self, elements: Range<usize>, buffer: &mut [f32; BLOCK]) {
        let values = &mut buffer[..elements.len()];
        // SAFETY: elements belong to one task, and the slice that reads is gone before one writes.
        powers::<L>(unsafe { self.x.read(elements.clone()) }, self.classes, values);
        for position in values.chunks_exact_mut(self.classes) {
            let factor = (1.0 / sum(position, |power| power)) as f32;
            position.iter_mut().for_each(|value| *value *= factor);
        }
        // SAFETY: as above.
        unsafe { self.y.write(elements) }.copy_from_slice(values);
    }

    /// One position that is longer than a block.
    #[inline(always)]
    fn position<L: Lanes>(&self, elements: Range<usize>) {
        // SAFETY: elements belong to one task, and the slice that reads is gone before one writes.
        let x = unsafe { self.x.read(elements.clone()) };
        let max = max_of::<L>(x);
        let factor = (1.0 / sum_powers::<L>(x, max)) as f32;
        let (x, y) = (self.x.place(&elements), self.y.place(&elements));
        // SAFETY: as above; both have these elements.
        unsafe { weighted_powers::<L>(x, max, factor, y, elements.len()) };
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
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let mut buffer = [0.0; BLOCK];
        for position in self.cut.range(task) {
            self.position(position * self.classes..(position + 1) * self.classes, &mut buffer);
        }
    }
}

impl Grad<'_> {
    #[inline(always)]
    fn position(&self, elements: Range<usize>, buffer: &mut [f32; BLOCK]) {
        // SAFETY, here and below: elements belong to one task, and slices that read are gone before one
        // writes.
        let (dy, y) = unsafe { (self.dy.read(elements.clone()), self.y.read(elements.clone())) };
        let mean = sum_pairs(dy, y, |dy, y| dy * y) as f32;
        for block in blocks(elements) {
            let dx = &mut buffer[..block.len()];
            // SAFETY: as above.
            let (dy, y) = unsafe { (self.dy.read(block.clone()), self.y.read(block.clone())) };
            for ((dx, dy), y) in dx.iter_mut().zip(dy).zip(y) {
                *dx = y * (dy - mean);
            }
            // SAFETY: as above.
            unsafe { self.dx.write(block) }.copy_from_slice(dx);
        }
    }
}
