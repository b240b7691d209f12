//! The gradient of a filter over few channels: `dy` of a window belongs to one of four places, and each lane
//! of a vector picks what its own place sees, so that one product does the work of four.
//!
//! Two lines are stored in pairs, so that what the four places of a window see through one tap lies within
//! eight floats:
//!
//! ```text
//! line      a₀ a₁ a₂ a₃ …                 places of the window at pixel 0, through tap 0:
//! below     b₀ b₁ b₂ b₃ …                 a₀ a₁
//! pairs     a₀ b₀ a₁ b₁ a₂ b₂ a₃ b₃ …     b₀ b₁
//! ```

use memfit_ir::Pool2D;

use super::super::super::lanes::{LANES_MAX, Lanes, load};
use super::super::Convolution;
use super::grad_kernel::{Block, Sums};
use super::{Lines, Pooled};

/// Whether what the places of a window see lies within eight floats, and there is a loop for this filter.
pub(super) fn applies(pooled: &Pooled) -> bool {
    let Convolution { kernel, strides, input, .. } = pooled.conv;
    strides == [1, 1] && matches!((kernel, input[2]), ([3, 3], 1..=3) | ([5, 5], 1 | 3))
}

/// Floats of the pairs under a line of windows: for each row of taps as many as two lines have, and what a
/// vector reads further.
pub(super) fn pairs_floats(pooled: &Pooled) -> usize {
    pooled.conv.kernel[0] * 2 * Lines::new(pooled).stride + LANES_MAX
}

/// Writes the pairs under a line of windows, of the lines that it sees, which lie `stride` floats apart.
#[inline(always)]
pub(super) fn pairs<L: Lanes>(pooled: &Pooled, lines: &[f32], apart: usize, pairs: &mut [f32]) {
    let stride = Lines::new(pooled).stride;
    assert!(pairs.len() >= pairs_floats(pooled) && pooled.conv.kernel[0] * apart + stride <= lines.len());
    for tap in 0..pooled.conv.kernel[0] {
        for at in (0..stride).step_by(L::COUNT) {
            // SAFETY: strides are whole vectors, and a line follows; both ends were checked.
            unsafe {
                let above = lines.as_ptr().add(tap * apart + at);
                let to = pairs.as_mut_ptr().add(2 * (tap * stride + at));
                L::load(above).store_pairs(L::load(above.add(apart)), to);
            }
        }
    }
}

impl Block<'_> {
    /// Adds what the lines of windows give, line by line.
    #[inline(always)]
    pub(super) fn picked<L: Lanes>(&self, lines: &[f32], pairs: &mut [f32], sums: &mut [f32]) {
        let Sums { pooled, lines: Lines { stride, step, .. }, .. } = *self.work;
        assert!(pairs.len() >= pairs_floats(pooled) && self.work.lines.floats(self.count) <= lines.len());
        for line in 0..self.count {
            self::pairs::<L>(pooled, &lines[line * step * stride..], stride, pairs);
            for column in (0..pooled.conv.output[2]).step_by(L::COUNT) {
                let taps = Taps { block: self, pairs, line, column };
                let (taps_down, pixel) = (pooled.conv.kernel[0], pooled.conv.input[2]);
                // As many rows of taps as registers hold.
                match (taps_down, pixel) {
                    (3, 3) if L::COUNT == LANES_MAX => taps.products::<L, 3, 9>(0, sums),
                    (3, 2) if L::COUNT == LANES_MAX => taps.products::<L, 3, 6>(0, sums),
                    (5, 1) if L::COUNT == LANES_MAX => taps.products::<L, 5, 5>(0, sums),
                    (3, 1) => taps.products::<L, 3, 3>(0, sums),
                    _ => {
                        for tap in 0..taps_down {
                            match (taps_down, pixel) {
                                (3, 2) => taps.products::<L, 1, 6>(tap, sums),
                                (3, _) => taps.products::<L, 1, 9>(tap, sums),
                                (_, 1) => taps.products::<L, 1, 5>(tap, sums),
                                _ => taps.products::<L, 1, 15>(tap, sums),
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A line of windows, and a vector of channels.
struct Taps<'a> {
    block: &'a Block<'a>,
    pairs: &'a [f32],
    line: usize,
    column: usize,
}

impl Taps<'_> {
    /// Adds the products of `ROWS` rows of `K` taps, from one on; with the first row also the bias.
    #[inline(always)]
    fn products<L: Lanes, const ROWS: usize, const K: usize>(&self, first: usize, sums: &mut [f32]) {
        match L::COUNT <= self.block.work.pooled.conv.output[2] - self.column {
            true => self.sum::<L, ROWS, K, true>(first, sums),
            false => self.sum::<L, ROWS, K, false>(first, sums),
        }
    }

    /// The same where a vector has as many channels as it holds, or fewer.
    #[inline(always)]
    fn sum<L: Lanes, const ROWS: usize, const K: usize, const WHOLE: bool>(
        &self,
        first: usize,
        sums: &mut [f32],
    ) {
        let Sums { pooled, lines: Lines { stride, .. }, dy, argmax, .. } = *self.block.work;
        let [_, width, channels] = pooled.output();
        let pixel = pooled.conv.input[2];
        let columns = if WHOLE { L::COUNT } else { L::COUNT.min(channels - self.column) };
        let at = self.block.at(self.line, 0) + self.column;
        let end = at + (width - 1) * channels + columns;
        assert!(end <= dy.len() && end <= argmax.len());
        assert!(2 * ((first + ROWS - 1) * stride + 2 * (width - 1) * pixel + K) + 8 <= self.pairs.len());
        // Where each place stands among the eight floats.
        let mut places = [0.0; 8];
        for (place, to) in places[..4].iter_mut().enumerate() {
            *to = f32::from_bits((place / 2 + place % 2 * 2 * pixel) as u32);
        }
        let mut partial = [[L::splat(0.0); K]; ROWS];
        let mut bias = L::splat(0.0);
        let (mut dy, mut argmax) = (dy[at..].as_ptr(), argmax[at..].as_ptr());
        let mut pairs = self.pairs[2 * first * stride..].as_ptr();
        for _ in 0..width {
            // SAFETY: checked above.
            unsafe {
                let place = L::load_bytes(argmax, columns).pick(places.as_ptr());
                let none = L::bytes_equal(argmax, Pool2D::NO_ARGMAX, columns);
                let dy_here = load::<L>(dy, columns).keep(!none);
                bias = bias.add(dy_here);
                for (row, partial) in partial.iter_mut().enumerate() {
                    for (k, sum) in partial.iter_mut().enumerate() {
                        let seen = place.pick(pairs.wrapping_add(2 * (row * stride + k)));
                        *sum = seen.mul_add(dy_here, *sum);
                    }
                }
            }
            (dy, argmax) = (dy.wrapping_add(channels), argmax.wrapping_add(channels));
            pairs = pairs.wrapping_add(4 * pixel);
        }
        for (row, partial) in partial.iter().enumerate() {
            for (k, value) in partial.iter().enumerate() {
                self.block.add(*value, (first + row) * K + k, self.column, sums);
            }
        }
        if first == 0 {
            self.block.add(bias, pooled.depth(), self.column, sums);
        }
    }
}
