//! The layers of the table's spatial part: which function builds each, and those that are an op of their own.

use memfit_ir::{Interpolation, Op, Pads, TensorId};

use super::sequences::{self, as_image};
use super::{axis_after_batch, convolution, noise, pooling, scaling};
use crate::error::FormatError;
use crate::site::Site;
use crate::spatial_table::Spatial;

pub(super) fn call(
    site: &mut Site<'_>,
    class: Spatial,
    operands: &[TensorId],
) -> Result<TensorId, FormatError> {
    let x = operands[0];
    match class {
        Spatial::Conv1D => as_image(site, x, convolution::conv2d),
        Spatial::DepthwiseConv1D => as_image(site, x, convolution::depthwise_conv2d),
        Spatial::SeparableConv1D => as_image(site, x, convolution::separable_conv2d),
        Spatial::SeparableConv2D => convolution::separable_conv2d(site, x),
        Spatial::Conv1DTranspose => as_image(site, x, convolution::conv2d_transpose),
        Spatial::Conv2DTranspose => convolution::conv2d_transpose(site, x),
        Spatial::MaxPooling1D => as_image(site, x, pooling::max),
        Spatial::AveragePooling1D => as_image(site, x, pooling::average),
        Spatial::Cropping1D => sequences::cropping(site, x),
        Spatial::Cropping2D => site.push(Op::Crop2D(site.settings.margins("cropping")), &[x]),
        Spatial::ZeroPadding1D => sequences::zero_padding(site, x),
        Spatial::UpSampling1D => sequences::up_sampling(site, x),
        Spatial::RepeatVector => sequences::repeat_vector(site, x),
        Spatial::Permute => permute(site, x),
        Spatial::Identity => Ok(x),
        Spatial::Resizing => resizing(site, x),
        Spatial::CenterCrop => center_crop(site, x),
        Spatial::Normalization => scaling::normalization(site, x),
        Spatial::GroupNormalization => scaling::group_normalization(site, x),
        Spatial::PRelu => scaling::prelu(site, x),
        Spatial::LayerScale => scaling::layer_scale(site, x),
        Spatial::CustomScale => scaling::custom_scale(site, operands),
        Spatial::ChannelDropout1D | Spatial::ChannelDropout2D => noise::spatial_dropout(site, x),
        Spatial::GaussianDropout => noise::gaussian_dropout(site, x),
        Spatial::GaussianNoise => noise::gaussian_noise(site, x),
        Spatial::AlphaDropout => noise::alpha_dropout(site, x),
        Spatial::StochasticDepth => noise::stochastic_depth(site, x),
    }
}

fn permute(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let axes = site.dims(x).len();
    let listed = site.settings.integers("dims").unwrap_or_default();
    let order: Option<Vec<usize>> = listed.iter().map(|axis| axis_after_batch(*axis, axes)).collect();
    let is_order = |order: &Vec<usize>| order.len() == axes && (0..axes).all(|axis| order.contains(&axis));
    match order.filter(is_order) {
        Some(order) => site.push(Op::Transpose(order), &[x]),
        None => {
            let supported = format!("the axes 1 to {axes} in some order");
            Err(site.unsupported("dims", format!("{listed:?}"), &supported))
        }
    }
}

fn resizing(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let size = [site.settings.size("height"), site.settings.size("width")];
    let interpolation = match site.settings.choice("interpolation") {
        "nearest" => Interpolation::Nearest,
        _ => Interpolation::Bilinear,
    };
    site.push(Op::Resize2D(size, interpolation), &[x])
}

fn center_crop(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let [height, width, _] = site.image(x)?;
    let size = [site.settings.size("height"), site.settings.size("width")];
    let (Some(rows), Some(columns)) = (height.checked_sub(size[0]), width.checked_sub(size[1])) else {
        let supported = format!("at most {height}: a Resizing layer makes images larger");
        return Err(site.unsupported("height", size[0], &supported));
    };
    let (top, left) = (rows / 2, columns / 2);
    site.push(Op::Crop2D(Pads { top, bottom: rows - top, left, right: columns - left }), &[x])
}
