//! Masks as Keras passes them on: which layers make one, keep it, use it up or lose it.

use memfit_ir::{Binary, Chain, DType, Mask, Op, TensorId};

use super::axis_after_batch;
use crate::error::FormatError;
use crate::further_table::Further;
use crate::site::Site;
use crate::spatial_table::Spatial;
use crate::table::Class;

/// The mask of what a layer gave. A layer that Keras says nothing about loses it, as there.
pub(crate) fn mask(
    site: &mut Site<'_>,
    class: Class,
    operands: &[TensorId],
) -> Result<Option<TensorId>, FormatError> {
    if class == Class::Embedding {
        let makes = site.settings.flag("mask_zero");
        return if makes { site.push(Op::Mask(Mask::NotZero), operands).map(Some) } else { Ok(None) };
    }
    if class == Class::Further(Further::Masking) {
        return of_values(site, operands[0]).map(Some);
    }
    if site.masks.iter().all(Option::is_none) {
        return Ok(None);
    }
    let refused = |site: &Site<'_>| Err(site.unsupported("mask", "given", "none for this layer"));
    match class {
        Class::Add | Class::Subtract | Class::Multiply | Class::Average => any_of(site),
        Class::Concatenate => concatenated(site, operands),
        Class::Maximum | Class::Further(Further::Minimum) | Class::Softmax => refused(site),
        Class::BatchNormalization if site.training && site.trainable => refused(site),
        Class::Lstm | Class::Gru | Class::SimpleRnn | Class::Further(Further::Rnn) => {
            Ok(site.mask(0).filter(|_| site.settings.flag("return_sequences")))
        }
        Class::Bidirectional => {
            let inner = site.settings.inner("layer");
            Ok(site.mask(0).filter(|_| inner.is_some_and(|inner| inner.settings.flag("return_sequences"))))
        }
        Class::InputLayer
        | Class::Dense
        | Class::Dropout
        | Class::BatchNormalization
        | Class::LayerNormalization
        | Class::Activation
        | Class::ReLU
        | Class::LeakyReLU
        | Class::Elu
        | Class::Rescaling
        | Class::TimeDistributed
        | Class::Attention
        | Class::MultiHeadAttention
        | Class::GroupQueryAttention => Ok(site.mask(0)),
        Class::Spatial(kind) => Ok(site.mask(0).filter(|_| spatial_keeps(kind))),
        Class::Further(kind) => {
            let keeps = matches!(
                kind,
                Further::ActivityRegularization | Further::UnitNormalization | Further::ChannelDropout3D
            );
            Ok(site.mask(0).filter(|_| keeps))
        }
        Class::Embedding
        | Class::Conv2D
        | Class::DepthwiseConv2D
        | Class::MaxPooling2D
        | Class::AveragePooling2D
        | Class::GlobalAveragePooling2D
        | Class::GlobalMaxPooling2D
        | Class::GlobalAveragePooling1D
        | Class::GlobalMaxPooling1D
        | Class::Flatten
        | Class::Reshape
        | Class::ZeroPadding2D
        | Class::UpSampling2D
        | Class::EinsumDense
        | Class::RandomFlip
        | Class::RandomCrop
        | Class::RandomRotation
        | Class::RandomTranslation
        | Class::RandomZoom
        | Class::RandomContrast
        | Class::RandomBrightness => Ok(None),
    }
}

fn spatial_keeps(kind: Spatial) -> bool {
    matches!(
        kind,
        Spatial::AlphaDropout
            | Spatial::GaussianDropout
            | Spatial::GaussianNoise
            | Spatial::GroupNormalization
            | Spatial::Identity
            | Spatial::Normalization
            | Spatial::PRelu
            | Spatial::ChannelDropout1D
            | Spatial::ChannelDropout2D
    )
}

/// Places at which any of a Masking layer's values is not its number.
pub(super) fn of_values(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let value = site.settings.number("mask_value") as f32;
    let is_single = site.graph.tensors[x.0].dtype == DType::F32;
    let x = if is_single { x } else { site.push(Op::Cast(DType::F32), &[x])? };
    site.push(Op::Mask(Mask::AnyOther(value)), &[x])
}

/// Places that count in any of the operands; all of them where one has no mask.
fn any_of(site: &mut Site<'_>) -> Result<Option<TensorId>, FormatError> {
    let Some(masks) = site.masks.iter().copied().collect::<Option<Vec<TensorId>>>() else {
        return Ok(None);
    };
    if masks.windows(2).all(|pair| pair[0] == pair[1]) {
        return Ok(masks.first().copied());
    }
    site.push(Op::Elementwise(Chain::fold(Binary::Maximum, masks.len())), &masks).map(Some)
}

fn concatenated(site: &mut Site<'_>, operands: &[TensorId]) -> Result<Option<TensorId>, FormatError> {
    let axes = site.dims(operands[0]).len();
    let axis = axis_after_batch(site.settings.axis("axis"), axes);
    let Some(axis) = axis.filter(|axis| axis + 1 < axes) else { return any_of(site) };
    match site.masks.iter().copied().collect::<Option<Vec<TensorId>>>() {
        Some(masks) if axis < site.dims(masks[0]).len() => site.push(Op::Concat(axis), &masks).map(Some),
        Some(_) => any_of(site),
        None => Err(site.unsupported("mask", "given for some inputs", "one for each input, or none")),
    }
}
