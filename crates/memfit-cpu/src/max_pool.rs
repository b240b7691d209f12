//! Max pooling. The argmax of a window is its place in the window, in one byte.

use memfit_ir::Operand::{Argmax, Dx, Dy, X, Y};
use memfit_ir::Pool2D;

use super::conv2d::image;
use super::lanes::{Lanes, load, store};
use super::operands::Operands;
use super::pool::Windows;
use super::tasks::{self, Cut, Tasks};
use super::threads::{Shared, Threads};

/// The most channels whose gradients are added one by one.
const FEW: usize = 4;

/// Writes the maximum and the argmax of every window: the first of equals, and never a margin. With a ReLU,
/// what is not positive becomes 0 and has no argmax.
pub(crate) fn forward(operands: &Operands, pool: &Pool2D, relu: bool) {
    let sizes = [image(operands.shape(X)), image(operands.shape(Y))];
    let (x, y, argmax) = (operands.input(X), operands.output(Y), operands.output(Argmax));
    forward_of(operands.threads, pool, sizes, operands.context.rows, x, y, argmax, relu);
}

/// As above, for `rows` images of these sizes.
pub(crate) fn forward_of(
    threads: &Threads,
    pool: &Pool2D,
    [input, output]: [[usize; 3]; 2],
    rows: usize,
    x: &[f32],
    y: &mut [f32],
    argmax: &mut [u8],
    relu: bool,
) {
    let windows = Windows { pool, input, output };
    let cut = Cut::items(rows * output[0], input[1] * input[2]);
    let work = Forward { windows, cut, x, y: Shared::new(y), argmax: Shared::new(argmax), relu };
    tasks::run(threads, cut.count(), &work);
}

/// Writes `dy` of every window to its argmax.
pub(crate) fn grad(operands: &Operands, pool: &Pool2D) {
    let sizes = [image(operands.shape(Dx)), image(operands.shape(Dy))];
    let (dy, argmax, dx) = (operands.input(Dy), operands.input(Argmax), operands.output(Dx));
    grad_of(operands.threads, pool, sizes, operands.context.rows, dy, argmax, dx);
}

/// As above, for `rows` images of these sizes.
pub(crate) fn grad_of(
    threads: &Threads,
    pool: &Pool2D,
    [input, output]: [[usize; 3]; 2],
    rows: usize,
    dy: &[f32],
    argmax: &[u8],
    dx: &mut [f32],
) {
    let windows = Windows { pool, input, output };
    let cut = Cut::items(rows * windows.bands(), pool.strides[0] * input[1] * input[2]);
    let work = Grad { windows, cut, dy, argmax, dx: Shared::new(dx) };
    tasks::run(threads, cut.count(), &work);
}

struct Forward<'a> {
    windows: Windows<'a>,
    cut: Cut,
    x: &'a [f32],
    y: Shared<'a, f32>,
    argmax: Shared<'a, u8>,
    relu: bool,
}

impl Tasks for Forward<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let [height, width, _] = self.windows.output;
        for item in self.cut.range(task) {
            let (row, down) = (item / height, item % height);
            for across in 0..width {
                self.window::<L>(row, down, across);
            }
        }
    }
}

impl Forward<'_> {
    #[inline(always)]
    fn window<L: Lanes>(&self, row: usize, down: usize, across: usize) {
        let Windows { pool, input, output: [.., channels] } = self.windows;
        let (rows, columns) = (self.windows.rows(down), self.windows.columns(across));
        let place = |y: usize, x: usize| {
            let below = y + pool.pads.top - down * pool.strides[0];
            let beside = x + pool.pads.left - across * pool.strides[1];
            (below * pool.window[1] + beside) as u32
        };
        let inside = !rows.is_empty() && !columns.is_empty();
        let first = if inside { place(rows.start, columns.start) } else { 0 };
        let line = input[1] * channels;
        let start = self.windows.output_at(row, down, across);
        // SAFETY: every window belongs to one task.
        let (to, places) =
            unsafe { (self.y.slice(start..start + channels), self.argmax.slice(start..start + channels)) };
        let under = self.windows.input_at(row, rows.start, columns.start);
        let values = if inside { self.x[under..].as_ptr() } else { self.x.as_ptr() };
        assert!(!inside || under + (rows.len() - 1) * line + columns.len() * channels <= self.x.len());
        let mut channel = 0;
        while channel < channels {
            let count = L::COUNT.min(channels - channel);
            // The first element is larger than minus infinity; its place is already set.
            let (mut max, mut argmax) = (L::splat(f32::NEG_INFINITY), L::splat(f32::from_bits(first)));
            let mut values = values.wrapping_add(channel);
            for y in rows.clone() {
                let place = place(y, columns.start);
                for x in 0..columns.len() {
                    // SAFETY: the pixel lies inside the image, and has `count` channels left.
                    let value = unsafe { load::<L>(values.wrapping_add(x * channels), count) };
                    // A NaN is kept once it is seen.
                    let replaces = value.beats(max);
                    max = max.or_where(replaces, value);
                    argmax = argmax.or_where(replaces, L::splat(f32::from_bits(place + x as u32)));
                }
                values = values.wrapping_add(line);
            }
            if self.relu {
                let positive = max.between(L::splat(0.0), L::splat(f32::INFINITY));
                max = max.at_least(L::splat(0.0));
                let no_argmax = L::splat(f32::from_bits(u32::from(Pool2D::NO_ARGMAX)));
                argmax = no_argmax.or_where(positive, argmax);
            }
            // SAFETY: `count` channels are left.
            unsafe {
                store(max, to.as_mut_ptr().add(channel), count);
                argmax.store_low_bytes(places.as_mut_ptr().add(channel), count);
            }
            channel += L::COUNT;
        }
    }
}

struct Grad<'a> {
    windows: Windows<'a>,
    cut: Cut,
    dy: &'a [f32],
    argmax: &'a [u8],
    dx: Shared<'a, f32>,
}

impl Tasks for Grad<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let bands = self.windows.bands();
        for item in self.cut.range(task) {
            self.band::<L>(item / bands, item % bands);
        }
    }
}

impl Grad<'_> {
    #[inline(always)]
    fn band<L: Lanes>(&self, row: usize, band: usize) {
        let windows = &self.windows;
        let rows = windows.band(band);
        let start = windows.input_at(row, rows.start, 0);
        let line = windows.input[1] * windows.input[2];
        // SAFETY: every band belongs to one task.
        let dx = unsafe { self.dx.slice(start..start + rows.len() * line) };
        // Windows side by side: each pixel is under one of them, or none.
        if windows.pool.window == windows.pool.strides && band < windows.output[0] {
            for (y, dx) in rows.zip(dx.chunks_exact_mut(line.max(1))) {
                self.line::<L, false>(row, band, y, dx);
                let covered = windows.output[1].checked_sub(1).map_or(0, |last| windows.columns(last).end);
                dx[covered * windows.input[2]..].fill(0.0);
            }
            return;
        }
        dx.fill(0.0);
        for down in windows.reaching(band) {
            let under = windows.rows(down);
            for y in under.start.max(rows.start)..under.end.min(rows.end) {
                let first = (y - rows.start) * line;
                self.line::<L, true>(row, down, y, &mut dx[first..first + line]);
            }
        }
    }

    /// What the windows of one row hand to one row of pixels, added to what is there if `ADD`.
    #[inline(always)]
    fn line<L: Lanes, const ADD: bool>(&self, row: usize, down: usize, y: usize, dx: &mut [f32]) {
        let Windows { pool, output: [_, width, channels], .. } = self.windows;
        let below = y + pool.pads.top - down * pool.strides[0];
        for across in 0..width {
            let start = self.windows.output_at(row, down, across);
            for x in self.windows.columns(across) {
                let beside = x + pool.pads.left - across * pool.strides[1];
                let place = (below * pool.window[1] + beside) as u8;
                let mut channel = 0;
                while channel < channels {
                    let (from, to) = (start + channel, x * channels + channel);
                    let left = L::COUNT.min(channels - channel);
                    // Alone, a whole vector may reach into pixels that are written next, where there are
                    // such.
                    let reaches = from + L::COUNT <= self.dy.len() && to + L::COUNT <= dx.len();
                    let count = if !ADD && reaches { L::COUNT } else { left };
                    let (dy, argmax) = (&self.dy[from..from + count], &self.argmax[from..from + count]);
                    let to = &mut dx[to..to + count];
                    // Overlapping windows read right after a write: for few floats, one by one is faster.
                    if ADD && count <= FEW {
                        for ((to, dy), argmax) in to.iter_mut().zip(dy).zip(argmax) {
                            *to += if *argmax == place { *dy } else { 0.0 };
                        }
                        channel += L::COUNT;
                        continue;
                    }
                    let to = to.as_mut_ptr();
                    // SAFETY: all of them have `count` elements.
                    unsafe {
                        let is_argmax = L::bytes_equal(argmax.as_ptr(), place, count);
                        let value = load::<L>(dy.as_ptr(), count).keep(is_argmax);
                        store(if ADD { value.add(load(to, count)) } else { value }, to, count);
                    }
                    channel += L::COUNT;
                }
            }
        }
    }
}
