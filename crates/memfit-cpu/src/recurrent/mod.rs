//! Recurrent layers: all steps in one launch. Rows of the batch are apart, so that each thread takes some of
//! them through all steps; what the kernel's gradient sums over comes at the end, as products over many
//! steps.

mod cells;
mod forward;
mod grad;
mod weights;

use memfit_ir::{Recurrent, Shape};

use super::gemm::{self, Gemm};

pub(crate) use forward::{forward, workspace as forward_workspace};
pub(crate) use grad::{grad, workspace as grad_workspace};

/// The fewest and the most rows that a task takes through all steps.
const ROWS: [usize; 2] = [8, 32];

/// The sizes of a recurrent layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) rows: usize,
    pub(crate) steps: usize,
    pub(crate) units: usize,
    /// Floats of an input: a part for each gate.
    pub(crate) wide: usize,
    /// Floats that are kept of a step.
    pub(crate) kept: usize,
    /// Rows of a sequence's inputs: its steps, and the states to begin with.
    inputs: usize,
    /// Rows of its states: those of its steps, to begin with, and to end with.
    states: usize,
}

impl Sizes {
    /// Sizes from a layer and the shape of its states, `[steps,units]`.
    pub(crate) fn new(kind: &Recurrent, states: &Shape, rows: usize) -> Sizes {
        let (units, states) = (states.last(), states.dims[0]);
        let steps = states - kind.rows_after_states();
        let (wide, kept) = (kind.cell.gates() * units, kind.cell.kept() * units);
        Sizes { rows, steps, units, wide, kept, inputs: steps + kind.rows_after_input(), states }
    }

    /// Rows of a task: by the number of rows alone, a few tasks for a small batch.
    fn rows_at_once(&self) -> usize {
        self.rows.div_ceil(4).clamp(ROWS[0], ROWS[1])
    }

    /// The product of a step: states and kernel.
    fn product(&self, rows: usize) -> Gemm {
        Gemm { m: rows, n: self.wide, k: self.units, transpose_a: false, transpose_b: false }
    }

    /// The product of a step's gradient: gates and the kernel turned.
    fn product_back(&self, rows: usize) -> Gemm {
        Gemm { m: rows, n: self.units, k: self.wide, transpose_a: false, transpose_b: true }
    }

    /// Operations of all steps forward.
    pub(crate) fn flops(&self) -> f64 {
        2.0 * (self.rows * self.steps) as f64 * self.units as f64 * self.wide as f64
    }

    /// Floats that a product of a step needs of a task's own memory.
    fn product_workspace(&self, product: fn(&Sizes, usize) -> Gemm) -> usize {
        gemm::workspace(&product(self, self.rows_at_once()), 1)
    }
}

/// Where the steps of a sequence stand.
#[derive(Clone, Copy)]
struct Order {
    steps: usize,
    reads_backwards: bool,
    writes_backwards: bool,
}

impl Order {
    fn new(kind: &Recurrent, steps: usize) -> Order {
        let Recurrent { reads_backwards, writes_backwards, .. } = *kind;
        Order { steps, reads_backwards, writes_backwards }
    }

    /// Where the input of a step stands.
    fn read(&self, step: usize) -> usize {
        if self.reads_backwards { self.steps - 1 - step } else { step }
    }

    /// Whether a step of a row counts.
    fn counts(&self, mask: Option<&[f32]>, row: usize, step: usize) -> bool {
        mask.is_none_or(|mask| mask[row * self.steps + self.read(step)] != 0.0)
    }

    /// Where the state after a step stands, and what is kept of it.
    fn written(&self, step: usize) -> usize {
        if self.writes_backwards { self.steps - 1 - step } else { step }
    }
}
