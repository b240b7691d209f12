//! Images of any other height and width, by TensorFlow's rule of half-pixel centres, and the exact transpose
//! for gradients.

use std::ops::Range;

use memfit_ir::Interpolation;
use memfit_ir::Operand::{Dx, Dy, X, Y};

use super::conv2d::image;
use super::lanes::Lanes;
use super::operands::Operands;
use super::tasks::{self, Cut, Tasks};
use super::threads::Shared;

/// Makes images of the output's height and width.
pub(crate) fn forward(operands: &Operands, interpolation: Interpolation) {
    let (from, to) = (image(operands.shape(X)), image(operands.shape(Y)));
    let cut = Cut::items(operands.context.rows * to[0], to[1] * to[2]);
    let work = Forward {
        scale: Scale { from, to, interpolation },
        cut,
        x: operands.input(X),
        y: Shared::new(operands.output(Y)),
    };
    tasks::run(operands.threads, cut.count(), &work);
}

/// The gradient of that.
pub(crate) fn grad(operands: &Operands, interpolation: Interpolation) {
    let (from, to) = (image(operands.shape(Dx)), image(operands.shape(Dy)));
    let cut = Cut::items(operands.context.rows * from[0], to[0].div_ceil(from[0]) * to[1] * to[2]);
    let work = Grad {
        scale: Scale { from, to, interpolation },
        cut,
        dy: operands.input(Dy),
        dx: Shared::new(operands.output(Dx)),
    };
    tasks::run(operands.threads, cut.count(), &work);
}

/// Height, width and channels before and after.
struct Scale {
    from: [usize; 3],
    to: [usize; 3],
    interpolation: Interpolation,
}

impl Scale {
    /// The pixels that a new pixel is made of, along an axis, with their shares.
    #[inline(always)]
    fn sources(&self, axis: usize, pixel: usize) -> [(usize, f32); 2] {
        let (from, to) = (self.from[axis], self.to[axis]);
        let last = from - 1;
        match self.interpolation {
            Interpolation::Nearest => {
                let nearest = ((2 * pixel + 1) * from / (2 * to)).min(last);
                [(nearest, 1.0), (nearest, 0.0)]
            }
            Interpolation::Bilinear => {
                // (pixel + 1/2) · from / to − 1/2, one pixel more so that it is not negative, in parts of 2 ·
                // to.
                let place = (2 * pixel + 1) * from + to;
                let (above, part) = (place / (2 * to), place % (2 * to));
                let share = part as f32 / (2 * to) as f32;
                [(above.saturating_sub(1).min(last), 1.0 - share), (above.min(last), share)]
            }
        }
    }

    /// The new pixels that may be made of an old one, along an axis.
    #[inline(always)]
    fn reached(&self, axis: usize, pixel: usize) -> Range<usize> {
        let (from, to) = (self.from[axis], self.to[axis]);
        (pixel.saturating_sub(1) * to / from).saturating_sub(1)..((pixel + 2) * to).div_ceil(from).min(to)
    }

    /// What an old pixel counts in a new one, along an axis.
    #[inline(always)]
    fn share(&self, axis: usize, old: usize, new: usize) -> f32 {
        let sources = self.sources(axis, new);
        sources.iter().filter(|(pixel, _)| *pixel == old).map(|(_, share)| share).sum()
    }
}

struct Forward<'a> {
    scale: Scale,
    cut: Cut,
    x: &'a [f32],
    y: Shared<'a, f32>,
}

impl Tasks for Forward<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let ([height, width, channels], [lines, wide, _]) = (self.scale.from, self.scale.to);
        for item in self.cut.range(task) {
            let (row, down) = (item / lines, item % lines);
            // SAFETY: every line belongs to one task.
            let to = unsafe { self.y.slice(item * wide * channels..(item + 1) * wide * channels) };
            for (across, to) in to.chunks_exact_mut(channels.max(1)).enumerate() {
                to.fill(0.0);
                for (y, high) in self.scale.sources(0, down) {
                    for (x, broad) in self.scale.sources(1, across) {
                        if high * broad != 0.0 {
                            let from = &self.x[((row * height + y) * width + x) * channels..][..channels];
                            add_scaled(to, from, high * broad);
                        }
                    }
                }
            }
        }
    }
}

struct Grad<'a> {
    scale: Scale,
    cut: Cut,
    dy: &'a [f32],
    dx: Shared<'a, f32>,
}

impl Tasks for Grad<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let ([height, width, channels], [lines, wide, _]) = (self.scale.from, self.scale.to);
        for item in self.cut.range(task) {
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
                            let start = ((row * lines + down) * wide + across) * channels;
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
