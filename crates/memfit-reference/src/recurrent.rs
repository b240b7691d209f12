//! Recurrent layers: a cell over all steps, row by row, and back.

use memfit_ir::{Cell, Gate, Recurrent};

use super::call::{Call, Computed};
use super::elementwise::{positive, sigmoid, step};

/// The states of all steps, and what backward reads of each.
pub(crate) fn forward(call: &Call, kind: &Recurrent) -> Vec<Vec<f64>> {
    let others = call.inputs.len() - usize::from(kind.masked);
    let layer = Layer::new(kind, call.output_dims(0), call.input_if(kind.masked, others));
    let (x, kernel, bias) = (call.input(0), call.input(1), call.input_if(others == 3, 2));
    let Layer { units, wide, steps, places, inputs, .. } = layer;
    let has_cells = matches!(kind.cell, Cell::Lstm { .. });
    let mut y = vec![0.0; call.rows() * places * units];
    let mut kept = vec![0.0; call.rows() * steps * layer.kept];
    for row in 0..call.rows() {
        let y = &mut y[row * places * units..][..places * units];
        let x = &x[row * inputs * wide..][..inputs * wide];
        let mut state = State { h: vec![0.0; units], c: vec![0.0; units] };
        if kind.starts {
            state.h.copy_from_slice(&x[steps * wide..][..units]);
            y[steps * units..][..units].copy_from_slice(&state.h);
        }
        if kind.starts && has_cells {
            state.c.copy_from_slice(&x[steps * wide + units..][..units]);
            y[(steps + 1) * units..][..units].copy_from_slice(&state.c);
        }
        for step in 0..steps {
            let kept = &mut kept[(row * steps + layer.written(step)) * layer.kept..][..layer.kept];
            if layer.counts(row, step) {
                step_forward(
                    &kind.cell,
                    &x[layer.read(step) * wide..][..wide],
                    kernel,
                    bias,
                    &mut state,
                    kept,
                );
            } else if has_cells {
                kept[wide..].copy_from_slice(&state.c);
            }
            y[layer.written(step) * units..][..units].copy_from_slice(&state.h);
        }
        if kind.ends && has_cells {
            y[(places - 1) * units..].copy_from_slice(&state.c);
        }
    }
    let outputs = [y, kept];
    outputs.into_iter().take(call.node.outputs.len()).collect()
}

/// `dy, y, [kept], kernel, [mask] → dx ⇒ dkernel, [dbias]`, from the last step to the first.
pub(crate) fn grad(call: &Call, kind: &Recurrent) -> Computed {
    let keeps = usize::from(kind.cell.kept() > 0);
    let mask = call.input_if(kind.masked, 3 + keeps);
    let layer = Layer::new(kind, call.dims(0), mask);
    let (dy, y, kernel) = (call.input(0), call.input(1), call.input(2 + keeps));
    let kept: &[f64] = if keeps == 1 { call.input(2) } else { &[] };
    let Layer { units, wide, steps, places, inputs, .. } = layer;
    let has_cells = matches!(kind.cell, Cell::Lstm { .. });
    let mut sums = Sums { dkernel: vec![0.0; units * wide], dbias: vec![0.0; 2 * wide] };
    let mut dx = vec![0.0; call.rows() * inputs * wide];
    for row in 0..call.rows() {
        let place = |values: &[f64], place: usize| -> Vec<f64> {
            values[(row * places + place) * units..][..units].to_vec()
        };
        let mut gradient = State { h: vec![0.0; units], c: vec![0.0; units] };
        if kind.ends && has_cells {
            gradient.c = place(dy, places - 1);
        }
        let dx = &mut dx[row * inputs * wide..][..inputs * wide];
        for step in (0..steps).rev() {
            add(&mut gradient.h, &place(dy, layer.written(step)));
            if !layer.counts(row, step) {
                continue;
            }
            let kept_at = |step: usize| -> &[f64] {
                &kept[(row * steps + layer.written(step)) * layer.kept..][..layer.kept]
            };
            let (h, c) = match step.checked_sub(1) {
                Some(before) if has_cells => {
                    (place(y, layer.written(before)), kept_at(before)[wide..].to_vec())
                }
                Some(before) => (place(y, layer.written(before)), vec![0.0; units]),
                None if kind.starts && has_cells => (place(y, steps), place(y, steps + 1)),
                None if kind.starts => (place(y, steps), vec![0.0; units]),
                None => (vec![0.0; units], vec![0.0; units]),
            };
            let of_step = Step {
                kernel,
                kept: kept_at(step),
                before: State { h, c },
                after: place(y, layer.written(step)),
            };
            let dgates = of_step.back(&kind.cell, &mut gradient, &mut sums);
            dx[layer.read(step) * wide..][..wide].copy_from_slice(&dgates);
        }
        if kind.starts {
            add(&mut gradient.h, &place(dy, steps));
            dx[steps * wide..][..units].copy_from_slice(&gradient.h);
        }
        if kind.starts && has_cells {
            add(&mut gradient.c, &place(dy, steps + 1));
            dx[steps * wide + units..][..units].copy_from_slice(&gradient.c);
        }
    }
    sums.dbias.truncate(kind.cell.biases() * wide);
    let mut terms = vec![sums.dkernel, sums.dbias];
    terms.truncate(call.updates.len());
    Computed { outputs: vec![dx], ..call.sums(&terms) }
}

/// The sizes of a layer, and in which order its steps are.
struct Layer<'a> {
    kind: &'a Recurrent,
    mask: Option<&'a [f64]>,
    units: usize,
    /// Numbers of an input: a part for each gate.
    wide: usize,
    /// Numbers that are kept of a step.
    kept: usize,
    steps: usize,
    /// Rows of the inputs, and of the states.
    inputs: usize,
    places: usize,
}

impl<'a> Layer<'a> {
    fn new(kind: &'a Recurrent, states: &[usize], mask: Option<&'a [f64]>) -> Layer<'a> {
        let [places, units] = *states else { panic!("the shape rules ask for states of two axes") };
        let steps = places - kind.rows_after_states();
        let (wide, kept) = (kind.cell.gates() * units, kind.cell.kept() * units);
        Layer { kind, mask, units, wide, kept, steps, inputs: steps + kind.rows_after_input(), places }
    }

    /// Where the input of a step stands.
    fn read(&self, step: usize) -> usize {
        if self.kind.reads_backwards { self.steps - 1 - step } else { step }
    }

    /// Where the state after a step stands.
    fn written(&self, step: usize) -> usize {
        if self.kind.writes_backwards { self.steps - 1 - step } else { step }
    }

    fn counts(&self, row: usize, step: usize) -> bool {
        self.mask.is_none_or(|mask| mask[row * self.steps + self.read(step)] != 0.0)
    }
}

/// The state of a row, and the LSTM's own; or their gradients.
struct State {
    h: Vec<f64>,
    c: Vec<f64>,
}

/// One step: the new state, and what is kept of it.
fn step_forward(
    cell: &Cell,
    x: &[f64],
    kernel: &[f64],
    bias: Option<&[f64]>,
    state: &mut State,
    kept: &mut [f64],
) {
    let (units, wide) = (state.h.len(), x.len());
    let with_bias = |at: usize| bias.map_or(0.0, |bias| bias[at]);
    let product = |h: &[f64], column: usize| -> f64 {
        (0..units).map(|unit| h[unit] * kernel[unit * wide + column]).sum()
    };
    let before = state.h.clone();
    let plain = |column: usize| x[column] + with_bias(column) + product(&before, column);
    match *cell {
        Cell::Simple { activation } => {
            state.h = (0..units).map(|unit| value(activation, plain(unit))).collect();
        }
        Cell::Lstm { activation, recurrent } => {
            for unit in 0..units {
                let [input, forget, output] =
                    [0, 1, 3].map(|gate| value(recurrent, plain(gate * units + unit)));
                let candidate = value(activation, plain(2 * units + unit));
                state.c[unit] = forget * state.c[unit] + input * candidate;
                state.h[unit] = output * value(activation, state.c[unit]);
                let all = [input, forget, candidate, output, state.c[unit]];
                (0..5).for_each(|part| kept[part * units + unit] = all[part]);
            }
        }
        Cell::Gru { activation, recurrent, reset_after } => {
            let second = |at: usize| if reset_after { with_bias(wide + at) } else { 0.0 };
            let gate = |column: usize| value(recurrent, plain(column) + second(column));
            let passed: Vec<f64> = (0..units).map(|unit| gate(units + unit) * before[unit]).collect();
            for unit in 0..units {
                let (update, reset, column) = (gate(unit), gate(units + unit), 2 * units + unit);
                let own = product(&before, column) + second(column);
                let seen = if reset_after { reset * own } else { product(&passed, column) };
                let candidate = value(activation, x[column] + with_bias(column) + seen);
                state.h[unit] = update * before[unit] + (1.0 - update) * candidate;
                let all = [update, reset, candidate, own];
                (0..cell.kept()).for_each(|part| kept[part * units + unit] = all[part]);
            }
        }
    }
}

/// What a step of a row was computed from.
struct Step<'a> {
    kernel: &'a [f64],
    kept: &'a [f64],
    before: State,
    /// The state after it.
    after: Vec<f64>,
}

/// The gradients of kernel and bias over all steps.
struct Sums {
    dkernel: Vec<f64>,
    dbias: Vec<f64>,
}

impl Step<'_> {
    /// Turns the gradient of the state after the step into that of the state before it, adds to the gradients of the weights, and
    /// returns that of the step's input.
    fn back(&self, cell: &Cell, gradient: &mut State, sums: &mut Sums) -> Vec<f64> {
        let (units, wide) = (self.before.h.len(), self.kernel.len() / self.before.h.len());
        let kept = |part: usize, unit: usize| self.kept[part * units + unit];
        let State { h: before, c: cells } = &self.before;
        let mut dx = vec![0.0; wide];
        // The gradient of the product of state and kernel, where it is not that of the input.
        let mut dproduct = None;
        match *cell {
            Cell::Simple { activation } => {
                for ((dx, dh), h) in dx.iter_mut().zip(&gradient.h).zip(&self.after) {
                    *dx = dh * derivative(activation, *h);
                }
                gradient.h.fill(0.0);
            }
            Cell::Lstm { activation, recurrent } => {
                for unit in 0..units {
                    let [input, forget, candidate, output, cell] =
                        [0, 1, 2, 3, 4].map(|part| kept(part, unit));
                    let shaped = value(activation, cell);
                    let dh = gradient.h[unit];
                    let dc = gradient.c[unit] + dh * output * derivative(activation, shaped);
                    dx[unit] = dc * candidate * derivative(recurrent, input);
                    dx[units + unit] = dc * cells[unit] * derivative(recurrent, forget);
                    dx[2 * units + unit] = dc * input * derivative(activation, candidate);
                    dx[3 * units + unit] = dh * shaped * derivative(recurrent, output);
                    gradient.c[unit] = dc * forget;
                }
                gradient.h.fill(0.0);
            }
            Cell::Gru { activation, recurrent, reset_after } => {
                let mut product = vec![0.0; wide];
                for unit in 0..units {
                    let [update, reset, candidate] = [0, 1, 2].map(|part| kept(part, unit));
                    let dh = gradient.h[unit];
                    let dcandidate = dh * (1.0 - update) * derivative(activation, candidate);
                    dx[unit] = dh * (before[unit] - candidate) * derivative(recurrent, update);
                    dx[2 * units + unit] = dcandidate;
                    if reset_after {
                        dx[units + unit] = dcandidate * kept(3, unit) * derivative(recurrent, reset);
                        product[2 * units + unit] = dcandidate * reset;
                    }
                    gradient.h[unit] = dh * update;
                }
                if !reset_after {
                    self.back_to_reset(recurrent, &mut dx, gradient, sums);
                }
                product[..2 * units].copy_from_slice(&dx[..2 * units]);
                dproduct = Some(product);
            }
        }
        let dproduct = dproduct.as_ref().unwrap_or(&dx);
        self.back_through_product(dproduct, before, &mut gradient.h, sums);
        add(&mut sums.dbias[..wide], &dx);
        add(&mut sums.dbias[wide..], dproduct);
        dx
    }

    /// Of a GRU whose reset gate stands before the kernel: the gradients of the gate and of what it lets through, `reset · h`.
    fn back_to_reset(&self, recurrent: Gate, dx: &mut [f64], gradient: &mut State, sums: &mut Sums) {
        let units = self.before.h.len();
        let reset = &self.kept[units..2 * units];
        let passed: Vec<f64> = reset.iter().zip(&self.before.h).map(|(reset, h)| reset * h).collect();
        let mut product = vec![0.0; 3 * units];
        product[2 * units..].copy_from_slice(&dx[2 * units..]);
        let mut dpassed = vec![0.0; units];
        self.back_through_product(&product, &passed, &mut dpassed, sums);
        for unit in 0..units {
            dx[units + unit] = dpassed[unit] * self.before.h[unit] * derivative(recurrent, reset[unit]);
            gradient.h[unit] += dpassed[unit] * reset[unit];
        }
    }

    /// Adds the gradients of both factors of `h · kernel`.
    fn back_through_product(&self, dproduct: &[f64], h: &[f64], dh: &mut [f64], sums: &mut Sums) {
        let wide = dproduct.len();
        for unit in 0..h.len() {
            for (column, dproduct) in dproduct.iter().enumerate() {
                dh[unit] += dproduct * self.kernel[unit * wide + column];
                sums.dkernel[unit * wide + column] += h[unit] * dproduct;
            }
        }
    }
}

fn add(to: &mut [f64], from: &[f64]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
}

fn value(gate: Gate, x: f64) -> f64 {
    match gate {
        Gate::Linear => x,
        Gate::Relu => positive(x),
        Gate::Sigmoid => sigmoid(x),
        Gate::Tanh => x.tanh(),
    }
}

/// The derivative of a function, from its value.
fn derivative(gate: Gate, y: f64) -> f64 {
    match gate {
        Gate::Linear => 1.0,
        Gate::Relu => step(0.0 < y),
        Gate::Sigmoid => y * (1.0 - y),
        Gate::Tanh => 1.0 - y * y,
    }
}
