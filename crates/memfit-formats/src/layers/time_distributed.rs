//! A layer on every step of a sequence by itself.

use memfit_ir::{Op, TensorId};

use super::call;
use super::recurrent::within;
use crate::error::FormatError;
use crate::further_table::Further;
use crate::settings::Inner;
use crate::site::Site;
use crate::table::{Class, Inputs};

/// The most steps that are called one by one: each is nodes of its own.
pub(crate) const MOST_STEPS: usize = 256;

pub(super) fn time_distributed(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let inner = site.settings.inner("layer").expect("the table asks for a layer");
    let dims = site.dims(x).to_vec();
    let Some((steps, rest)) = dims.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return Err(site.mismatch("a sequence [batch,steps,…]", x));
    };
    let class = inner.row.class;
    if class == Class::Flatten {
        return site.push(Op::Reshape(vec![*steps, rest.iter().product()]), &[x]);
    }
    // What works along the last axis works on every step already.
    let by_last_axis = matches!(
        class,
        Class::Dense
            | Class::Dropout
            | Class::Rescaling
            | Class::Activation
            | Class::ReLU
            | Class::LeakyReLU
            | Class::Elu
            | Class::LayerNormalization
            | Class::Embedding
    );
    if by_last_axis {
        return within(site, inner, &inner.name(), |site| call(site, class, &[x]));
    }
    refuse(site, inner, *steps)?;
    let mut made = Vec::with_capacity(*steps);
    for step in 0..*steps {
        let one = site.push(Op::Slice { axis: 0, start: step, length: 1 }, &[x])?;
        let one = site.push(Op::Reshape(rest.to_vec()), &[one])?;
        let y = within(site, inner, &inner.name(), |site| {
            // Every step has draws of its own, and a mask of steps is none of its places.
            site.call = site.call * *steps as u64 + step as u64;
            site.masks = Vec::new();
            call(site, class, &[one])
        })?;
        let dims: Vec<usize> = std::iter::once(1).chain(site.dims(y).iter().copied()).collect();
        made.push(site.push(Op::Reshape(dims), &[y])?);
    }
    if made.len() == 1 {
        return Ok(made[0]);
    }
    site.push(Op::Concat(0), &made)
}

/// Whether a layer gives its states after its output.
fn returns_states(inner: &Inner) -> bool {
    if inner.row.class == Class::Bidirectional {
        return inner.settings.inner("layer").is_some_and(returns_states);
    }
    inner.row.inputs == Inputs::States && inner.settings.flag("return_state")
}

/// Refuses what has no meaning for a step, or too many of them.
fn refuse(site: &Site<'_>, inner: &Inner, steps: usize) -> Result<(), FormatError> {
    let (class, name) = (inner.row.class, inner.row.name);
    if returns_states(inner) {
        return Err(site.unsupported("layer", name, "a layer with one output"));
    }
    if !matches!(inner.row.inputs, Inputs::One | Inputs::States) {
        return Err(site.unsupported("layer", name, "a layer of one input"));
    }
    let reads_mask = matches!(
        class,
        Class::Lstm
            | Class::Gru
            | Class::SimpleRnn
            | Class::Further(Further::Rnn)
            | Class::Bidirectional
            | Class::TimeDistributed
            | Class::BatchNormalization
            | Class::Softmax
            | Class::GlobalAveragePooling1D
    );
    if reads_mask && site.mask(0).is_some() {
        return Err(site.unsupported(
            "layer",
            name,
            "a layer that reads no mask, where the sequence has one",
        ));
    }
    if MOST_STEPS < steps {
        let supported = format!("Dense, an activation or the like for more than {MOST_STEPS} steps");
        return Err(site.unsupported("layer", format!("{name} on {steps} steps"), &supported));
    }
    Ok(())
}
