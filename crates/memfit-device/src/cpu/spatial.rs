//! Margins: zeros put around images, or margins cut off.

use memfit_ir::Pads;

use super::conv2d::image;
use super::operands::Operands;

/// Copies images into the middle of zeros.
pub(crate) fn pad(operands: &Operands, pads: &Pads) {
    let [height, width, channels] = image(operands.input_shape(0));
    let [height_padded, width_padded, _] = image(operands.output_shape(0));
    let (x, y) = (operands.input::<f32>(0), operands.output::<f32>(0));
    operands.threads.for_each_chunk(y, (width_padded * channels).max(1), |line, to| {
        let (row, down) = (line / height_padded, line % height_padded);
        if down < pads.top || pads.top + height <= down {
            return to.fill(0.0);
        }
        let from = &x[(row * height + down - pads.top) * width * channels..][..width * channels];
        let (before, rest) = to.split_at_mut(pads.left * channels);
        let (middle, behind) = rest.split_at_mut(width * channels);
        before.fill(0.0);
        middle.copy_from_slice(from);
        behind.fill(0.0);
    });
}

/// Copies the middle of images.
pub(crate) fn crop(operands: &Operands, pads: &Pads) {
    let [height, width, channels] = image(operands.input_shape(0));
    let [height_cropped, width_cropped, _] = image(operands.output_shape(0));
    let (x, y) = (operands.input::<f32>(0), operands.output::<f32>(0));
    operands.threads.for_each_chunk(y, (width_cropped * channels).max(1), |line, to| {
        let (row, down) = (line / height_cropped, line % height_cropped);
        let start = ((row * height + down + pads.top) * width + pads.left) * channels;
        to.copy_from_slice(&x[start..start + to.len()]);
    });
}
