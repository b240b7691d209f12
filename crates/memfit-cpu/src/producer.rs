//! Values that are not stored: kernels make them again, a little at a time, from what is.
//!
//! The arithmetic is that of the kernels which would have stored them, element by element, so that the bits are the same.

use std::ops::Range;

use memfit_ir::Operand::X;
use memfit_ir::{Chain, Producer, Shape, Unary};

use super::batch_norm::{self, Clamp, Formula, Normalised};
use super::elementwise::unary;
use super::lanes::{Kernel, Lanes, load, store};
use super::operands::Operands;
use super::sums::Columns;

/// Values of one shape, and how others of the same shape are made of them.
pub(crate) struct Made<'a> {
    values: &'a [f32],
    /// Mean, scale and offset of every channel, each over a whole width; nothing where nothing is normalised.
    coefficients: &'a [f32],
    width: usize,
    how: How,
}

/// What is done with each value.
enum How {
    Normalised,
    Clamped(Clamp),
    NormalisedThen(Unary),
    Function(Unary),
}

/// Floats of workspace that recomputing values of a shape needs.
pub(crate) fn workspace(producer: &Producer, x: &Shape) -> usize {
    if producer.norm.is_some() { batch_norm::forward_workspace(x) } else { 0 }
}

impl<'a> Made<'a> {
    /// The values of a node whose first inputs are those of a producer; `workspace` is as large as
    /// [`workspace`] says.
    pub(crate) fn new(operands: &Operands<'a>, producer: &Producer, workspace: &'a mut [f32]) -> Made<'a> {
        let (values, channels) = (operands.input::<f32>(X), operands.shape(X).last());
        let columns = Columns::folded(values.len(), channels);
        let (coefficients, how): (&[f32], How) = match (&producer.norm, producer.function) {
            (Some(norm), function) => {
                let how = match (
                    function,
                    function.and_then(|function| batch_norm::clamp(&Chain::unary(function))),
                ) {
                    (_, Some((clamp, _))) => How::Clamped(clamp),
                    (Some(function), None) => How::NormalisedThen(function),
                    (None, None) => How::Normalised,
                };
                (batch_norm::coefficients(operands, norm, columns, workspace), how)
            }
            (None, Some(function)) => (&[], How::Function(function)),
            (None, None) => unreachable!("the shape rules ask for a producer that makes something"),
        };
        Made { values, coefficients, width: columns.width, how }
    }

    /// What they are made of.
    pub(crate) fn values(&self) -> &'a [f32] {
        self.values
    }

    /// Recomputes a range of values, the first of which stands in this column of its pixel.
    ///
    /// # Safety
    /// `to` has room for them, and no other task touches it.
    #[inline(always)]
    pub(crate) unsafe fn make<L: Lanes>(&self, range: Range<usize>, mut column: usize, mut to: *mut f32) {
        let values = &self.values[range];
        let mut at = 0;
        while at < values.len() {
            let count = (self.width - column).min(values.len() - at);
            let from = values[at..at + count].as_ptr();
            // SAFETY: the caller's promise; a function may write where it reads.
            unsafe {
                match &self.how {
                    How::Normalised => along::<L>(&Normalised, from, self.kinds(column, count), to, count),
                    How::Clamped(clamp) => along::<L>(clamp, from, self.kinds(column, count), to, count),
                    How::NormalisedThen(function) => {
                        along::<L>(&Normalised, from, self.kinds(column, count), to, count);
                        unary::<L>(*function, to, to, count);
                    }
                    How::Function(function) => unary::<L>(*function, from, to, count),
                }
            }
            at += count;
            to = to.wrapping_add(count);
            column = 0;
        }
    }

    /// Coefficients of some neighbouring columns.
    #[inline(always)]
    fn kinds(&self, column: usize, count: usize) -> [&[f32]; 3] {
        [0, 1, 2].map(|kind| &self.coefficients[kind * self.width + column..][..count])
    }
}

/// Vectors that are computed side by side.
const TOGETHER: usize = 4;

/// A formula of neighbours and of the coefficients of their channels.
///
/// # Safety
/// There are `count` values to read and room for as many, which no other task touches.
#[inline(always)]
unsafe fn along<L: Lanes>(
    formula: &impl Formula<1, 3>,
    from: *const f32,
    kinds: [&[f32]; 3],
    to: *mut f32,
    count: usize,
) {
    assert!(kinds.iter().all(|kind| kind.len() == count));
    let mut at = 0;
    while at + TOGETHER * L::COUNT <= count {
        // SAFETY: `TOGETHER` vectors are left.
        unsafe {
            block::<L, TOGETHER>(formula, from.add(at), kinds.map(|kind| kind.as_ptr().add(at)), to.add(at))
        };
        at += TOGETHER * L::COUNT;
    }
    while at < count {
        let left = L::COUNT.min(count - at);
        // SAFETY: as above.
        unsafe {
            let kinds = kinds.map(|kind| load::<L>(kind.as_ptr().add(at), left));
            store(formula.of([load::<L>(from.add(at), left)], kinds), to.add(at), left);
        }
        at += L::COUNT;
    }
}

#[inline(always)]
unsafe fn block<L: Lanes, const VECTORS: usize>(
    formula: &impl Formula<1, 3>,
    from: *const f32,
    kinds: [*const f32; 3],
    to: *mut f32,
) {
    for vector in 0..VECTORS {
        let at = vector * L::COUNT;
        // SAFETY: the caller's promise.
        unsafe {
            let kinds = kinds.map(|kind| L::load(kind.add(at)));
            formula.of([L::load(from.add(at))], kinds).store(to.add(at));
        }
    }
}

/// Makes some runs of values at a constant distance, and writes them at another.
pub(crate) struct MakeRuns<'a> {
    pub(crate) made: &'a Made<'a>,
    /// The first value, and its column.
    pub(crate) start: usize,
    pub(crate) column: usize,
    pub(crate) step: usize,
    pub(crate) runs: usize,
    pub(crate) length: usize,
    pub(crate) to: *mut f32,
    pub(crate) to_step: usize,
}

impl Kernel for MakeRuns<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Made { values, width, how, .. } = self.made;
        let end = self.start + self.runs.saturating_sub(1) * self.step + self.length;
        assert!(end <= values.len(), "runs lie inside what they are made of");
        if self.runs > 1 && self.column + self.length <= *width {
            match how {
                How::Normalised => return self.across::<L>(&Normalised),
                How::Clamped(clamp) => return self.across::<L>(clamp),
                How::NormalisedThen(_) | How::Function(_) => {}
            }
        }
        for run in 0..self.runs {
            let start = self.start + run * self.step;
            let to = self.to.wrapping_add(run * self.to_step);
            // SAFETY: the code that built this has room for all runs.
            unsafe { self.made.make::<L>(start..start + self.length, self.column, to) };
        }
    }
}

impl MakeRuns<'_> {
    /// Some columns of all runs at a time, so that their coefficients stay in registers.
    #[inline(always)]
    fn across<L: Lanes>(&self, formula: &impl Formula<1, 3>) {
        let kinds = self.made.kinds(self.column, self.length);
        let mut at = 0;
        while at + TOGETHER * L::COUNT <= self.length {
            self.columns::<L, TOGETHER>(formula, kinds, at);
            at += TOGETHER * L::COUNT;
        }
        // All that is left at once: memory is read in the order in which it lies.
        match (self.length - at) / L::COUNT {
            3 => self.columns::<L, 3>(formula, kinds, at),
            2 => self.columns::<L, 2>(formula, kinds, at),
            1 => self.columns::<L, 1>(formula, kinds, at),
            _ => {}
        }
        at = self.length - self.length % L::COUNT;
        if at < self.length {
            let left = self.length - at;
            // SAFETY: `left` values are left in every run, and there is room for as many.
            unsafe {
                let kinds = kinds.map(|kind| L::load_first(kind.as_ptr().add(at), left));
                for run in 0..self.runs {
                    let (from, to) = self.places(run, at);
                    formula.of([L::load_first(from, left)], kinds).store_first(to, left);
                }
            }
        }
    }

    #[inline(always)]
    fn columns<L: Lanes, const VECTORS: usize>(
        &self,
        formula: &impl Formula<1, 3>,
        kinds: [&[f32]; 3],
        at: usize,
    ) {
        let mut coefficients = [[L::splat(0.0); 3]; VECTORS];
        for (vector, coefficients) in coefficients.iter_mut().enumerate() {
            // SAFETY: `VECTORS` vectors of columns are left.
            *coefficients =
                kinds.map(|kind| unsafe { L::load(kind[at + vector * L::COUNT..][..L::COUNT].as_ptr()) });
        }
        for run in 0..self.runs {
            let (from, to) = self.places(run, at);
            for (vector, coefficients) in coefficients.iter().enumerate() {
                let ahead = vector * L::COUNT;
                // SAFETY: `VECTORS` vectors are left in every run, and there is room for as many.
                unsafe { formula.of([L::load(from.add(ahead))], *coefficients).store(to.add(ahead)) };
            }
        }
    }

    /// Where a value of a run is read and written.
    #[inline(always)]
    fn places(&self, run: usize, at: usize) -> (*const f32, *mut f32) {
        let from = self.made.values.as_ptr().wrapping_add(self.start + run * self.step + at);
        (from, self.to.wrapping_add(run * self.to_step + at))
    }
}
