//! Images made larger by a whole factor, and the exact transpose of that for gradients.

use std::ops::Range;

use memfit_ir::Interpolation;
use memfit_ir::Operand::{Dx, Dy, X, Y};

use super::conv2d::image;
use super::lanes::Lanes;
use super::operands::Operands;
use super::tasks::{self, Cut, Tasks};
use super::threads::Shared;

/// Makes images `size` times as high and wide.
pub(crate) fn forward(operands: &Operands, size: [usize; 2], interpolation: Interpolation) {
    let small = image(operands.shape(X));
    let cut = Cut::items(operands.context.rows * small[0] * size[0], small[1] * size[1] * small[2]);
    let scale = Scale { small, size, interpolation, cut };
    let y = Shared::new(operands.output(Y));
    tasks::run(operands.threads, cut.count(), &Forward { scale, x: operands.input(X), y });
}

/// Sums `dy` back to the pixels that it came from.
pub(crate) fn grad(operands: &Operands, size: [usize; 2], interpolation: Interpolation) {
    let small = image(operands.shape(Dx));
    let cut = Cut::items(operands.context.rows * small[0], small[1] * small[2] * size[0] * size[1]);
    let scale = Scale { small, size, interpolation, cut };
    let dx = Shared::new(operands.output(Dx));
    tasks::run(operands.threads, cut.count(), &Grad { scale, dy: operands.input(Dy), dx });
}

struct Scale {
    /// Height, width and channels of the smaller image.
    small: [usize; 3],
    size: [usize; 2],
    interpolation: Interpolation,
    cut: Cut,
}

impl Scale {
    /// The pixels of the smaller image that a pixel of the larger is made of, along an axis, with their
    /// shares.
    #[inline(always)]
    fn sources(&self, axis: usize, pixel: usize) -> [(usize, f32); 2] {
        let size = self.size[axis];
        match self.interpolation {
            Interpolation::Nearest => [(pixel / size, 1.0), (pixel / size, 0.0)],
            Interpolation::Bilinear => {
                let last = self.small[axis] - 1;
                // Twice the distance from the first centre, in pixels of the larger image, and one small
                // pixel more so that it is not negative: (pixel + 1/2) / size - 1/2.
                let place = 2 * pixel + 1 + size;
                let (above, part) = (place / (2 * size), place % (2 * size));
                let share = part as f32 / (2 * size) as f32;
                [(above.saturating_sub(1).min(last), 1.0 - share), (above.min(last), share)]
            }
        }
    }

    /// The pixels of the larger image that may be made of one of the smaller, along an axis.
    #[inline(always)]
    fn reached(&self, axis: usize, pixel: usize) -> Range<usize> {
        let size = self.size[axis];
        pixel.saturating_sub(1) * size..((pixel + 2) * size).min(self.small[axis] * size)
    }

    /// What a pixel of the smaller image counts in one of the larger, along an axis.
    #[inline(always)]
    fn share(&self, axis: usize, small: usize, large: usize) -> f32 {
        let sources = self.sources(axis, large);
        sources.iter().filter(|(pixel, _)| *pixel == small).map(|(_, share)| share).sum()
    }
}

struct Forward<'a> {
    scale: Scale,
    x: &'a [f32],
    y: Shared<'a, f32>,
}

impl Tasks for Forward<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let Scale { small: [height, width, channels], size, .. } = self.scale;
        let line = width * size[1] * channels;
        for item in self.scale.cut.range(task) {
            let (row, down) = (item / (height * size[0]), item % (height * size[0]));
            // SAFETY: every line belongs to one task.
            let to = unsafe { self.y.slice(item * line..(item + 1) * line) };
            for (across, to) in to.chunks_exact_mut(channels.max(1)).enumerate() {
                to.fill(0.0);
                for (y, high) in self.scale.sources(0, down) {
                    for (x, wide) in self.scale.sources(1, across) {
                        if high * wide != 0.0 {
                            let from = &self.x[((row * height + y) * width + x) * channels..][..channels];
                            add_scaled(to, from, high * wide);
                        }
                    }
                }
            }
        }
    }
}

struct Grad<'a> {
    scale: Scale,
    dy: &'a [f32],
    dx: Shared<'a, f32>,
}

impl Tasks for Grad<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let Scale { small: [height, width, channels], size, .. } = self.scale;
        let wide = width * size[1];
        for item in self.scale.cut.range(task) {
            let (row, y) = (item / height, item % height);
            // SAFETY: every line belongs to one task.
            let to = unsafe { self.dx.slice(item * width * channels..(item + 1) * width * channels) };
            for (x, to) in to.chunks_exact_mut(channels.max(1)).enumerate() {
                to.fill(0.0);
                for down in self.scale.reached(0, y) {
                    let high = self.scale.share(0, y, down);
                    for across in self.scale.reached(1, x) {
                        let share = high * self.scale.share(1, x, across);
                        if share != 0.0 {
                            let start = ((row * height * size[0] + down) * wide + across) * channels;
                            add_scaled(to, &self.dy[start..start + channels], share);
                        }
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn add_scaled(to: &mut [f32], from: &[f32], factor: f32) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += factor * from);
}
