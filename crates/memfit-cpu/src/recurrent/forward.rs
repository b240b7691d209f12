//! Forward: every task takes some rows through all steps.

use std::ops::Range;

use memfit_ir::Operand::{Bias, Kept, Kernel, Mask, X, Y};
use memfit_ir::{Cell, Recurrent};

use super::super::floats::Floats;
use super::super::gemm;
use super::super::lanes::Lanes;
use super::super::operands::Operands;
use super::super::tasks::{self, Tasks};
use super::super::threads::Threads;
use super::cells::{add, apply, multiply};
use super::{Order, Sizes};

/// Floats of workspace: every worker keeps the states and the gates of its rows, and what a product needs.
pub(crate) fn workspace(sizes: &Sizes, threads: usize) -> usize {
    threads * own(sizes)
}

fn own(sizes: &Sizes) -> usize {
    sizes.rows_at_once() * (3 * sizes.units + 2 * sizes.wide) + sizes.product_workspace(Sizes::product)
}

/// Runs a cell over all steps.
pub(crate) fn forward(operands: &Operands, kind: &Recurrent) {
    let sizes = Sizes::new(kind, operands.shape(Y), operands.context.rows);
    let workspace = operands.workspace().take_floats(workspace(&sizes, operands.threads.count()));
    let run = Run {
        sizes,
        cell: &kind.cell,
        starts: kind.starts,
        ends: kind.ends,
        order: Order::new(kind, sizes.steps),
        x: operands.input(X),
        kernel: operands.input(Kernel),
        bias: operands.input_if_given(Bias),
        mask: operands.input_if_given(Mask),
        y: operands.output_floats(Y),
        kept: operands.output_floats_if_given(Kept),
        alone: Threads::alone(operands.threads.level()),
        workspace: Floats::over(workspace),
    };
    tasks::run(operands.threads, sizes.rows.div_ceil(sizes.rows_at_once()), &run);
}

struct Run<'a> {
    sizes: Sizes,
    cell: &'a Cell,
    starts: bool,
    ends: bool,
    order: Order,
    x: &'a [f32],
    kernel: &'a [f32],
    bias: Option<&'a [f32]>,
    mask: Option<&'a [f32]>,
    y: Floats<'a>,
    kept: Option<Floats<'a>>,
    alone: Threads,
    workspace: Floats<'a>,
}

impl Tasks for Run<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, worker: usize) {
        let Sizes { rows, units, wide, .. } = self.sizes;
        let most = self.sizes.rows_at_once();
        let rows = task * most..rows.min((task + 1) * most);
        let own = own(&self.sizes);
        // SAFETY: a worker runs one task at a time.
        let memory = unsafe { self.workspace.write(worker * own..(worker + 1) * own) };
        let (states, memory) = memory.split_at_mut(rows.len() * units);
        let (cells, memory) = memory.split_at_mut(rows.len() * units);
        let (passed, memory) = memory.split_at_mut(rows.len() * units);
        let (gates, memory) = memory.split_at_mut(rows.len() * wide);
        let (candidates, memory) = memory.split_at_mut(rows.len() * wide);
        if self.starts {
            self.begin(rows.clone(), states, cells);
        } else {
            states.fill(0.0);
            cells.fill(0.0);
        }
        let mut block = Block { rows, states, cells, passed, gates, candidates, memory };
        for step in 0..self.sizes.steps {
            self.step(&mut block, step);
        }
        if self.ends && self.has_cells() {
            for (index, row) in block.rows.clone().enumerate() {
                self.state(row, self.sizes.states - 1)
                    .copy_from_slice(&block.cells[index * units..][..units]);
            }
        }
    }
}

/// What a task keeps of its rows.
struct Block<'a> {
    rows: Range<usize>,
    states: &'a mut [f32],
    /// The LSTM's own states.
    cells: &'a mut [f32],
    /// What the reset gate lets through.
    passed: &'a mut [f32],
    gates: &'a mut [f32],
    /// The product for a candidate after a reset gate.
    candidates: &'a mut [f32],
    memory: &'a mut [f32],
}

impl Run<'_> {
    /// Takes the states that are given, and keeps them for backward.
    #[inline(always)]
    fn begin(&self, rows: Range<usize>, states: &mut [f32], cells: &mut [f32]) {
        let Sizes { steps, units, wide, inputs, .. } = self.sizes;
        for (index, row) in rows.enumerate() {
            let given = &self.x[(row * inputs + steps) * wide..][..wide];
            states[index * units..][..units].copy_from_slice(&given[..units]);
            self.state(row, steps).copy_from_slice(&given[..units]);
            if self.has_cells() {
                cells[index * units..][..units].copy_from_slice(&given[units..2 * units]);
                self.state(row, steps + 1).copy_from_slice(&given[units..2 * units]);
            }
        }
    }

    #[inline(always)]
    fn has_cells(&self) -> bool {
        matches!(self.cell, Cell::Lstm { .. })
    }

    /// A row of the states.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "rows belong to one task, and steps come one after the other")]
    fn state(&self, row: usize, place: usize) -> &mut [f32] {
        let Sizes { units, states, .. } = self.sizes;
        let start = (row * states + place) * units;
        // SAFETY: every row belongs to one task, which holds one step at a time.
        unsafe { self.y.write(start..start + units) }
    }

    #[inline(always)]
    fn step(&self, block: &mut Block<'_>, step: usize) {
        let shape = self.sizes.product(block.rows.len());
        gemm::gemm(&self.alone, &shape, block.states, self.kernel, None, block.gates, false, block.memory);
        let Sizes { units, wide, .. } = self.sizes;
        match *self.cell {
            Cell::Simple { activation } => {
                for (index, row) in block.rows.clone().enumerate() {
                    if !self.counts(row, step) {
                        continue;
                    }
                    let gates = &mut block.gates[index * wide..][..wide];
                    self.add_input(gates, row, step);
                    apply(activation, gates);
                    block.states[index * units..][..units].copy_from_slice(gates);
                }
            }
            Cell::Lstm { activation, recurrent } => {
                for (index, row) in block.rows.clone().enumerate() {
                    if !self.counts(row, step) {
                        let kept = self.kept(row, step);
                        kept[..wide].fill(0.0);
                        kept[wide..].copy_from_slice(&block.cells[index * units..][..units]);
                        continue;
                    }
                    let gates = &mut block.gates[index * wide..][..wide];
                    self.add_input(gates, row, step);
                    apply(recurrent, &mut gates[..2 * units]);
                    apply(activation, &mut gates[2 * units..3 * units]);
                    apply(recurrent, &mut gates[3 * units..]);
                    let cells = &mut block.cells[index * units..][..units];
                    for unit in 0..units {
                        cells[unit] =
                            gates[units + unit] * cells[unit] + gates[unit] * gates[2 * units + unit];
                    }
                    let states = &mut block.states[index * units..][..units];
                    states.copy_from_slice(cells);
                    apply(activation, states);
                    states.iter_mut().zip(&gates[3 * units..]).for_each(|(state, gate)| *state *= *gate);
                    let kept = self.kept(row, step);
                    kept[..wide].copy_from_slice(gates);
                    kept[wide..].copy_from_slice(cells);
                }
            }
            Cell::Gru { reset_after: true, activation, recurrent } => {
                for (index, row) in block.rows.clone().enumerate() {
                    if !self.counts(row, step) {
                        self.kept(row, step).fill(0.0);
                        continue;
                    }
                    let gates = &mut block.gates[index * wide..][..wide];
                    if let Some(bias) = self.bias {
                        add(gates, &bias[wide..]);
                    }
                    let kept = self.kept(row, step);
                    let (candidate, product) = kept[2 * units..].split_at_mut(units);
                    product.copy_from_slice(&gates[2 * units..]);
                    self.add_input(&mut gates[..2 * units], row, step);
                    apply(recurrent, &mut gates[..2 * units]);
                    multiply(candidate, &gates[units..2 * units], product);
                    self.add_input_from(candidate, row, step, 2 * units);
                    apply(activation, candidate);
                    kept[..2 * units].copy_from_slice(&gates[..2 * units]);
                    self.mix(&mut block.states[index * units..][..units], kept);
                }
            }
            Cell::Gru { reset_after: false, activation, recurrent } => {
                for (index, row) in block.rows.clone().enumerate() {
                    let gates = &mut block.gates[index * wide..][..2 * units];
                    self.add_input(gates, row, step);
                    apply(recurrent, gates);
                    let states = &block.states[index * units..][..units];
                    multiply(&mut block.passed[index * units..][..units], &gates[units..], states);
                }
                let (passed, candidates) = (&*block.passed, &mut *block.candidates);
                gemm::gemm(&self.alone, &shape, passed, self.kernel, None, candidates, false, block.memory);
                for (index, row) in block.rows.clone().enumerate() {
                    let kept = self.kept(row, step);
                    if !self.counts(row, step) {
                        kept.fill(0.0);
                        continue;
                    }
                    kept[..2 * units].copy_from_slice(&block.gates[index * wide..][..2 * units]);
                    let candidate = &mut kept[2 * units..];
                    candidate.copy_from_slice(&block.candidates[index * wide..][2 * units..wide]);
                    self.add_input_from(candidate, row, step, 2 * units);
                    apply(activation, candidate);
                    self.mix(&mut block.states[index * units..][..units], kept);
                }
            }
        }
        for (index, row) in block.rows.clone().enumerate() {
            let state = &block.states[index * units..][..units];
            self.state(row, self.order.written(step)).copy_from_slice(state);
        }
    }

    #[inline(always)]
    fn counts(&self, row: usize, step: usize) -> bool {
        self.order.counts(self.mask, row, step)
    }

    /// `h ← z h + (1 − z) g`, with `z` and `g` as they are kept.
    #[inline(always)]
    fn mix(&self, states: &mut [f32], kept: &[f32]) {
        let units = self.sizes.units;
        let (update, candidate) = (&kept[..units], &kept[2 * units..3 * units]);
        for ((state, update), candidate) in states.iter_mut().zip(update).zip(candidate) {
            *state = *update * *state + (1.0 - *update) * *candidate;
        }
    }

    #[inline(always)]
    fn add_input(&self, gates: &mut [f32], row: usize, step: usize) {
        self.add_input_from(gates, row, step, 0);
    }

    /// Adds what a step reads, and the bias, from one of its gates on.
    #[inline(always)]
    fn add_input_from(&self, gates: &mut [f32], row: usize, step: usize, first: usize) {
        let start = (row * self.sizes.inputs + self.order.read(step)) * self.sizes.wide + first;
        add(gates, &self.x[start..start + gates.len()]);
        if let Some(bias) = self.bias {
            add(gates, &bias[first..first + gates.len()]);
        }
    }

    /// Where a step of a row is kept for backward.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "rows belong to one task, and steps come one after the other")]
    fn kept(&self, row: usize, step: usize) -> &mut [f32] {
        let kept = self.kept.as_ref().expect("the shape rules give cells with gates a place to keep them");
        let start = (row * self.sizes.steps + self.order.written(step)) * self.sizes.kept;
        // SAFETY: every row belongs to one task, which holds one step at a time.
        unsafe { kept.write(start..start + self.sizes.kept) }
    }
}
