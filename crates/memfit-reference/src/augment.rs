//! Images changed at random: draws belong to seed, step and row.

use memfit_ir::{Augment, Change, Fill, Interpolation, Sampling, random};

use super::call::{Call, image, indices};
use super::noise::seed;

/// Numbers that one row draws.
const DRAWS: u64 = 4;

/// Every image changed.
pub(crate) fn forward(call: &Call, augment: &Augment) -> Vec<f64> {
    let [height, width, channels] = image(call.dims(0));
    let size = image(call.output_dims(0));
    let seed = seed(call, augment.seed);
    let mut y = Vec::new();
    for (row, values) in call.input(0).chunks(height * width * channels).enumerate() {
        let from = Image { values, height, width, channels };
        let draws = Draws { seed, row: (call.context.row_start + row) as u64 };
        y.extend(changed(&from, size, &augment.change, &draws));
    }
    y
}

/// What one row draws.
struct Draws {
    seed: u64,
    row: u64,
}

impl Draws {
    /// A number of a range.
    fn within(&self, number: u64, [low, high]: [f32; 2]) -> f64 {
        let unit = f64::from(random::unit(self.seed, self.row * DRAWS + number));
        f64::from(low) + (f64::from(high) - f64::from(low)) * unit
    }

    /// A place from 0 to `most`, the same for all rows.
    fn shared_place(&self, number: u64, most: usize) -> usize {
        let share = f64::from(random::unit(self.seed, number));
        ((share * (most + 1) as f64) as usize).min(most)
    }
}

struct Image<'a> {
    values: &'a [f64],
    height: usize,
    width: usize,
    channels: usize,
}

impl Image<'_> {
    fn at(&self, y: usize, x: usize, channel: usize) -> f64 {
        self.values[(y * self.width + x) * self.channels + channel]
    }
}

fn changed(from: &Image, size: [usize; 3], change: &Change, draws: &Draws) -> Vec<f64> {
    let Image { values, height, width, channels } = *from;
    let pixels = |of: &dyn Fn([usize; 3]) -> f64| indices(size).map(of).collect::<Vec<f64>>();
    let [middle_x, middle_y] = [(width as f64 - 1.0) / 2.0, (height as f64 - 1.0) / 2.0];
    match *change {
        Change::Flip { horizontal, vertical } => {
            let flips = draws.within(0, [0.0, 1.0]) <= 0.5;
            let mirrored = |wanted: bool, place: usize, length: usize| {
                if flips && wanted { length - 1 - place } else { place }
            };
            pixels(&|[y, x, channel]| {
                from.at(mirrored(vertical, y, height), mirrored(horizontal, x, width), channel)
            })
        }
        Change::Crop { height: rows, width: columns } => {
            let top = draws.shared_place(0, height - rows);
            let left = draws.shared_place(1, width - columns);
            pixels(&|[y, x, channel]| from.at(top + y, left + x, channel))
        }
        Change::Rotate { turns, sampling } => {
            let (sine, cosine) = (draws.within(0, turns) * std::f64::consts::TAU).sin_cos();
            pixels(&|[y, x, channel]| {
                let (x, y) = (x as f64 - middle_x, y as f64 - middle_y);
                let point = [middle_y + sine * x + cosine * y, middle_x + cosine * x - sine * y];
                sample(from, &sampling, point, channel)
            })
        }
        Change::Translate { height: downwards, width: sideways, sampling } => {
            let down = draws.within(0, downwards) * height as f64;
            let right = draws.within(1, sideways) * width as f64;
            pixels(&|[y, x, channel]| sample(from, &sampling, [y as f64 - down, x as f64 - right], channel))
        }
        Change::Zoom { height: tall, width: wide, sampling } => {
            let vertical = 1.0 + draws.within(0, tall);
            let horizontal = wide.map_or(vertical, |wide| 1.0 + draws.within(1, wide));
            pixels(&|[y, x, channel]| {
                let point = [
                    middle_y + (y as f64 - middle_y) * vertical,
                    middle_x + (x as f64 - middle_x) * horizontal,
                ];
                sample(from, &sampling, point, channel)
            })
        }
        Change::Contrast { factor, range } => {
            let factor = draws.within(0, factor);
            let mean = |channel: usize| {
                values.iter().skip(channel).step_by(channels).sum::<f64>() / (height * width) as f64
            };
            let means: Vec<f64> = (0..channels).map(mean).collect();
            pixels(&|[y, x, channel]| {
                cut((from.at(y, x, channel) - means[channel]) * factor + means[channel], range.map(f64::from))
            })
        }
        Change::Brightness { share, range } => {
            let range = range.map(f64::from);
            let more = draws.within(0, share) * (range[1] - range[0]);
            values.iter().map(|value| cut(value + more, range)).collect()
        }
    }
}

/// What is not a number stays so.
fn cut(value: f64, [low, high]: [f64; 2]) -> f64 {
    value.clamp(low, high)
}

/// The image at a point between its pixels, or outside.
fn sample(from: &Image, sampling: &Sampling, [y, x]: [f64; 2], channel: usize) -> f64 {
    let y = place(sampling.fill, y, from.height);
    let x = place(sampling.fill, x, from.width);
    let read = |y: f64, x: f64| {
        let is_inside = 0.0 <= y && y < from.height as f64 && 0.0 <= x && x < from.width as f64;
        match sampling.fill {
            Fill::Constant(_) | Fill::Nearest | Fill::Reflect | Fill::Wrap if is_inside => {
                from.at(y as usize, x as usize, channel)
            }
            Fill::Constant(value) => f64::from(value),
            // Past the last pixel, with a share of 0.
            Fill::Nearest | Fill::Reflect | Fill::Wrap => 0.0,
        }
    };
    match sampling.interpolation {
        Interpolation::Nearest => read(y.round(), x.round()),
        Interpolation::Bilinear => {
            let (top, left) = (y.floor(), x.floor());
            let (lower, right) = (y - top, x - left);
            let line = |y: f64| (1.0 - right) * read(y, left) + right * read(y, left + 1.0);
            (1.0 - lower) * line(top) + lower * line(top + 1.0)
        }
    }
}

/// A place brought into the image, as TensorFlow does it.
fn place(fill: Fill, place: f64, length: usize) -> f64 {
    let size = length as f64;
    let (last, twice) = (size - 1.0, 2.0 * size);
    let inside = match fill {
        Fill::Constant(_) => return place,
        Fill::Nearest => place,
        Fill::Reflect | Fill::Wrap if length <= 1 => 0.0,
        Fill::Reflect if place < 0.0 => {
            let shifted = twice * (-place / twice).trunc() + place;
            if shifted < -size { shifted + twice } else { -shifted - 1.0 }
        }
        Fill::Reflect if last < place => {
            let shifted = place - twice * (place / twice).trunc();
            if size <= shifted { twice - shifted - 1.0 } else { shifted }
        }
        Fill::Wrap if place < 0.0 => place + size * ((-place / last).trunc() + 1.0),
        Fill::Wrap if last < place => place - size * (place / last).trunc(),
        Fill::Reflect | Fill::Wrap => place,
    };
    cut(inside, [0.0, last])
}
