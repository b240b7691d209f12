//! Winograd convolutions of 3×3 filters over three channels, as in `winograd`: each window is a tile of four
//! by four points, which are sums and differences of the pixels under it, and 16 products a channel replace
//! 36.
//!
//! The transforms of the lines are computed for some windows at a time, and stay in the first-level cache
//! while all channels read them: sums and differences of lines first, then, of each of these, those of
//! neighbouring pixels.
//!
//! ```text
//! points across    v₀ − v₂   v₁ + v₂   v₁ − v₂   v₁ − v₃
//!                                      └─ the other sign than usual, and so in the filter's transform
//! ```

use super::super::super::lanes::{LANES_MAX, Lanes};
use super::Pooled;
use super::forward::{Line, write};

/// Channels of a pixel.
const CHANNELS: usize = 3;
/// Windows whose transforms are held at once.
pub(super) const WINDOWS: usize = 30;
/// Floats of the pixels under them, in whole vectors.
const SEEN: usize = ((2 * WINDOWS + 2) * CHANNELS).next_multiple_of(LANES_MAX);
/// Floats of one of the sums and differences of lines: neighbours are read past the last.
const LINE_FLOATS: usize = SEEN + 2 * LANES_MAX;
/// Floats of the workspace of a worker, and how far past the lines is read.
const FLOATS: usize = 4 * LINE_FLOATS + 4 * 3 * SEEN;
const REACH: usize = LINE_FLOATS;
/// Vectors of a filter for a vector of its output channels, with the bias.
const VECTORS: usize = 16 * CHANNELS + 1;

/// The fewest rows of a register tile for which that pays.
pub(super) const ROWS: usize = 6;

/// Whether a convolution is faster with this algorithm, with register tiles of `rows` rows.
pub(super) fn applies(pooled: &Pooled, rows: usize) -> bool {
    let conv = &pooled.conv;
    rows >= ROWS && conv.kernel == [3, 3] && conv.strides == [1, 1] && conv.input[2] == CHANNELS
}

/// Floats of the workspace of a worker, where a Winograd transform is used.
pub(super) fn buffer_floats(pooled: &Pooled) -> usize {
    if applies(pooled, usize::MAX) { FLOATS } else { 0 }
}

/// How many floats past the lines are read.
pub(super) fn reach(pooled: &Pooled) -> usize {
    if applies(pooled, usize::MAX) { REACH } else { 0 }
}

/// Floats of a transformed filter, in vectors of any level.
pub(super) fn filter_floats(channels: usize) -> usize {
    VECTORS * channels.next_multiple_of(LANES_MAX)
}

/// Writes the transform of a filter: for each vector of output channels the bias, and then, for each row of
/// points, input channel and point of the row, the vector.
pub(super) fn pack(channels: usize, lanes: usize, kernel: &[f32], bias: Option<&[f32]>, filter: &mut [f32]) {
    filter.fill(0.0);
    for channel in 0..channels {
        let to = &mut filter[channel / lanes * VECTORS * lanes + channel % lanes..];
        to[0] = bias.map_or(0.0, |bias| bias[channel]);
        for input in 0..CHANNELS {
            let tap = |y: usize, x: usize| kernel[((y * 3 + x) * CHANNELS + input) * channels + channel];
            let down = [0, 1, 2].map(|x| points([tap(0, x), tap(1, x), tap(2, x)]));
            for row in 0..4 {
                let [first, second, third, last] = points([down[0][row], down[1][row], down[2][row]]);
                // What is taken away in the end is added with its sign turned round.
                let sign = if row == 3 { -1.0 } else { 1.0 };
                for (point, value) in [first, second, -third, -last].into_iter().enumerate() {
                    to[(1 + (row * CHANNELS + input) * 4 + point) * lanes] = sign * value;
                }
            }
        }
    }
}

/// The transform of three taps to four points.
fn points([a, b, c]: [f32; 3]) -> [f32; 4] {
    [a, 0.5 * (a + b + c), 0.5 * (a - b + c), c]
}

/// Computes a line of windows. `buffer` has `FLOATS` floats, and the lines may be read `REACH` floats past
/// their end.
#[inline(always)]
pub(super) fn line<L: Lanes>(
    line: &Line,
    filter: &[f32],
    buffer: &mut [f32],
    y: &mut [f32],
    argmax: &mut [u8],
) {
    let [_, width, channels] = line.pooled.output();
    assert!(buffer.len() >= FLOATS && filter.len() >= channels.div_ceil(L::COUNT) * VECTORS * L::COUNT);
    assert!(3 * line.stride + 2 * width * CHANNELS + REACH <= line.lines.len());
    let mut across = 0;
    while across < width {
        let windows = WINDOWS.min(width - across);
        // SAFETY: both were checked to be long enough.
        unsafe { to_points::<L>(line.lines[2 * across * CHANNELS..].as_ptr(), line.stride, buffer) };
        let mut column = 0;
        while column < channels {
            let filter = &filter[column * VECTORS..];
            let place = Place { line, filter, buffer, across, column };
            // Where registers are few, what was read of a window is used for several vectors; else a weight
            // for several windows.
            let few = L::ROWS < 12;
            column += match (channels - column) / L::COUNT {
                0 => place.windows::<L, 3, 1, false>(windows, y, argmax),
                4.. if few => place.windows::<L, 1, 4, true>(windows, y, argmax),
                2.. if few => place.windows::<L, 2, 2, true>(windows, y, argmax),
                _ => place.windows::<L, 3, 1, true>(windows, y, argmax),
            };
        }
        across += windows;
    }
}

/// Transforms what windows see of four lines: for each of the four rows of points three runs of floats.
///
/// # Safety
/// The lines can be read `LINE_FLOATS` floats far, and the buffer has `FLOATS` floats.
#[inline(always)]
unsafe fn to_points<L: Lanes>(lines: *const f32, stride: usize, buffer: &mut [f32]) {
    let (down, across) = buffer.split_at_mut(4 * LINE_FLOATS);
    for at in (0..SEEN + LANES_MAX).step_by(L::COUNT) {
        // SAFETY: the caller's promise.
        unsafe {
            let (a, b) = (L::load(lines.add(at)), L::load(lines.add(stride + at)));
            let (c, d) = (L::load(lines.add(2 * stride + at)), L::load(lines.add(3 * stride + at)));
            let rows = [a.sub(c), b.add(c), c.sub(b), b.sub(d)];
            for (row, value) in rows.into_iter().enumerate() {
                value.store(down.as_mut_ptr().add(row * LINE_FLOATS + at));
            }
        }
    }
    for row in 0..4 {
        for at in (0..SEEN).step_by(L::COUNT) {
            // SAFETY: as above.
            unsafe {
                let from = down.as_ptr().add(row * LINE_FLOATS + at);
                let (v, next) = (L::load(from), L::load(from.add(CHANNELS)));
                let third = L::load(from.add(2 * CHANNELS));
                let to = across.as_mut_ptr().add(row * 3 * SEEN + at);
                v.sub(third).store(to);
                v.add(next).store(to.add(SEEN));
                v.sub(next).store(to.add(2 * SEEN));
            }
        }
    }
}

/// What tiles give: both pixels of a line, for some vectors of channels.
type Sums<L, const TILES: usize, const WIDE: usize> = [[[L; 2]; WIDE]; TILES];

/// The windows whose transforms are in the buffer, from one of a line on, and vectors of channels from one
/// on.
struct Place<'a> {
    line: &'a Line<'a>,
    /// From the first vector on.
    filter: &'a [f32],
    buffer: &'a [f32],
    across: usize,
    column: usize,
}

impl Place<'_> {
    /// Computes some windows, `TILES` at once, for `WIDE` vectors of channels; `WHOLE` where there are
    /// channels for all of them. Returns how many channels that were.
    #[inline(always)]
    fn windows<L: Lanes, const TILES: usize, const WIDE: usize, const WHOLE: bool>(
        &self,
        windows: usize,
        y: &mut [f32],
        argmax: &mut [u8],
    ) -> usize {
        let whole = windows - windows % TILES;
        for window in (0..whole).step_by(TILES) {
            self.tiles::<L, TILES, WIDE, WHOLE>(window, y, argmax);
        }
        for window in whole..windows {
            self.tiles::<L, 1, WIDE, WHOLE>(window, y, argmax);
        }
        WIDE * L::COUNT
    }

    /// The same for `TILES` windows from one on.
    #[inline(always)]
    fn tiles<L: Lanes, const TILES: usize, const WIDE: usize, const WHOLE: bool>(
        &self,
        window: usize,
        y: &mut [f32],
        argmax: &mut [u8],
    ) {
        let values = &self.buffer[4 * LINE_FLOATS + 2 * window * CHANNELS..];
        // The rows between first, which both lines take, so that few sums wait.
        let second = products::<L, TILES, WIDE>(self.filter, values, 1, None);
        let third = products::<L, TILES, WIDE>(self.filter, values, 2, None);
        let (mut above, mut below) = (second, third);
        for tile in 0..TILES {
            for vector in 0..WIDE {
                for pixel in 0..2 {
                    let (second, third) = (second[tile][vector][pixel], third[tile][vector][pixel]);
                    above[tile][vector][pixel] = second.add(third);
                    below[tile][vector][pixel] = second.sub(third);
                }
            }
        }
        let above = products::<L, TILES, WIDE>(self.filter, values, 0, Some(above));
        let below = products::<L, TILES, WIDE>(self.filter, values, 3, Some(below));
        let channels = self.line.pooled.conv.output[2];
        let first = (self.across + window) * channels + self.column;
        let floats = if WHOLE { WIDE * L::COUNT } else { channels - self.column };
        assert!(floats <= WIDE * L::COUNT && VECTORS * WIDE * L::COUNT <= self.filter.len());
        let end = first + (TILES - 1) * channels + floats;
        assert!(end <= y.len() && end <= argmax.len());
        for vector in 0..WIDE {
            // SAFETY: each vector of the filter begins with one of biases.
            let bias = unsafe { L::load(self.filter.as_ptr().add(vector * VECTORS * L::COUNT)) };
            let count = if WHOLE { L::COUNT } else { L::COUNT.min(floats - vector * L::COUNT) };
            for tile in 0..TILES {
                let ([a, b], [c, d]) = (above[tile][vector], below[tile][vector]);
                // Adding the same bias to all four does not change the argmax.
                let (max, place) = L::max_and_argmax([a, b, c, d]);
                let at = first + tile * channels + vector * L::COUNT;
                // SAFETY: checked above.
                unsafe {
                    let (y, argmax) = (y.as_mut_ptr().add(at), argmax.as_mut_ptr().add(at));
                    write((bias.add(max), place), self.line.pooled.relu, count, y, argmax);
                }
            }
        }
    }
}

/// Adds the products of a row of points.
#[inline(always)]
fn products<L: Lanes, const TILES: usize, const WIDE: usize>(
    filter: &[f32],
    values: &[f32],
    row: usize,
    to: Option<Sums<L, TILES, WIDE>>,
) -> Sums<L, TILES, WIDE> {
    let (filter, values) = (&filter[(1 + row * 4 * CHANNELS) * L::COUNT..], &values[row * 3 * SEEN..]);
    let second = point::<L, TILES, WIDE>(filter, values, 1, None);
    let third = point::<L, TILES, WIDE>(filter, values, 2, None);
    let (mut left, mut right) = (second, third);
    for tile in 0..TILES {
        for vector in 0..WIDE {
            let (second, third) = (second[tile][vector], third[tile][vector]);
            let [mut first, mut last] = [second.add(third), second.sub(third)];
            if let Some(to) = &to {
                [first, last] = [first.add(to[tile][vector][0]), last.add(to[tile][vector][1])];
            }
            (left[tile][vector], right[tile][vector]) = (first, last);
        }
    }
    let left = point::<L, TILES, WIDE>(filter, values, 0, Some(left));
    let right = point::<L, TILES, WIDE>(filter, values, 3, Some(right));
    let mut sums = [[[L::splat(0.0); 2]; WIDE]; TILES];
    for tile in 0..TILES {
        for vector in 0..WIDE {
            sums[tile][vector] = [left[tile][vector], right[tile][vector]];
        }
    }
    sums
}

/// Adds the products of a point of a row.
#[inline(always)]
fn point<L: Lanes, const TILES: usize, const WIDE: usize>(
    filter: &[f32],
    values: &[f32],
    point: usize,
    to: Option<[[L; WIDE]; TILES]>,
) -> [[L; WIDE]; TILES] {
    assert!(((WIDE - 1) * VECTORS + 4 * CHANNELS) * L::COUNT <= filter.len());
    assert!(2 * SEEN + 2 * TILES * CHANNELS <= values.len() && point < 4);
    let start = [0, SEEN + CHANNELS, 2 * SEEN + CHANNELS, CHANNELS][point];
    let mut sums = to.unwrap_or([[L::splat(0.0); WIDE]; TILES]);
    for channel in 0..CHANNELS {
        let mut columns = [L::splat(0.0); WIDE];
        for (vector, columns) in columns.iter_mut().enumerate() {
            let at = (vector * VECTORS + channel * 4 + point) * L::COUNT;
            // SAFETY: checked above.
            *columns = unsafe { L::load(filter.as_ptr().add(at)) };
        }
        for (tile, sums) in sums.iter_mut().enumerate() {
            // SAFETY: checked above.
            let value = L::splat(unsafe { *values.as_ptr().add(start + 2 * tile * CHANNELS + channel) });
            for (sum, &columns) in sums.iter_mut().zip(&columns) {
                let is_first = to.is_none() && channel == 0;
                *sum = if is_first { value.mul(columns) } else { value.mul_add(columns, *sum) };
            }
        }
    }
    sums
}
