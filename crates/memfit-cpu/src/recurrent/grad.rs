//! Backward: every task takes some rows back through all steps; the kernel's gradient follows.

use std::ops::Range;

use memfit_ir::Operand::{DBias, DKernel, Dx, Dy, Kept, Kernel, Mask, Y};
use memfit_ir::{Cell, Gate, Recurrent};

use super::super::floats::Floats;
use super::super::gemm;
use super::super::lanes::Lanes;
use super::super::operands::Operands;
use super::super::tasks::{self, Tasks};
use super::super::threads::Threads;
use super::cells::{add, apply, gate_grad, multiply};
use super::weights::{self, Weights};
use super::{Order, Sizes};

/// Doubles and floats of workspace.
pub(crate) fn workspace(cell: &Cell, sizes: &Sizes, threads: usize) -> (usize, usize) {
    let (doubles, floats) = weights::workspace(cell, sizes, threads);
    (doubles, floats.max(threads * own(sizes)))
}

fn own(sizes: &Sizes) -> usize {
    sizes.rows_at_once() * (3 * sizes.units + sizes.wide) + sizes.product_workspace(Sizes::product_back)
}

/// `dy, y, [kept], kernel, [mask] → dx ⇒ dkernel, [dbias]`.
pub(crate) fn grad(operands: &Operands, kind: &Recurrent) {
    let cell = &kind.cell;
    let sizes = Sizes::new(kind, operands.shape(Y), operands.context.rows);
    let (y, kept) = (operands.input(Y), operands.input_if_given(Kept).unwrap_or_default());
    let (kernel, mask) = (operands.input(Kernel), operands.input_if_given(Mask));
    let (doubles, floats) = workspace(cell, &sizes, operands.threads.count());
    let mut memory = operands.workspace();
    let sums = memory.take_doubles(doubles);
    let memory = memory.take_floats(floats);
    let order = Order::new(kind, sizes.steps);
    let dx = operands.output::<f32>(Dx);
    let run = Run {
        sizes,
        cell,
        starts: kind.starts,
        ends: kind.ends,
        order,
        dy: operands.input(Dy),
        y,
        kept,
        kernel,
        mask,
        dx: Floats::over(dx),
        alone: Threads::alone(operands.threads.level()),
        workspace: Floats::over(memory),
    };
    tasks::run(operands.threads, sizes.rows.div_ceil(sizes.rows_at_once()), &run);
    let dbias = operands.update_if_given(DBias);
    Weights { sizes, cell, starts: kind.starts, order, dx, y, kept, overwrite: operands.fresh }.add(
        operands.threads,
        operands.update(DKernel),
        dbias,
        sums,
        memory,
    );
}

struct Run<'a> {
    sizes: Sizes,
    cell: &'a Cell,
    starts: bool,
    ends: bool,
    order: Order,
    dy: &'a [f32],
    y: &'a [f32],
    kept: &'a [f32],
    kernel: &'a [f32],
    mask: Option<&'a [f32]>,
    dx: Floats<'a>,
    alone: Threads,
    workspace: Floats<'a>,
}

/// What a task keeps of its rows.
struct Block<'a> {
    rows: Range<usize>,
    /// The gradient of the states.
    dstates: &'a mut [f32],
    /// The gradient of the LSTM's own states.
    cells: &'a mut [f32],
    /// The gradient of what a reset gate lets through.
    passed: &'a mut [f32],
    /// The gradient of the product of states and kernel.
    gates: &'a mut [f32],
    memory: &'a mut [f32],
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
        let (dstates, memory) = memory.split_at_mut(rows.len() * units);
        let (cells, memory) = memory.split_at_mut(rows.len() * units);
        let (passed, memory) = memory.split_at_mut(rows.len() * units);
        let (gates, memory) = memory.split_at_mut(rows.len() * wide);
        dstates.fill(0.0);
        cells.fill(0.0);
        let mut block = Block { rows, dstates, cells, passed, gates, memory };
        let has_cells = matches!(self.cell, Cell::Lstm { .. });
        if self.ends && has_cells {
            for (index, row) in block.rows.clone().enumerate() {
                let end = self.place(self.dy, row, self.sizes.states - 1);
                block.cells[index * units..][..units].copy_from_slice(end);
            }
        }
        for step in (0..self.sizes.steps).rev() {
            self.step(&mut block, step);
        }
        if self.starts {
            self.begin(&block, has_cells);
        }
    }
}

impl Run<'_> {
    /// Hands the gradients of the states before the first step on to those who gave them.
    #[inline(always)]
    fn begin(&self, block: &Block<'_>, has_cells: bool) {
        let Sizes { steps, units, wide, inputs, .. } = self.sizes;
        for (index, row) in block.rows.clone().enumerate() {
            let start = (row * inputs + steps) * wide;
            // SAFETY: every row belongs to one task.
            let given = unsafe { self.dx.write(start..start + wide) };
            given.fill(0.0);
            let part = index * units..(index + 1) * units;
            given[..units].copy_from_slice(&block.dstates[part.clone()]);
            add(&mut given[..units], self.place(self.dy, row, steps));
            if has_cells {
                given[units..2 * units].copy_from_slice(&block.cells[part]);
                add(&mut given[units..2 * units], self.place(self.dy, row, steps + 1));
            }
        }
    }

    #[inline(always)]
    fn step(&self, block: &mut Block<'_>, step: usize) {
        let units = self.sizes.units;
        for (index, row) in block.rows.clone().enumerate() {
            add(&mut block.dstates[index * units..][..units], self.state(self.dy, row, step));
        }
        match *self.cell {
            Cell::Simple { activation } => self.simple(block, step, activation),
            Cell::Lstm { activation, recurrent } => self.lstm(block, step, activation, recurrent),
            Cell::Gru { activation, recurrent, reset_after: true } => {
                self.gru(block, step, activation, recurrent);
            }
            Cell::Gru { activation, recurrent, reset_after: false } => {
                self.gru_before(block, step, activation, recurrent);
            }
        }
        if step > 0 || self.starts {
            // What the states hand on directly is in place already.
            self.back(block.gates, block.dstates, true, block.memory, block.rows.len());
        }
    }

    /// Whether a step of a row does not count: gradients of states go on as they are, and its gates have
    /// none.
    #[inline(always)]
    fn passes_by(&self, row: usize, step: usize, gates: &mut [f32]) -> bool {
        let counts = self.order.counts(self.mask, row, step);
        if !counts {
            gates.fill(0.0);
            self.dx(row, step).fill(0.0);
        }
        !counts
    }

    #[inline(always)]
    fn simple(&self, block: &mut Block<'_>, step: usize, activation: Gate) {
        let units = self.sizes.units;
        for (index, row) in block.rows.clone().enumerate() {
            let dstates = &mut block.dstates[index * units..][..units];
            let gates = &mut block.gates[index * units..][..units];
            if self.passes_by(row, step, gates) {
                continue;
            }
            gates.copy_from_slice(dstates);
            gate_grad(activation, gates, self.state(self.y, row, step));
            dstates.fill(0.0);
            self.dx(row, step).copy_from_slice(gates);
        }
    }

    #[inline(always)]
    fn lstm(&self, block: &mut Block<'_>, step: usize, activation: Gate, recurrent: Gate) {
        let Sizes { units, wide, .. } = self.sizes;
        for (index, row) in block.rows.clone().enumerate() {
            let part = index * units..(index + 1) * units;
            let (dstates, cells) = (&mut block.dstates[part.clone()], &mut block.cells[part.clone()]);
            let shaped = &mut block.passed[part];
            let gates = &mut block.gates[index * wide..][..wide];
            if self.passes_by(row, step, gates) {
                continue;
            }
            let kept = self.kept(row, step);
            shaped.copy_from_slice(&kept[wide..]);
            apply(activation, shaped);
            let (input, rest) = gates.split_at_mut(units);
            let (forget, rest) = rest.split_at_mut(units);
            let (candidate, output) = rest.split_at_mut(units);
            multiply(output, dstates, shaped);
            // Through the output: `dstates` becomes the gradient of the cell's state.
            dstates.iter_mut().zip(&kept[3 * units..]).for_each(|(dstate, gate)| *dstate *= *gate);
            gate_grad(activation, dstates, shaped);
            add(cells, dstates);
            multiply(input, cells, &kept[2 * units..]);
            multiply(candidate, cells, kept);
            match step {
                0 if self.starts => multiply(forget, cells, self.place(self.y, row, self.sizes.steps + 1)),
                0 => forget.fill(0.0),
                _ => multiply(forget, cells, &self.kept(row, step - 1)[wide..]),
            }
            gate_grad(recurrent, input, kept);
            gate_grad(recurrent, forget, &kept[units..]);
            gate_grad(activation, candidate, &kept[2 * units..]);
            gate_grad(recurrent, output, &kept[3 * units..]);
            cells.iter_mut().zip(&kept[units..]).for_each(|(cell, forget)| *cell *= *forget);
            dstates.fill(0.0);
            self.dx(row, step).copy_from_slice(gates);
        }
    }

    #[inline(always)]
    fn gru(&self, block: &mut Block<'_>, step: usize, activation: Gate, recurrent: Gate) {
        let Sizes { units, wide, .. } = self.sizes;
        for (index, row) in block.rows.clone().enumerate() {
            let dstates = &mut block.dstates[index * units..][..units];
            let gates = &mut block.gates[index * wide..][..wide];
            if self.passes_by(row, step, gates) {
                continue;
            }
            let kept = self.kept(row, step);
            self.update_and_candidate(dstates, gates, row, step, activation, recurrent);
            let (before, candidate) = gates.split_at_mut(2 * units);
            let reset = &mut before[units..];
            multiply(reset, candidate, &kept[3 * units..]);
            gate_grad(recurrent, reset, &kept[units..]);
            let dx = self.dx(row, step);
            dx[..2 * units].copy_from_slice(before);
            dx[2 * units..].copy_from_slice(candidate);
            candidate.iter_mut().zip(&kept[units..]).for_each(|(dstate, reset)| *dstate *= *reset);
        }
    }

    /// The reset gate before the product: its gradient is known after a product of its own.
    #[inline(always)]
    fn gru_before(&self, block: &mut Block<'_>, step: usize, activation: Gate, recurrent: Gate) {
        let Sizes { units, wide, .. } = self.sizes;
        for (index, row) in block.rows.clone().enumerate() {
            let dstates = &mut block.dstates[index * units..][..units];
            let gates = &mut block.gates[index * wide..][..wide];
            if self.passes_by(row, step, gates) {
                continue;
            }
            self.update_and_candidate(dstates, gates, row, step, activation, recurrent);
            let dx = self.dx(row, step);
            dx.copy_from_slice(gates);
            gates[..2 * units].fill(0.0);
        }
        self.back(block.gates, block.passed, false, block.memory, block.rows.len());
        for (index, row) in block.rows.clone().enumerate() {
            let passed = &block.passed[index * units..][..units];
            let dstates = &mut block.dstates[index * units..][..units];
            let gates = &mut block.gates[index * wide..][..wide];
            if self.passes_by(row, step, gates) {
                continue;
            }
            let (kept, dx) = (self.kept(row, step), self.dx(row, step));
            let reset = &mut dx[units..2 * units];
            match self.before(row, step) {
                None => reset.fill(0.0),
                Some(before) => multiply(reset, passed, before),
            }
            gate_grad(recurrent, reset, &kept[units..]);
            for ((dstate, passed), reset) in dstates.iter_mut().zip(passed).zip(&kept[units..]) {
                *dstate += *passed * *reset;
            }
            gates[..2 * units].copy_from_slice(&dx[..2 * units]);
            gates[2 * units..].fill(0.0);
        }
    }

    /// The gradients of a GRU's update gate and candidate; what is left of the state's own goes on to the
    /// step before.
    #[inline(always)]
    fn update_and_candidate(
        &self,
        dstates: &mut [f32],
        gates: &mut [f32],
        row: usize,
        step: usize,
        activation: Gate,
        recurrent: Gate,
    ) {
        let units = self.sizes.units;
        let kept = self.kept(row, step);
        let (before, candidate) = gates.split_at_mut(2 * units);
        let update = &mut before[..units];
        update.iter_mut().zip(&kept[2 * units..]).for_each(|(to, candidate)| *to = -*candidate);
        if let Some(before) = self.before(row, step) {
            add(update, before);
        }
        for unit in 0..units {
            update[unit] *= dstates[unit];
            candidate[unit] = dstates[unit] * (1.0 - kept[unit]);
            dstates[unit] *= kept[unit];
        }
        gate_grad(recurrent, update, kept);
        gate_grad(activation, candidate, &kept[2 * units..]);
    }

    /// The gradient of states from that of their product with the kernel.
    #[inline(always)]
    fn back(&self, gates: &[f32], states: &mut [f32], adds: bool, memory: &mut [f32], rows: usize) {
        let shape = self.sizes.product_back(rows);
        gemm::gemm(&self.alone, &shape, gates, self.kernel, None, states, adds, memory);
    }

    /// A step's state, or its gradient.
    #[inline(always)]
    fn state<'b>(&self, states: &'b [f32], row: usize, step: usize) -> &'b [f32] {
        self.place(states, row, self.order.written(step))
    }

    /// A row of the states, or of their gradients.
    #[inline(always)]
    fn place<'b>(&self, states: &'b [f32], row: usize, place: usize) -> &'b [f32] {
        let units = self.sizes.units;
        &states[(row * self.sizes.states + place) * units..][..units]
    }

    /// The state before a step; none where that is 0.
    #[inline(always)]
    fn before(&self, row: usize, step: usize) -> Option<&[f32]> {
        match step {
            0 if self.starts => Some(self.place(self.y, row, self.sizes.steps)),
            0 => None,
            _ => Some(self.state(self.y, row, step - 1)),
        }
    }

    #[inline(always)]
    fn kept(&self, row: usize, step: usize) -> &[f32] {
        let kept = self.sizes.kept;
        &self.kept[(row * self.sizes.steps + self.order.written(step)) * kept..][..kept]
    }

    /// Where the gradient of a step's input is written.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "rows belong to one task, and steps come one after the other")]
    fn dx(&self, row: usize, step: usize) -> &mut [f32] {
        let wide = self.sizes.wide;
        let start = (row * self.sizes.inputs + self.order.read(step)) * wide;
        // SAFETY: every row belongs to one task, which holds one step at a time.
        unsafe { self.dx.write(start..start + wide) }
    }
}
