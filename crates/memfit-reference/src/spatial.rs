//! Images with other margins and of other sizes, and the gradients of the latter.

use memfit_ir::{Interpolation, Pads};

use super::call::{Call, image, indices};

/// Zeros around images.
pub(crate) fn pad(call: &Call, pads: &Pads) -> Vec<f64> {
    moved(call, |[y, x]| [y.wrapping_sub(pads.top), x.wrapping_sub(pads.left)])
}

/// Images without margins.
pub(crate) fn crop(call: &Call, pads: &Pads) -> Vec<f64> {
    moved(call, |[y, x]| [y + pads.top, x + pads.left])
}

/// Each output pixel is an input pixel, or 0 where that lies outside.
fn moved(call: &Call, from: impl Fn([usize; 2]) -> [usize; 2]) -> Vec<f64> {
    let ([height, width, channels], out) = (image(call.dims(0)), image(call.output_dims(0)));
    let mut to = Vec::new();
    for row in 0..call.rows() {
        for [down, across, channel] in indices(out) {
            let [y, x] = from([down, across]);
            let is_inside = y < height && x < width;
            let at = || ((row * height + y) * width + x) * channels + channel;
            to.push(if is_inside { call.input(0)[at()] } else { 0.0 });
        }
    }
    to
}

/// Images of another size.
pub(crate) fn resize(call: &Call, how: Interpolation) -> Vec<f64> {
    let (from, to) = (image(call.dims(0)), image(call.output_dims(0)));
    let mut y = vec![0.0; call.rows() * to.iter().product::<usize>()];
    for_each_share(call.rows(), from, to, how, |read, written, share| {
        y[written] += share * call.input(0)[read];
    });
    y
}

/// Every `dy` shared out to the pixels that it was computed from.
pub(crate) fn resize_grad(call: &Call, how: Interpolation) -> Vec<f64> {
    let (from, to) = (image(call.output_dims(0)), image(call.dims(0)));
    let mut dx = vec![0.0; call.rows() * from.iter().product::<usize>()];
    for_each_share(call.rows(), from, to, how, |read, written, share| {
        dx[read] += share * call.input(0)[written];
    });
    dx
}

/// Calls back for each element of the images that are resized and each element that it counts in, with its share.
fn for_each_share(
    rows: usize,
    from: [usize; 3],
    to: [usize; 3],
    how: Interpolation,
    mut each: impl FnMut(usize, usize, f64),
) {
    let index = |[height, width, channels]: [usize; 3], row: usize, y: usize, x: usize, channel: usize| {
        ((row * height + y) * width + x) * channels + channel
    };
    for row in 0..rows {
        for [down, across, channel] in indices(to) {
            for (y, high) in sources(how, down, from[0], to[0]) {
                for (x, wide) in sources(how, across, from[1], to[1]) {
                    let (read, written) =
                        (index(from, row, y, x, channel), index(to, row, down, across, channel));
                    // A pixel without a share has none of what is not finite either.
                    if high * wide != 0.0 {
                        each(read, written, high * wide);
                    }
                }
            }
        }
    }
}

/// The pixels along an axis that a pixel of the result is computed from, with half-pixel centres, and their shares.
fn sources(how: Interpolation, place: usize, from: usize, to: usize) -> Vec<(usize, f64)> {
    let centre = (place as f64 + 0.5) * from as f64 / to as f64;
    let inside = |pixel: f64| pixel.clamp(0.0, (from - 1) as f64) as usize;
    match how {
        Interpolation::Nearest => vec![(inside(centre.floor()), 1.0)],
        Interpolation::Bilinear => {
            let above = (centre - 0.5).floor();
            let share = centre - 0.5 - above;
            vec![(inside(above), 1.0 - share), (inside(above + 1.0), share)]
        }
    }
}
