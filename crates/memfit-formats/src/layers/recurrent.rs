//! Recurrent layers, one op each after the product of their input, and the layers around two of them.

use memfit_ir::{Binary, Cell, Chain, Gate, Link, Op, Recurrent, TensorId, Unary};

use super::{merging, noise};
use crate::activation::Activation;
use crate::argument::Expects;
use crate::error::FormatError;
use crate::settings::{Inner, Settings};
use crate::site::Site;
use crate::table::Class;

/// LSTM, GRU or SimpleRNN by itself.
pub(crate) fn layer(
    site: &mut Site<'_>,
    class: Class,
    operands: &[TensorId],
) -> Result<TensorId, FormatError> {
    run(site, class, operands, false)
}

/// Runs a layer over a sequence, which is the first operand and is followed by states to begin with; `turned`
/// writes the step that was read last first.
pub(super) fn run(
    site: &mut Site<'_>,
    class: Class,
    operands: &[TensorId],
    turned: bool,
) -> Result<TensorId, FormatError> {
    let (x, start) = (operands[0], &operands[1..]);
    let [steps, features] = site.sequence(x)?;
    let rate = site.settings.number("recurrent_dropout");
    if rate > 0.0 && site.training {
        return Err(site.unsupported("recurrent_dropout", rate, "0: `dropout` is for the layer's input"));
    }
    let x = noise::input_dropout(site, x)?;
    let units = site.settings.size("units");
    let (cell, name) = cell(site, class)?;
    let wide = cell.gates() * units;
    let settings = site.settings;
    let kernel = site.weight(
        &format!("{name}/kernel"),
        &[features, wide],
        settings.initializer("kernel_initializer"),
    )?;
    let recurrent = site.weight(
        &format!("{name}/recurrent_kernel"),
        &[units, wide],
        settings.initializer("recurrent_initializer"),
    )?;
    let mut projected = site.push(Op::Dense, &[x, kernel])?;
    if !start.is_empty() {
        let row = states_row(site, &cell, start, units)?;
        projected = site.push(Op::Concat(0), &[projected, row])?;
    }
    let mut operands = vec![projected, recurrent];
    if settings.flag("use_bias") {
        operands.push(bias(site, &cell, name, units)?);
    }
    let backwards = settings.flag("go_backwards");
    let mask = site.mask(0);
    operands.extend(mask);
    let returns_states = settings.flag("return_state");
    let has_own = matches!(cell, Cell::Lstm { .. });
    let kind = Recurrent {
        cell,
        reads_backwards: backwards,
        writes_backwards: turned,
        masked: mask.is_some(),
        starts: !start.is_empty(),
        ends: returns_states && has_own,
    };
    let rows_after = kind.rows_after_states();
    let all = site.push(Op::Recurrent(kind), &operands)?;
    let last_step = if turned { 0 } else { steps - 1 };
    if returns_states {
        let places = [last_step, steps + rows_after.saturating_sub(1)];
        for place in &places[..1 + usize::from(has_own)] {
            let state = one_step(site, all, *place, units)?;
            site.further.push(state);
        }
    }
    let mut states = match rows_after {
        0 => all,
        _ => site.push(Op::Slice { axis: 0, start: 0, length: steps }, &[all])?,
    };
    if let Some(mask) = mask.filter(|_| settings.flag("zero_output_for_mask")) {
        if backwards != turned {
            let supported = "false where steps are read backwards and written forwards";
            return Err(site.unsupported("zero_output_for_mask", true, supported));
        }
        states = site.masked(states, mask)?;
    }
    if settings.flag("return_sequences") {
        return Ok(states);
    }
    one_step(site, states, last_step, units)
}

/// One row of the states.
fn one_step(
    site: &mut Site<'_>,
    states: TensorId,
    start: usize,
    units: usize,
) -> Result<TensorId, FormatError> {
    let last = site.push(Op::Slice { axis: 0, start, length: 1 }, &[states])?;
    site.push(Op::Reshape(vec![units]), &[last])
}

/// States to begin with, as the row that the op reads them from.
fn states_row(
    site: &mut Site<'_>,
    cell: &Cell,
    start: &[TensorId],
    units: usize,
) -> Result<TensorId, FormatError> {
    let wanted = if matches!(cell, Cell::Lstm { .. }) { 2 } else { 1 };
    let fits = start.len() == wanted && start.iter().all(|state| site.dims(*state) == [units]);
    if !fits {
        let supported = format!("{wanted} of [batch,{units}] for each layer");
        return Err(site.unsupported("initial_state", format!("{} tensors", start.len()), &supported));
    }
    let mut row = start[0];
    if wanted == 2 {
        row = site.push(Op::Concat(0), start)?;
    }
    let (given, wide) = (wanted * units, cell.gates() * units);
    if given < wide {
        row = site.push(Op::PadAxis { axis: 0, before: 0, after: wide - given }, &[row])?;
    }
    site.push(Op::Reshape(vec![1, wide]), &[row])
}

/// What a step computes, and what Keras calls it.
fn cell(site: &Site<'_>, class: Class) -> Result<(Cell, &'static str), FormatError> {
    let activation = gate(site, "activation")?;
    if class == Class::SimpleRnn {
        return Ok((Cell::Simple { activation }, "simple_rnn_cell"));
    }
    let recurrent = gate(site, "recurrent_activation")?;
    if class == Class::Lstm {
        return Ok((Cell::Lstm { activation, recurrent }, "lstm_cell"));
    }
    let reset_after = site.settings.flag("reset_after");
    Ok((Cell::Gru { activation, recurrent, reset_after }, "gru_cell"))
}

fn gate(site: &Site<'_>, argument: &str) -> Result<Gate, FormatError> {
    let gates = Expects::Gate.describe();
    let gates = gates.as_str();
    match site.settings.activation(argument) {
        Activation::Linear => Ok(Gate::Linear),
        Activation::Unary(Unary::Relu) => Ok(Gate::Relu),
        Activation::Unary(Unary::Sigmoid) => Ok(Gate::Sigmoid),
        Activation::Unary(Unary::Tanh) => Ok(Gate::Tanh),
        Activation::Unary(other) => Err(site.unsupported(argument, Chain::unary(other), gates)),
        Activation::Softmax { .. } => Err(site.unsupported(argument, "softmax", gates)),
        Activation::HardSigmoid => Err(site.unsupported(argument, "hard_sigmoid", gates)),
        Activation::HardSilu => Err(site.unsupported(argument, "hard_silu", gates)),
        Activation::Selu => Err(site.unsupported(argument, "selu", gates)),
        Activation::Mish => Err(site.unsupported(argument, "mish", gates)),
    }
}

/// The bias of all gates; an LSTM's forget gate may begin at 1.
fn bias(site: &mut Site<'_>, cell: &Cell, name: &str, units: usize) -> Result<TensorId, FormatError> {
    let settings = site.settings;
    let wide = cell.gates() * units;
    let dims = if cell.biases() == 2 { vec![2, wide] } else { vec![wide] };
    let name = format!("{name}/bias");
    let start = settings.initializer("bias_initializer");
    let forgets = matches!(cell, Cell::Lstm { .. }) && settings.flag("unit_forget_bias");
    if !forgets {
        return site.weight(&name, &dims, start);
    }
    let Some(start) = start.with_ones(units..2 * units) else {
        return Err(site.unsupported("bias_initializer", "random", "zeros, where unit_forget_bias is true"));
    };
    site.weight(&name, &dims, &start)
}

/// A layer forward and a second one backward over the same sequence.
pub(crate) fn bidirectional(site: &mut Site<'_>, operands: &[TensorId]) -> Result<TensorId, FormatError> {
    let (x, start) = (operands[0], &operands[1..]);
    let settings = site.settings;
    let forward = settings.inner("layer").expect("the table asks for a layer");
    for (argument, inner) in [("layer", Some(forward)), ("backward_layer", settings.inner("backward_layer"))]
    {
        let other =
            inner.filter(|inner| !matches!(inner.row.class, Class::Lstm | Class::Gru | Class::SimpleRnn));
        if let Some(inner) = other {
            return Err(site.unsupported(argument, inner.row.name, "LSTM, GRU or SimpleRNN"));
        }
    }
    let base = forward.name();
    let base = base.strip_prefix("forward_").unwrap_or(&base);
    // A layer that was given for the backward direction keeps its own name.
    let (backward, back_name) = match settings.inner("backward_layer") {
        Some(given) => (given.clone(), given.name()),
        None => {
            let mut turned = forward.clone();
            turned.settings.set_flag("go_backwards", !turned.settings.flag("go_backwards"));
            (turned, format!("backward_{base}"))
        }
    };
    let mut made = Vec::with_capacity(2);
    let (start_forward, start_backward) = start.split_at(start.len() / 2);
    for (inner, name, is_backward, start) in [
        (forward, format!("forward_{base}"), false, start_forward),
        (&backward, back_name, true, start_backward),
    ] {
        let class = inner.row.class;
        let operands: Vec<TensorId> = std::iter::once(x).chain(start.iter().copied()).collect();
        made.push(within(site, inner, &name, |site| run(site, class, &operands, is_backward))?);
    }
    match settings.choice("merge_mode") {
        "concat" => {
            let last = site.dims(made[0]).len() - 1;
            site.push(Op::Concat(last), &made)
        }
        "sum" => merging::add(site, &made),
        "mul" => merging::multiply(site, &made),
        _ => {
            let links = vec![Link::Binary(Binary::Add, 0, 1), Link::Unary(Unary::Scale(0.5), 2)];
            site.push(Op::Elementwise(Chain { inputs: 2, links }), &made)
        }
    }
}

/// Calls what stands within a layer, whose weights have its name in front.
pub(super) fn within(
    site: &mut Site<'_>,
    inner: &Inner,
    name: &str,
    run: impl FnOnce(&mut Site<'_>) -> Result<TensorId, FormatError>,
) -> Result<TensorId, FormatError> {
    inside(site, inner, format!("{}{name}/", site.within), run)
}

/// The same with all that stands before the names of its weights.
pub(super) fn inside(
    site: &mut Site<'_>,
    inner: &Inner,
    before: String,
    run: impl FnOnce(&mut Site<'_>) -> Result<TensorId, FormatError>,
) -> Result<TensorId, FormatError> {
    let settings: &Settings = &inner.settings;
    if settings.activity().is_some() {
        let supported = "null within another layer: give it to the layer around";
        return Err(site.unsupported("activity_regularizer", "what is given", supported));
    }
    run(&mut Site {
        graph: &mut *site.graph,
        settings,
        path: site.path,
        class: site.class,
        layer: site.layer,
        trainable: site.trainable && settings.flag("trainable"),
        training: site.training,
        call: site.call,
        seed: site.seed,
        within: before,
        weights: &mut *site.weights,
        masks: site.masks.clone(),
        further: &mut *site.further,
    })
}
