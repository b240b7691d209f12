//! Margins: zeros put around images, or margins cut off.

use memfit_ir::Operand::{X, Y};
use memfit_ir::Pads;

use super::conv2d::image;
use super::half::Half;
use super::operands::{Element, Operands};

/// Copies images into the middle of zeros.
pub(crate) fn pad(operands: &Operands, pads: &Pads) {
    match Half::of(operands.dtype(X)) {
        None => pad_of::<f32>(operands, pads),
        Some(_) => pad_of::<u16>(operands, pads),
    }
}

fn pad_of<T: Element + Default>(operands: &Operands, pads: &Pads) {
    let [height, width, channels] = image(operands.shape(X));
    let [height_padded, width_padded, _] = image(operands.shape(Y));
    let (x, y) = (operands.input::<T>(X), operands.output::<T>(Y));
    operands.threads.for_each_chunk(y, (width_padded * channels).max(1), |line, to| {
        let (row, down) = (line / height_padded, line % height_padded);
        if down < pads.top || pads.top + height <= down {
            return to.fill(T::default());
        }
        let from = &x[(row * height + down - pads.top) * width * channels..][..width * channels];
        let (before, rest) = to.split_at_mut(pads.left * channels);
        let (middle, after) = rest.split_at_mut(width * channels);
        before.fill(T::default());
        middle.copy_from_slice(from);
        after.fill(T::default());
    });
}

/// Copies the middle of images.
pub(crate) fn crop(operands: &Operands, pads: &Pads) {
    match Half::of(operands.dtype(X)) {
        None => crop_of::<f32>(operands, pads),
        Some(_) => crop_of::<u16>(operands, pads),
    }
}

fn crop_of<T: Element>(operands: &Operands, pads: &Pads) {
    let [height, width, channels] = image(operands.shape(X));
    let [height_cropped, width_cropped, _] = image(operands.shape(Y));
    let (x, y) = (operands.input::<T>(X), operands.output::<T>(Y));
    operands.threads.for_each_chunk(y, (width_cropped * channels).max(1), |line, to| {
        let (row, down) = (line / height_cropped, line % height_cropped);
        let start = ((row * height + down + pads.top) * width + pads.left) * channels;
        to.copy_from_slice(&x[start..start + to.len()]);
    });
}
