//! Convolutions of volumes, and of images as volumes of depth 1.
//!
//! One loop meets every term `x · kernel` that an element of `y` sums; the value and both gradients follow from it.

use memfit_ir::{Conv2D, Conv3D};

use super::call::{Call, indices as places};

/// A convolution of images as one of volumes.
pub(crate) fn in_volume(conv: &Conv2D) -> Conv3D {
    let with_depth = |[height, width]: [usize; 2]| [1, height, width];
    Conv3D {
        kernel: with_depth(conv.kernel),
        strides: with_depth(conv.strides),
        dilation: with_depth(conv.dilation),
        groups: conv.groups,
        pads: [[0, 0], [conv.pads.top, conv.pads.bottom], [conv.pads.left, conv.pads.right]],
    }
}

/// `y[window,filter] = Σ x[window + tap,channel] · kernel[tap,channel,filter] + bias[filter]`.
pub(crate) fn forward(call: &Call, conv: &Conv3D) -> Vec<f64> {
    let (x, kernel, bias) = (call.input(0), call.input(1), call.inputs.get(2));
    let (large, small) = (volume(call.dims(0)), volume(call.output_dims(0)));
    let mut all = Vec::new();
    for x in x.chunks(large.iter().product()) {
        let of_bias = |index: usize| bias.map_or(0.0, |bias| bias[index % small[3]]);
        let mut y: Vec<f64> = (0..small.iter().product()).map(of_bias).collect();
        for_each_term(conv, large, small, |from, tap, to| y[to] += x[from] * kernel[tap]);
        all.extend(y);
    }
    all
}

/// Every `dy` spread over the elements that its sum has read.
pub(crate) fn grad_input(call: &Call, conv: &Conv3D) -> Vec<f64> {
    let (dy, kernel) = (call.input(0), call.input(1));
    let (large, small) = (volume(call.output_dims(0)), volume(call.dims(0)));
    let mut all = Vec::new();
    for dy in dy.chunks(small.iter().product()) {
        let mut dx = vec![0.0; large.iter().product()];
        for_each_term(conv, large, small, |from, tap, to| dx[from] += dy[to] * kernel[tap]);
        all.extend(dx);
    }
    all
}

/// Every `dy` times the elements that its sum has read.
pub(crate) fn grad_kernel(call: &Call, conv: &Conv3D) -> Vec<f64> {
    let (large, small) = (volume(call.dims(0)), volume(call.dims(1)));
    let mut dkernel = vec![0.0; call.updates[0].len()];
    let rows = call.input(0).chunks(large.iter().product());
    for (x, dy) in rows.zip(call.input(1).chunks(small.iter().product())) {
        for_each_term(conv, large, small, |from, tap, to| dkernel[tap] += x[from] * dy[to]);
    }
    dkernel
}

fn volume(dims: &[usize]) -> [usize; 4] {
    match *dims {
        [depth, height, width, channels] => [depth, height, width, channels],
        [height, width, channels] => [1, height, width, channels],
        ref other => panic!("the shape rules let only images and volumes in, not {other:?}"),
    }
}

/// Calls back for every term of a convolution of one row, with its indices in `x`, in the kernel and in `y`.
fn for_each_term(
    conv: &Conv3D,
    large: [usize; 4],
    small: [usize; 4],
    mut term: impl FnMut(usize, usize, usize),
) {
    let (channels, filters) = (large[3] / conv.groups, small[3] / conv.groups);
    let index = |dims: [usize; 4], place: [usize; 3], last: usize| {
        ((place[0] * dims[1] + place[1]) * dims[2] + place[2]) * dims[3] + last
    };
    for window in places([small[0], small[1], small[2]]) {
        for tap in places(conv.kernel) {
            let at = [0, 1, 2].map(|axis| {
                // A place in the margin before the volume wraps around to one past its end.
                (window[axis] * conv.strides[axis] + tap[axis] * conv.dilation[axis])
                    .wrapping_sub(conv.pads[axis][0])
            });
            if (0..3).any(|axis| large[axis] <= at[axis]) {
                continue;
            }
            let tap = (tap[0] * conv.kernel[1] + tap[1]) * conv.kernel[2] + tap[2];
            for filter in 0..small[3] {
                for channel in 0..channels {
                    let from = filter / filters * channels + channel;
                    let weight = (tap * channels + channel) * small[3] + filter;
                    term(index(large, at, from), weight, index(small, window, filter));
                }
            }
        }
    }
}
