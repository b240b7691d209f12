//! The mean of every window; margins are not counted.

use memfit_ir::Operand::{Dx, Dy, X, Y};
use memfit_ir::Pool2D;

use super::conv2d::image;
use super::lanes::Lanes;
use super::operands::Operands;
use super::pool::Windows;
use super::tasks::{self, Cut, Tasks};
use super::threads::{Shared, Threads};

/// Writes the mean of the pixels under every window.
pub(crate) fn forward(operands: &Operands, pool: &Pool2D) {
    let sizes = [image(operands.shape(X)), image(operands.shape(Y))];
    let rows = operands.context.rows;
    forward_of(operands.threads, pool, sizes, rows, operands.input(X), operands.output(Y));
}

/// As above, for `rows` images of these sizes.
pub(crate) fn forward_of(
    threads: &Threads,
    pool: &Pool2D,
    [input, output]: [[usize; 3]; 2],
    rows: usize,
    x: &[f32],
    y: &mut [f32],
) {
    let windows = Windows { pool, input, output };
    let cut = Cut::items(rows * output[0], input[1] * input[2]);
    tasks::run(threads, cut.count(), &Forward { windows, cut, x, y: Shared::new(y) });
}

/// Spreads `dy` of every window over its pixels in equal shares.
pub(crate) fn grad(operands: &Operands, pool: &Pool2D) {
    let sizes = [image(operands.shape(Dx)), image(operands.shape(Dy))];
    let rows = operands.context.rows;
    grad_of(operands.threads, pool, sizes, rows, operands.input(Dy), operands.output(Dx));
}

/// As above, for `rows` images of these sizes.
pub(crate) fn grad_of(
    threads: &Threads,
    pool: &Pool2D,
    [input, output]: [[usize; 3]; 2],
    rows: usize,
    dy: &[f32],
    dx: &mut [f32],
) {
    let windows = Windows { pool, input, output };
    let cut = Cut::items(rows * windows.bands(), pool.strides[0] * input[1] * input[2]);
    tasks::run(threads, cut.count(), &Grad { windows, cut, dy, dx: Shared::new(dx) });
}

/// What one pixel counts in its window.
#[inline(always)]
fn share(windows: &Windows, down: usize, across: usize) -> f32 {
    1.0 / (windows.rows(down).len() * windows.columns(across).len()).max(1) as f32
}

struct Forward<'a> {
    windows: Windows<'a>,
    cut: Cut,
    x: &'a [f32],
    y: Shared<'a, f32>,
}

impl Tasks for Forward<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let [height, width, channels] = self.windows.output;
        for item in self.cut.range(task) {
            let (row, down) = (item / height, item % height);
            let start = self.windows.output_at(row, down, 0);
            // SAFETY: every row of windows belongs to one task.
            let line = unsafe { self.y.slice(start..start + width * channels) };
            for (across, to) in line.chunks_exact_mut(channels).enumerate() {
                to.fill(0.0);
                for y in self.windows.rows(down) {
                    for x in self.windows.columns(across) {
                        let from = &self.x[self.windows.input_at(row, y, x)..][..channels];
                        to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
                    }
                }
                let share = share(&self.windows, down, across);
                to.iter_mut().for_each(|to| *to *= share);
            }
        }
    }
}

struct Grad<'a> {
    windows: Windows<'a>,
    cut: Cut,
    dy: &'a [f32],
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
        let [_, width, channels] = windows.input;
        let rows = windows.band(band);
        let start = windows.input_at(row, rows.start, 0);
        // SAFETY: every band belongs to one task.
        let dx = unsafe { self.dx.slice(start..start + rows.len() * width * channels) };
        dx.fill(0.0);
        for down in windows.reaching(band) {
            let under = windows.rows(down);
            for across in 0..windows.output[1] {
                let dy = &self.dy[windows.output_at(row, down, across)..][..channels];
                let share = share(windows, down, across);
                for y in under.start.max(rows.start)..under.end.min(rows.end) {
                    for x in windows.columns(across) {
                        let to = &mut dx[((y - rows.start) * width + x) * channels..][..channels];
                        to.iter_mut().zip(dy).for_each(|(to, dy)| *to += share * dy);
                    }
                }
            }
        }
    }
}
