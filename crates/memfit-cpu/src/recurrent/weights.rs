//! The gradients of a recurrent layer's own weights: states before each step, and gradients of its gates, of
//! some rows at a time, side by side in workspace, so that one product sums over all of them.

use memfit_ir::Cell;

use super::super::gemm::{self, Gemm};
use super::super::sums::add_or_overwrite;
use super::super::threads::{Shared, Threads};
use super::cells::multiply;
use super::{Order, Sizes};

/// Steps of all rows that one product sums over, unless one row has more.
const STEPS_AT_ONCE: usize = 1024;

/// Doubles for the sums of biases, floats for what is multiplied and what the product needs.
pub(super) fn workspace(cell: &Cell, sizes: &Sizes, threads: usize) -> (usize, usize) {
    let steps = rows_at_once(sizes) * sizes.steps;
    let floats = steps * (sizes.units + sizes.wide) + gemm::workspace(&product(sizes, steps), threads);
    (cell.biases() * sizes.wide, floats)
}

fn rows_at_once(sizes: &Sizes) -> usize {
    (STEPS_AT_ONCE / sizes.steps.max(1)).clamp(1, sizes.rows.max(1))
}

fn product(sizes: &Sizes, steps: usize) -> Gemm {
    Gemm { m: sizes.units, n: sizes.wide, k: steps, transpose_a: true, transpose_b: false }
}

/// What the gradients are made of.
pub(super) struct Weights<'a> {
    pub(super) sizes: Sizes,
    pub(super) cell: &'a Cell,
    pub(super) starts: bool,
    pub(super) order: Order,
    pub(super) dx: &'a [f32],
    pub(super) y: &'a [f32],
    pub(super) kept: &'a [f32],
    pub(super) overwrite: bool,
}

/// Which of a GRU's products a gathering is for, where the reset gate stands before the kernel.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    All,
    Gates,
    Candidate,
}

impl Weights<'_> {
    /// Adds to the kernel's gradient, and to the bias's where there is one.
    pub(super) fn add(
        &self,
        threads: &Threads,
        dkernel: &mut [f32],
        dbias: Option<&mut [f32]>,
        sums: &mut [f64],
        memory: &mut [f32],
    ) {
        let Sizes { rows, steps, units, wide, inputs, .. } = self.sizes;
        let at_once = rows_at_once(&self.sizes);
        let (states, memory) = memory.split_at_mut(at_once * steps * units);
        let (gates, memory) = memory.split_at_mut(at_once * steps * wide);
        sums.fill(0.0);
        let mut adds = !self.overwrite;
        for first in (0..rows).step_by(at_once) {
            let count = at_once.min(rows - first);
            let (states, gates) = (&mut states[..count * steps * units], &mut gates[..count * steps * wide]);
            let parts: &[Part] = match self.cell {
                Cell::Gru { reset_after: false, .. } => &[Part::Gates, Part::Candidate],
                Cell::Simple { .. } | Cell::Lstm { .. } | Cell::Gru { .. } => &[Part::All],
            };
            for part in parts {
                self.gather(threads, first, states, gates, *part);
                let shape = product(&self.sizes, count * steps);
                gemm::gemm(threads, &shape, states, gates, None, dkernel, adds, memory);
                adds = true;
            }
            if dbias.is_some() {
                for row in first..first + count {
                    sum_rows(&self.dx[row * inputs * wide..][..steps * wide], &mut sums[..wide]);
                }
                if self.cell.biases() == 2 {
                    sum_rows(gates, &mut sums[wide..]);
                }
            }
        }
        for (to, sum) in dbias.into_iter().flatten().zip(sums.iter()) {
            add_or_overwrite(to, *sum, self.overwrite);
        }
    }

    /// Puts the states before each step, and the gradients of the products with the kernel, side by side.
    fn gather(&self, threads: &Threads, first: usize, states: &mut [f32], gates: &mut [f32], part: Part) {
        let Sizes { steps, units, wide, kept, .. } = self.sizes;
        let (inputs, places) = (self.sizes.inputs, self.sizes.states);
        let count = states.len() / (steps * units).max(1);
        let (states, gates) = (Shared::new(states), Shared::new(gates));
        threads.for_each(count, |index, _| {
            for step in 0..steps {
                let at = index * steps + step;
                // SAFETY: every row belongs to one task.
                let (state, gate) = unsafe {
                    (states.slice(at * units..(at + 1) * units), gates.slice(at * wide..(at + 1) * wide))
                };
                let row = first + index;
                let kept_of = &self.kept[(row * steps + self.order.written(step)) * kept..][..kept];
                gate.copy_from_slice(&self.dx[(row * inputs + self.order.read(step)) * wide..][..wide]);
                let before = match step.checked_sub(1) {
                    None => self.starts.then_some(steps),
                    Some(before) => Some(self.order.written(before)),
                };
                match before {
                    None => state.fill(0.0),
                    Some(place) => {
                        let before = &self.y[(row * places + place) * units..][..units];
                        match part {
                            Part::Candidate => multiply(state, before, &kept_of[units..]),
                            Part::All | Part::Gates => state.copy_from_slice(before),
                        }
                    }
                }
                match part {
                    Part::Gates => gate[2 * units..].fill(0.0),
                    Part::Candidate => gate[..2 * units].fill(0.0),
                    Part::All if self.cell.biases() == 2 => {
                        let reset = &kept_of[units..2 * units];
                        gate[2 * units..].iter_mut().zip(reset).for_each(|(gate, reset)| *gate *= *reset);
                    }
                    Part::All => {}
                }
            }
        });
    }
}

fn sum_rows(values: &[f32], sums: &mut [f64]) {
    for row in values.chunks_exact(sums.len()) {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
    }
}
