//! The largest element of every window. The winner's place in the window is one byte.

use std::ops::Range;

use memfit_ir::Pool2D;

use super::super::conv2d::image;
use super::super::lanes::Lanes;
use super::super::operands::Operands;
use super::super::tasks::{self, Cut, Tasks};
use super::super::threads::{Shared, Threads};
use super::{CHANNELS, Windows};

/// Writes the largest element and its place; the first of equals wins, margins never do.
pub(crate) fn forward(operands: &Operands, pool: &Pool2D) {
    let sizes = [image(operands.input_shape(0)), image(operands.output_shape(0))];
    let (x, y, winners) = (operands.input(0), operands.output(0), operands.output(1));
    forward_of(operands.threads, pool, sizes, operands.context.rows, x, y, winners);
}

/// As above, for so many images of these sizes.
pub(crate) fn forward_of(
    threads: &Threads,
    pool: &Pool2D,
    [input, output]: [[usize; 3]; 2],
    rows: usize,
    x: &[f32],
    y: &mut [f32],
    winners: &mut [u8],
) {
    let windows = Windows { pool, input, output };
    let cut = Cut::items(rows * output[0], input[1] * input[2]);
    let work = Forward { windows, cut, x, y: Shared::new(y), winners: Shared::new(winners) };
    tasks::run(threads, cut.count(), &work);
}

/// Hands every window's slope to its winner.
pub(crate) fn grad(operands: &Operands, pool: &Pool2D) {
    let sizes = [image(operands.output_shape(0)), image(operands.input_shape(0))];
    let (dy, winners, dx) = (operands.input(0), operands.input(1), operands.output(0));
    grad_of(operands.threads, pool, sizes, operands.context.rows, dy, winners, dx);
}

/// As above, for so many images of these sizes.
pub(crate) fn grad_of(
    threads: &Threads,
    pool: &Pool2D,
    [input, output]: [[usize; 3]; 2],
    rows: usize,
    dy: &[f32],
    winners: &[u8],
    dx: &mut [f32],
) {
    let windows = Windows { pool, input, output };
    let cut = Cut::items(rows * windows.bands(), pool.strides[0] * input[1] * input[2]);
    let work = Grad { windows, cut, dy, winners, dx: Shared::new(dx) };
    tasks::run(threads, cut.count(), &work);
}

struct Forward<'a> {
    windows: Windows<'a>,
    cut: Cut,
    x: &'a [f32],
    y: Shared<'a, f32>,
    winners: Shared<'a, u8>,
}

impl Tasks for Forward<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let [height, width, channels] = self.windows.output;
        for item in self.cut.range(task) {
            let (row, down) = (item / height, item % height);
            for across in 0..width {
                for channel in (0..channels).step_by(CHANNELS) {
                    let count = CHANNELS.min(channels - channel);
                    self.window(row, down, across, channel..channel + count);
                }
            }
        }
    }
}

impl Forward<'_> {
    #[inline(always)]
    fn window(&self, row: usize, down: usize, across: usize, channels: Range<usize>) {
        let Windows { pool, .. } = self.windows;
        let count = channels.len();
        let (mut most, mut winners) = ([f32::NEG_INFINITY; CHANNELS], [0i32; CHANNELS]);
        let mut first = true;
        for y in self.windows.rows(down) {
            for x in self.windows.columns(across) {
                let below = y + pool.pads.top - down * pool.strides[0];
                let beside = x + pool.pads.left - across * pool.strides[1];
                let place = (below * pool.window[1] + beside) as i32;
                let values = &self.x[self.windows.input_at(row, y, x) + channels.start..][..count];
                for ((most, winner), value) in most[..count].iter_mut().zip(&mut winners).zip(values) {
                    // Comparisons let NaN win and stay.
                    let wins = first || *value > *most || value.is_nan();
                    *most = if wins { *value } else { *most };
                    *winner = if wins { place } else { *winner };
                }
                first = false;
            }
        }
        let start = self.windows.output_at(row, down, across) + channels.start;
        // SAFETY: every window belongs to one task.
        let (y, places) =
            unsafe { (self.y.slice(start..start + count), self.winners.slice(start..start + count)) };
        y.copy_from_slice(&most[..count]);
        places.iter_mut().zip(winners).for_each(|(place, winner)| *place = winner as u8);
    }
}

struct Grad<'a> {
    windows: Windows<'a>,
    cut: Cut,
    dy: &'a [f32],
    winners: &'a [u8],
    dx: Shared<'a, f32>,
}

impl Tasks for Grad<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let bands = self.windows.bands();
        for item in self.cut.range(task) {
            self.band(item / bands, item % bands);
        }
    }
}

impl Grad<'_> {
    #[inline(always)]
    fn band(&self, row: usize, band: usize) {
        let windows = &self.windows;
        let rows = windows.band(band);
        let start = windows.input_at(row, rows.start, 0);
        // SAFETY: every band belongs to one task.
        let dx = unsafe { self.dx.slice(start..start + rows.len() * windows.input[1] * windows.input[2]) };
        dx.fill(0.0);
        for down in windows.reaching(band) {
            let under = windows.rows(down);
            for y in under.start.max(rows.start)..under.end.min(rows.end) {
                let line = (y - rows.start) * windows.input[1] * windows.input[2];
                self.line(row, down, y, &mut dx[line..line + windows.input[1] * windows.input[2]]);
            }
        }
    }

    /// What the windows of one row hand to one row of pixels.
    #[inline(always)]
    fn line(&self, row: usize, down: usize, y: usize, dx: &mut [f32]) {
        let Windows { pool, output: [_, width, channels], .. } = self.windows;
        let below = y + pool.pads.top - down * pool.strides[0];
        for across in 0..width {
            let start = self.windows.output_at(row, down, across);
            let (dy, winners) = (&self.dy[start..start + channels], &self.winners[start..start + channels]);
            for x in self.windows.columns(across) {
                let beside = x + pool.pads.left - across * pool.strides[1];
                let place = (below * pool.window[1] + beside) as u8;
                let to = &mut dx[x * channels..(x + 1) * channels];
                for ((to, dy), winner) in to.iter_mut().zip(dy).zip(winners) {
                    *to += if *winner == place { *dy } else { 0.0 };
                }
            }
        }
    }
}
