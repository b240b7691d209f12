//! Pools over whole images: the mean of every channel, or its maximum and the argmax.

use memfit_ir::Operand::{Argmax, Dx, Dy, X, Y};

use super::conv2d::image;
use super::lanes::Lanes;
use super::operands::Operands;
use super::sums::COLUMNS;
use super::tasks::{self, Cut, Tasks};
use super::threads::Shared;

/// Writes the mean of every channel.
pub(crate) fn average(operands: &Operands) {
    let images = Images::new(image(operands.shape(X)));
    let cut = images.cut(operands.context.rows);
    let work = Average { images, cut, x: operands.input(X), y: Shared::new(operands.output(Y)) };
    tasks::run(operands.threads, cut.count(), &work);
}

/// Spreads `dy` of a channel over its pixels in equal shares.
pub(crate) fn average_grad(operands: &Operands) {
    let [height, width, channels] = image(operands.shape(Dx));
    let (dy, dx) = (operands.input::<f32>(Dy), operands.output::<f32>(Dx));
    let share = 1.0 / (height * width) as f32;
    operands.threads.for_each_chunk(dx, width * channels, |line, dx| {
        let dy = &dy[line / height * channels..][..channels];
        for pixel in dx.chunks_exact_mut(channels) {
            pixel.iter_mut().zip(dy).for_each(|(to, dy)| *to = share * dy);
        }
    });
}

/// Writes the maximum of every channel, and its pixel: the first of equals.
pub(crate) fn max(operands: &Operands) {
    let images = Images::new(image(operands.shape(X)));
    let cut = images.cut(operands.context.rows);
    let (y, argmax) = (Shared::new(operands.output(Y)), Shared::new(operands.output(Argmax)));
    tasks::run(operands.threads, cut.count(), &Max { images, cut, x: operands.input(X), y, argmax });
}

/// Writes `dy` of a channel to its argmax.
pub(crate) fn max_grad(operands: &Operands) {
    let [height, width, channels] = image(operands.shape(Dx));
    let (dy, argmax) = (operands.input::<f32>(Dy), operands.input::<i32>(Argmax));
    operands.threads.for_each_chunk(operands.output(Dx), height * width * channels, |row, dx| {
        dx.fill(0.0);
        let mine = row * channels..(row + 1) * channels;
        for (channel, (dy, place)) in dy[mine.clone()].iter().zip(&argmax[mine]).enumerate() {
            dx[*place as usize * channels + channel] = *dy;
        }
    });
}

/// Images whose channels are handled in blocks.
#[derive(Clone, Copy)]
struct Images {
    pixels: usize,
    channels: usize,
    blocks: usize,
}

impl Images {
    fn new([height, width, channels]: [usize; 3]) -> Images {
        Images { pixels: height * width, channels, blocks: channels.div_ceil(COLUMNS) }
    }

    fn cut(&self, rows: usize) -> Cut {
        Cut::items(rows * self.blocks, self.pixels * self.channels.min(COLUMNS))
    }

    /// The row of an item, its first channel, and how many it has.
    #[inline(always)]
    fn item(&self, item: usize) -> (usize, usize, usize) {
        let channel = item % self.blocks * COLUMNS;
        (item / self.blocks, channel, COLUMNS.min(self.channels - channel))
    }
}

struct Average<'a> {
    images: Images,
    cut: Cut,
    x: &'a [f32],
    y: Shared<'a, f32>,
}

impl Tasks for Average<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let Images { pixels, channels, .. } = self.images;
        for item in self.cut.range(task) {
            let (row, channel, count) = self.images.item(item);
            let mut sums = [0.0; COLUMNS];
            for pixel in row * pixels..(row + 1) * pixels {
                let x = &self.x[pixel * channels + channel..][..count];
                sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += f64::from(*x));
            }
            let start = row * channels + channel;
            // SAFETY: every block of channels belongs to one task.
            let y = unsafe { self.y.slice(start..start + count) };
            y.iter_mut().zip(sums).for_each(|(y, sum)| *y = (sum / pixels as f64) as f32);
        }
    }
}

struct Max<'a> {
    images: Images,
    cut: Cut,
    x: &'a [f32],
    y: Shared<'a, f32>,
    argmax: Shared<'a, i32>,
}

impl Tasks for Max<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let Images { pixels, channels, .. } = self.images;
        for item in self.cut.range(task) {
            let (row, channel, count) = self.images.item(item);
            let (mut max, mut places) = ([f32::NEG_INFINITY; COLUMNS], [0; COLUMNS]);
            for pixel in 0..pixels {
                let x = &self.x[(row * pixels + pixel) * channels + channel..][..count];
                for ((max, place), x) in max.iter_mut().zip(&mut places).zip(x) {
                    // These comparisons keep a NaN once it is seen.
                    let replaces = *x > *max || x.is_nan();
                    *max = if replaces { *x } else { *max };
                    *place = if replaces { pixel as i32 } else { *place };
                }
            }
            let start = row * channels + channel;
            // SAFETY: every block of channels belongs to one task.
            let (y, argmax) =
                unsafe { (self.y.slice(start..start + count), self.argmax.slice(start..start + count)) };
            y.copy_from_slice(&max[..count]);
            argmax.copy_from_slice(&places[..count]);
        }
    }
}
