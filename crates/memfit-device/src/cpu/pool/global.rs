//! Pools over whole images: the mean of every channel, or its largest element and where that is.

use super::super::conv2d::image;
use super::super::lanes::Lanes;
use super::super::operands::Operands;
use super::super::sums::COLUMNS;
use super::super::tasks::{self, Cut, Tasks};
use super::super::threads::Shared;

/// Writes the mean of every channel.
pub(crate) fn average(operands: &Operands) {
    let images = Images::new(image(operands.input_shape(0)));
    let cut = images.cut(operands.context.rows);
    let work = Average { images, cut, x: operands.input(0), y: Shared::new(operands.output(0)) };
    tasks::run(operands.threads, cut.count(), &work);
}

/// Hands a channel's slope to its pixels in equal shares.
pub(crate) fn average_grad(operands: &Operands) {
    let [height, width, channels] = image(operands.output_shape(0));
    let (dy, dx) = (operands.input::<f32>(0), operands.output::<f32>(0));
    let share = 1.0 / (height * width) as f32;
    operands.threads.for_each_chunk(dx, width * channels, |line, dx| {
        let dy = &dy[line / height * channels..][..channels];
        for pixel in dx.chunks_exact_mut(channels) {
            pixel.iter_mut().zip(dy).for_each(|(to, dy)| *to = share * dy);
        }
    });
}

/// Writes the largest element of every channel, and its pixel; the first of equals wins.
pub(crate) fn largest(operands: &Operands) {
    let images = Images::new(image(operands.input_shape(0)));
    let cut = images.cut(operands.context.rows);
    let (y, winners) = (Shared::new(operands.output(0)), Shared::new(operands.output(1)));
    tasks::run(operands.threads, cut.count(), &Largest { images, cut, x: operands.input(0), y, winners });
}

/// Hands a channel's slope to its winner.
pub(crate) fn largest_grad(operands: &Operands) {
    let [height, width, channels] = image(operands.output_shape(0));
    let (dy, winners) = (operands.input::<f32>(0), operands.input::<i32>(1));
    operands.threads.for_each_chunk(operands.output(0), height * width * channels, |row, dx| {
        dx.fill(0.0);
        let mine = row * channels..(row + 1) * channels;
        for (channel, (dy, winner)) in dy[mine.clone()].iter().zip(&winners[mine]).enumerate() {
            dx[*winner as usize * channels + channel] = *dy;
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

struct Largest<'a> {
    images: Images,
    cut: Cut,
    x: &'a [f32],
    y: Shared<'a, f32>,
    winners: Shared<'a, i32>,
}

impl Tasks for Largest<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let Images { pixels, channels, .. } = self.images;
        for item in self.cut.range(task) {
            let (row, channel, count) = self.images.item(item);
            let (mut most, mut places) = ([f32::NEG_INFINITY; COLUMNS], [0; COLUMNS]);
            for pixel in 0..pixels {
                let x = &self.x[(row * pixels + pixel) * channels + channel..][..count];
                for ((most, place), x) in most.iter_mut().zip(&mut places).zip(x) {
                    // Comparisons let NaN win and stay.
                    let wins = *x > *most || x.is_nan();
                    *most = if wins { *x } else { *most };
                    *place = if wins { pixel as i32 } else { *place };
                }
            }
            let start = row * channels + channel;
            // SAFETY: every block of channels belongs to one task.
            let (y, winners) =
                unsafe { (self.y.slice(start..start + count), self.winners.slice(start..start + count)) };
            y.copy_from_slice(&most[..count]);
            winners.copy_from_slice(&places[..count]);
        }
    }
}
