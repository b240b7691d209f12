//! Pools: of windows, and of whole images.

use memfit_ir::Pool2D;

use super::call::{Call, image, indices};

/// The maximum of each window and its place in the window, the first of equal ones. With a ReLU, what is not positive becomes 0 and
/// has no argmax.
pub(crate) fn max(call: &Call, pool: &Pool2D, relu: bool) -> Vec<Vec<f64>> {
    let x = call.input(0);
    let (mut y, mut argmax) = (Vec::new(), Vec::new());
    for_each_window(call.rows(), pool, image(call.dims(0)), image(call.output_dims(0)), |_, window| {
        let mut most = f64::NEG_INFINITY;
        let mut place = window.first().map_or(0, |(place, _)| *place);
        for (at, pixel) in window {
            if x[*pixel] > most || (x[*pixel].is_nan() && !most.is_nan()) {
                (most, place) = (x[*pixel], *at);
            }
        }
        if relu && (most <= 0.0 || most.is_nan()) {
            (most, place) = (if most.is_nan() { most } else { 0.0 }, usize::from(Pool2D::NO_ARGMAX));
        }
        y.push(most);
        argmax.push(place as f64);
    });
    vec![y, argmax]
}

/// Every `dy` at the place of its maximum.
pub(crate) fn max_grad(call: &Call, pool: &Pool2D) -> Vec<f64> {
    let (dy, argmax) = (call.input(0), call.input(1));
    let large = image(call.output_dims(0));
    let mut dx = vec![0.0; call.rows() * large.iter().product::<usize>()];
    for_each_window(call.rows(), pool, large, image(call.dims(0)), |window, pixels| {
        for (place, pixel) in pixels {
            if argmax[window] == *place as f64 {
                dx[*pixel] += dy[window];
            }
        }
    });
    dx
}

/// The sum of `dy` over every axis but the last, of windows that have an argmax.
pub(crate) fn max_bias_grad(call: &Call) -> Vec<f64> {
    let mut sums = vec![0.0; call.last(0)];
    for (index, (dy, argmax)) in call.input(0).iter().zip(call.input(1)).enumerate() {
        let column = index % sums.len();
        sums[column] += if *argmax == f64::from(Pool2D::NO_ARGMAX) { 0.0 } else { *dy };
    }
    sums
}

/// The mean of each window; margins do not count.
pub(crate) fn average(call: &Call, pool: &Pool2D) -> Vec<f64> {
    let x = call.input(0);
    let mut y = Vec::new();
    for_each_window(call.rows(), pool, image(call.dims(0)), image(call.output_dims(0)), |_, window| {
        y.push(window.iter().map(|(_, pixel)| x[*pixel]).sum::<f64>() / window.len() as f64);
    });
    y
}

/// An equal share of `dy` for each pixel of its window.
pub(crate) fn average_grad(call: &Call, pool: &Pool2D) -> Vec<f64> {
    let dy = call.input(0);
    let large = image(call.output_dims(0));
    let mut dx = vec![0.0; call.rows() * large.iter().product::<usize>()];
    for_each_window(call.rows(), pool, large, image(call.dims(0)), |window, pixels| {
        for (_, pixel) in pixels {
            dx[*pixel] += dy[window] / pixels.len() as f64;
        }
    });
    dx
}

/// Calls back for every window, with its index and its elements inside the image: their place in the window, and their index.
fn for_each_window(
    rows: usize,
    pool: &Pool2D,
    [height, width, channels]: [usize; 3],
    [down, across, _]: [usize; 3],
    mut each: impl FnMut(usize, &[(usize, usize)]),
) {
    let mut index = 0;
    for row in 0..rows {
        for [oy, ox, channel] in indices([down, across, channels]) {
            let mut window = Vec::new();
            for [ky, kx, _] in indices([pool.window[0], pool.window[1], 1]) {
                let y = (oy * pool.strides[0] + ky).wrapping_sub(pool.pads.top);
                let x = (ox * pool.strides[1] + kx).wrapping_sub(pool.pads.left);
                if y < height && x < width {
                    let pixel = ((row * height + y) * width + x) * channels + channel;
                    window.push((ky * pool.window[1] + kx, pixel));
                }
            }
            each(index, &window);
            index += 1;
        }
    }
}

/// The mean over height and width.
pub(crate) fn global_average(call: &Call) -> Vec<f64> {
    let mean = |channel: Vec<f64>| channel.iter().sum::<f64>() / channel.len() as f64;
    channels_of(call).map(mean).collect()
}

/// An equal share of `dy` for each pixel.
pub(crate) fn global_average_grad(call: &Call) -> Vec<f64> {
    let [height, width, channels] = image(call.output_dims(0));
    let (dy, pixels) = (call.input(0), height * width);
    let share = |index: usize| dy[index / (pixels * channels) * channels + index % channels] / pixels as f64;
    (0..call.rows() * pixels * channels).map(share).collect()
}

/// The maximum over height and width, and its pixel, the first of equal ones.
pub(crate) fn global_max(call: &Call) -> Vec<Vec<f64>> {
    let (mut y, mut argmax) = (Vec::new(), Vec::new());
    for channel in channels_of(call) {
        let (mut most, mut place) = (f64::NEG_INFINITY, 0);
        for (pixel, value) in channel.iter().enumerate() {
            if *value > most || (value.is_nan() && !most.is_nan()) {
                (most, place) = (*value, pixel);
            }
        }
        y.push(most);
        argmax.push(place as f64);
    }
    vec![y, argmax]
}

/// `dy` at the pixel of the maximum.
pub(crate) fn global_max_grad(call: &Call) -> Vec<f64> {
    let [height, width, channels] = image(call.output_dims(0));
    let (dy, argmax, pixels) = (call.input(0), call.input(1), height * width);
    let mut dx = vec![0.0; call.rows() * pixels * channels];
    for (index, (dy, pixel)) in dy.iter().zip(argmax).enumerate() {
        let (row, channel) = (index / channels, index % channels);
        dx[(row * pixels + *pixel as usize) * channels + channel] = *dy;
    }
    dx
}

/// The pixels of each channel of each image.
fn channels_of<'a>(call: &Call<'a>) -> impl Iterator<Item = Vec<f64>> + use<'a> {
    let [height, width, channels] = image(call.dims(0));
    let images = call.input(0).chunks(height * width * channels);
    images.flat_map(move |image| {
        (0..channels).map(move |channel| image.iter().skip(channel).step_by(channels).copied().collect())
    })
}
