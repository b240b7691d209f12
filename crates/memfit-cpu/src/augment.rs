//! Images changed at random: a task an image, and draws that belong to seed, step and row.

use memfit_ir::Operand::{X, Y};
use memfit_ir::{Augment, Change, Fill, Interpolation, Sampling, random};

use super::operands::Operands;
use super::threads::Shared;

/// Draws of one row.
const DRAWS: u64 = 4;

/// Changes every image.
pub(crate) fn launch(operands: &Operands, augment: &Augment) {
    let (from, to) = (operands.shape(X), operands.shape(Y));
    let [height, width, channels] = from.dims[..] else { panic!("the shape rules let only images in") };
    let (x, y) = (operands.input::<f32>(X), operands.output::<f32>(Y));
    let context = operands.context;
    let seed = random::derive(random::derive(context.seed, augment.seed), context.step);
    let (before, after) = (from.elements_per_row(), to.elements_per_row());
    let y = Shared::new(y);
    operands.threads.for_each(context.rows, |row, _| {
        let image = Image { values: &x[row * before..][..before], height, width, channels };
        let draws = Draws { seed, row: (context.row_start + row) as u64 };
        // SAFETY: every image is one task.
        change(&image, &augment.change, &draws, unsafe { y.slice(row * after..(row + 1) * after) });
    });
}

/// What one row draws.
struct Draws {
    seed: u64,
    row: u64,
}

impl Draws {
    fn within(&self, number: u64, [low, high]: [f32; 2]) -> f32 {
        low + (high - low) * random::unit(self.seed, self.row * DRAWS + number)
    }

    /// A place from 0 to `most`, the same for all rows.
    fn shared_place(&self, number: u64, most: usize) -> usize {
        let share = random::unit(self.seed, number);
        ((share * (most + 1) as f32) as usize).min(most)
    }
}

#[derive(Clone, Copy)]
struct Image<'a> {
    values: &'a [f32],
    height: usize,
    width: usize,
    channels: usize,
}

fn change(image: &Image<'_>, change: &Change, draws: &Draws, to: &mut [f32]) {
    let Image { values, height, width, channels } = *image;
    let centre = [(width as f32 - 1.0) / 2.0, (height as f32 - 1.0) / 2.0];
    match *change {
        Change::Flip { horizontal, vertical } => {
            let flips = draws.within(0, [0.0, 1.0]) <= 0.5;
            for (at, pixel) in to.chunks_exact_mut(channels).enumerate() {
                let (mut row, mut column) = (at / width, at % width);
                row = if flips && vertical { height - 1 - row } else { row };
                column = if flips && horizontal { width - 1 - column } else { column };
                pixel.copy_from_slice(&values[(row * width + column) * channels..][..channels]);
            }
        }
        Change::Crop { height: rows, width: columns } => {
            let top = draws.shared_place(0, height - rows);
            let left = draws.shared_place(1, width - columns);
            for (row, line) in to.chunks_exact_mut(columns * channels).enumerate() {
                let start = ((top + row) * width + left) * channels;
                line.copy_from_slice(&values[start..start + columns * channels]);
            }
        }
        Change::Rotate { turns, sampling } => {
            let (sine, cosine) = (draws.within(0, turns) * std::f32::consts::TAU).sin_cos();
            let across = [cosine, -sine, centre[0] - centre[0] * cosine + centre[1] * sine];
            let down = [sine, cosine, centre[1] - centre[0] * sine - centre[1] * cosine];
            sample(image, &sampling, across, down, to);
        }
        Change::Translate { height: downwards, width: sideways, sampling } => {
            let down = draws.within(0, downwards) * height as f32;
            let right = draws.within(1, sideways) * width as f32;
            sample(image, &sampling, [1.0, 0.0, -right], [0.0, 1.0, -down], to);
        }
        Change::Zoom { height: tall, width: wide, sampling } => {
            let vertical = 1.0 + draws.within(0, tall);
            let horizontal = wide.map_or(vertical, |wide| 1.0 + draws.within(1, wide));
            let across = [horizontal, 0.0, centre[0] * (1.0 - horizontal)];
            let down = [0.0, vertical, centre[1] * (1.0 - vertical)];
            sample(image, &sampling, across, down, to);
        }
        Change::Contrast { factor, range } => {
            let factor = draws.within(0, factor);
            for channel in 0..channels {
                let pixels = || values.iter().skip(channel).step_by(channels);
                let mean = pixels().map(|value| f64::from(*value)).sum::<f64>() / (height * width) as f64;
                let mean = mean as f32;
                for (to, value) in to.iter_mut().skip(channel).step_by(channels).zip(pixels()) {
                    *to = cut((*value - mean) * factor + mean, range);
                }
            }
        }
        Change::Brightness { share, range } => {
            let more = draws.within(0, share) * (range[1] - range[0]);
            to.iter_mut().zip(values).for_each(|(to, value)| *to = cut(*value + more, range));
        }
    }
}

/// What is not a number stays so.
fn cut(value: f32, [low, high]: [f32; 2]) -> f32 {
    let value = if value < low { low } else { value };
    if value > high { high } else { value }
}

/// Samples every pixel at the place that an affine function of its coordinates gives.
fn sample(image: &Image<'_>, sampling: &Sampling, across: [f32; 3], down: [f32; 3], to: &mut [f32]) {
    let Image { height, width, channels, .. } = *image;
    for (at, pixel) in to.chunks_exact_mut(channels).enumerate() {
        let (row, column) = ((at / width) as f32, (at % width) as f32);
        let point = |[along, aside, shift]: [f32; 3]| along * column + aside * row + shift;
        let x = place(sampling.fill, point(across), width);
        let y = place(sampling.fill, point(down), height);
        match sampling.interpolation {
            Interpolation::Nearest => {
                for (channel, to) in pixel.iter_mut().enumerate() {
                    *to = image.at(sampling.fill, y.round(), x.round(), channel);
                }
            }
            Interpolation::Bilinear => {
                let (top, left) = (y.floor(), x.floor());
                let (lower, right) = (y - top, x - left);
                for (channel, to) in pixel.iter_mut().enumerate() {
                    let read = |row: f32, column: f32| image.at(sampling.fill, row, column, channel);
                    let above = (1.0 - right) * read(top, left) + right * read(top, left + 1.0);
                    let below = (1.0 - right) * read(top + 1.0, left) + right * read(top + 1.0, left + 1.0);
                    *to = (1.0 - lower) * above + lower * below;
                }
            }
        }
    }
}

impl Image<'_> {
    /// A pixel, or what stands outside.
    fn at(&self, fill: Fill, row: f32, column: f32, channel: usize) -> f32 {
        let inside = 0.0 <= row && row < self.height as f32 && 0.0 <= column && column < self.width as f32;
        if inside {
            return self.values[(row as usize * self.width + column as usize) * self.channels + channel];
        }
        match fill {
            Fill::Constant(value) => value,
            // Past the last pixel, with a weight of zero.
            Fill::Nearest | Fill::Reflect | Fill::Wrap => 0.0,
        }
    }
}

/// A place brought into the image, as TensorFlow does it.
fn place(fill: Fill, place: f32, length: usize) -> f32 {
    let size = length as f32;
    let last = size - 1.0;
    let inside = match fill {
        Fill::Constant(_) => return place,
        Fill::Nearest => place,
        Fill::Reflect | Fill::Wrap if length <= 1 => 0.0,
        Fill::Reflect if place < 0.0 => {
            let twice = 2.0 * size;
            let shifted = twice * (-place / twice).trunc() + place;
            if shifted < -size { shifted + twice } else { -shifted - 1.0 }
        }
        Fill::Reflect if place > last => {
            let twice = 2.0 * size;
            let shifted = place - twice * (place / twice).trunc();
            if shifted >= size { twice - shifted - 1.0 } else { shifted }
        }
        Fill::Wrap if place < 0.0 => place + size * ((-place / last).trunc() + 1.0),
        Fill::Wrap if place > last => place - size * (place / last).trunc(),
        Fill::Reflect | Fill::Wrap => place,
    };
    cut(inside, [0.0, last])
}
