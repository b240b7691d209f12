//! What each layer adds to the graph: one function a class, found by an exhaustive match.

mod activations;
mod adaptive;
mod attention;
mod augmentation;
mod cells;
mod convolution;
mod einsum;
mod further;
mod input;
mod masks;
mod merging;
mod noise;
mod normalization;
mod pooling;
mod recurrent;
mod scaling;
mod sequences;
mod shaping;
mod spatial;
mod time_distributed;
mod volume;
mod weighted;

use memfit_ir::TensorId;

use crate::error::FormatError;
use crate::site::Site;
use crate::table::Class;

pub(crate) use input::input;
pub(crate) use masks::mask;
pub(crate) use merging::merge;
pub(crate) use time_distributed::MOST_STEPS;

/// Calls a layer on its operands, whose number the table has checked.
pub(crate) fn call(
    site: &mut Site<'_>,
    class: Class,
    operands: &[TensorId],
) -> Result<TensorId, FormatError> {
    let first = operands[0];
    match class {
        Class::InputLayer => Ok(first),
        Class::Dense => weighted::dense(site, first),
        Class::Embedding => weighted::embedding(site, first),
        Class::Conv2D => convolution::conv2d(site, first),
        Class::DepthwiseConv2D => convolution::depthwise_conv2d(site, first),
        Class::MaxPooling2D => pooling::max(site, first),
        Class::AveragePooling2D => pooling::average(site, first),
        Class::GlobalAveragePooling2D => pooling::global_average(site, first),
        Class::GlobalMaxPooling2D => pooling::global_max(site, first),
        Class::GlobalAveragePooling1D => pooling::global_average_1d(site, first),
        Class::GlobalMaxPooling1D => pooling::global_max_1d(site, first),
        Class::EinsumDense => einsum::dense(site, first),
        Class::Attention => attention::dot_product(site, operands),
        Class::MultiHeadAttention => attention::multi_head(site, operands),
        Class::GroupQueryAttention => attention::grouped_query(site, operands),
        Class::Lstm | Class::Gru | Class::SimpleRnn => recurrent::layer(site, class, operands),
        Class::Bidirectional => recurrent::bidirectional(site, operands),
        Class::TimeDistributed => time_distributed::time_distributed(site, first),
        Class::RandomFlip => augmentation::flip(site, first),
        Class::RandomCrop => augmentation::crop(site, first),
        Class::RandomRotation => augmentation::rotation(site, first),
        Class::RandomTranslation => augmentation::translation(site, first),
        Class::RandomZoom => augmentation::zoom(site, first),
        Class::RandomContrast => augmentation::contrast(site, first),
        Class::RandomBrightness => augmentation::brightness(site, first),
        Class::Flatten => shaping::flatten(site, first),
        Class::Reshape => shaping::reshape(site, first),
        Class::ZeroPadding2D => shaping::zero_padding(site, first),
        Class::UpSampling2D => shaping::up_sampling(site, first),
        Class::Dropout => activations::dropout(site, first),
        Class::Rescaling => activations::rescaling(site, first),
        Class::Activation | Class::ReLU | Class::LeakyReLU | Class::Elu | Class::Softmax => {
            activations::layer(site, class, first)
        }
        Class::BatchNormalization => normalization::batch(site, first),
        Class::LayerNormalization => normalization::layer(site, first),
        Class::Add => merging::add(site, operands),
        Class::Subtract => merging::subtract(site, operands),
        Class::Multiply => merging::multiply(site, operands),
        Class::Average => merging::average(site, operands),
        Class::Maximum => merging::maximum(site, operands),
        Class::Concatenate => merging::concatenate(site, operands),
        Class::Further(kind) => further::call(site, kind, operands),
        Class::Spatial(kind) => spatial::call(site, kind, operands),
    }
}

/// An axis as Keras counts it (the batch is 0, -1 the last), counted after the batch instead.
pub(crate) fn axis_after_batch(axis: i64, dims: usize) -> Option<usize> {
    let rank = i64::try_from(dims).ok()? + 1;
    let counted = if axis < 0 { axis + rank } else { axis };
    if 1 <= counted && counted < rank { usize::try_from(counted - 1).ok() } else { None }
}
