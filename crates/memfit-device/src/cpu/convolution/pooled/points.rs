//! Filters of 3×3 over three channels at points, as `winograd` does it: each window is a tile of four by four points, made of the
//! pixels under it by sums and differences, and 16 products a channel take the place of 36.
//!
//! What lines give is computed for some windows at a time, and stays in the first-level cache while all channels read it:
//! sums and differences of lines first, then, of each of these, those of neighbouring pixels.
//!
//! ```text
//! points across    v₀ − v₂   v₁ + v₂   v₁ − v₂   v₁ − v₃      the third with its sign turned round; the filter's is, too
//! ```

use super::super::super::lanes::{LANES_MAX, Lanes};
use super::Pooled;
use super::forward::{Line, largest, write};

/// Channels of a pixel.
const CHANNELS: usize = 3;
/// Windows whose points are held at once.
pub(super) const WINDOWS: usize = 30;
/// Floats of the pixels under them, in whole vectors.
const SEEN: usize = ((2 * WINDOWS + 2) * CHANNELS).next_multiple_of(LANES_MAX);
/// Floats of one of the sums and differences of lines: neighbours are read past the last.
const LINE_FLOATS: usize = SEEN + 2 * LANES_MAX;
/// Floats of the workspace of a worker, and how far behind the lines is read.
const FLOATS: usize = 4 * LINE_FLOATS + 4 * 3 * SEEN;
const REACH: usize = LINE_FLOATS;
/// Vectors of a filter for a vector of its output channels, with the bias.
const VECTORS: usize = 16 * CHANNELS + 1;

/// Whether a convolution is better computed so, with register tiles of so many rows.
pub(super) fn applies(pooled: &Pooled, rows: usize) -> bool {
    let conv = &pooled.conv;
    rows >= 12 && conv.kernel == [3, 3] && conv.strides == [1, 1] && conv.input[2] == CHANNELS
}

/// Floats of the workspace of a worker, where anything is computed at points.
pub(super) fn buffer_floats(pooled: &Pooled) -> usize {
    if applies(pooled, usize::MAX) { FLOATS } else { 0 }
}

/// How many floats behind the lines are read.
pub(super) fn reach(pooled: &Pooled) -> usize {
    if applies(pooled, usize::MAX) { REACH } else { 0 }
}

/// Floats of a filter at points, in vectors of any level.
pub(super) fn filter_floats(channels: usize) -> usize {
    VECTORS * channels.next_multiple_of(LANES_MAX)
}

/// Writes a filter at points: for each vector of output channels the bias, and then, for each row of points, input channel and
/// point of the row, the vector.
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
                for (point, value) in [first, second, -third, last].into_iter().enumerate() {
                    to[(1 + (row * CHANNELS + input) * 4 + point) * lanes] = value;
                }
            }
        }
    }
}

/// Three taps at four points.
fn points([a, b, c]: [f32; 3]) -> [f32; 4] {
    [a, 0.5 * (a + b + c), 0.5 * (a - b + c), c]
}

/// Computes a line of windows. `buffer` has `FLOATS` floats, and the lines may be read `REACH` floats past their end.
#[inline(always)]
pub(super) fn line<L: Lanes>(
    line: &Line,
    filter: &[f32],
    buffer: &mut [f32],
    y: &mut [f32],
    winners: &mut [u8],
) {
    let [_, width, channels] = line.pooled.output();
    assert!(buffer.len() >= FLOATS && filter.len() >= channels.div_ceil(L::COUNT) * VECTORS * L::COUNT);
    assert!(3 * line.stride + 2 * width * CHANNELS + REACH <= line.lines.len());
    let mut across = 0;
    while across < width {
        let windows = WINDOWS.min(width - across);
        // SAFETY: both were checked to be long enough.
        unsafe { to_points::<L>(line.lines[2 * across * CHANNELS..].as_ptr(), line.stride, buffer) };
        for (vector, filter) in filter.chunks_exact(VECTORS * L::COUNT).enumerate() {
            let column = vector * L::COUNT;
            if column >= channels {
                break;
            }
            let mut window = 0;
            while window < windows {
                let place = Place { line, across: across + window, column };
                let buffer = &buffer[..];
                let whole = L::COUNT <= channels - column;
                window += match (windows - window, whole) {
                    (1, _) => place.tiles::<L, 1, false>(filter, buffer, window, y, winners),
                    (2, _) => place.tiles::<L, 2, false>(filter, buffer, window, y, winners),
                    (_, false) => place.tiles::<L, 3, false>(filter, buffer, window, y, winners),
                    (_, true) => place.tiles::<L, 3, true>(filter, buffer, window, y, winners),
                };
            }
        }
        across += windows;
    }
}

/// The points of what windows see of four lines: for each of the four rows of points three stretches.
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

/// Windows side by side, and a vector of channels.
struct Place<'a> {
    line: &'a Line<'a>,
    across: usize,
    column: usize,
}

impl Place<'_> {
    /// Computes some windows, from one of those in the buffer on; returns how many. `WHOLE` where there are channels for a vector.
    #[inline(always)]
    fn tiles<L: Lanes, const TILES: usize, const WHOLE: bool>(
        &self,
        filter: &[f32],
        buffer: &[f32],
        window: usize,
        y: &mut [f32],
        winners: &mut [u8],
    ) -> usize {
        let values = &buffer[4 * LINE_FLOATS + 2 * window * CHANNELS..];
        let (mut above, mut below) = ([[L::splat(0.0); 2]; TILES], [[L::splat(0.0); 2]; TILES]);
        for row in 0..4 {
            let given = products::<L, TILES>(filter, values, row);
            for tile in 0..TILES {
                for pixel in 0..2 {
                    let given = given[tile][pixel];
                    match row {
                        0 => above[tile][pixel] = given,
                        3 => {}
                        _ => above[tile][pixel] = above[tile][pixel].add(given),
                    }
                    match row {
                        0 => {}
                        1 => below[tile][pixel] = given,
                        _ => below[tile][pixel] = below[tile][pixel].sub(given),
                    }
                }
            }
        }
        // SAFETY: the filter begins with a vector of biases.
        let bias: L = unsafe { L::load(filter[..L::COUNT].as_ptr()) };
        let channels = self.line.pooled.conv.output[2];
        let count = if WHOLE { L::COUNT } else { L::COUNT.min(channels - self.column) };
        let first = self.across * channels + self.column;
        let end = first + (TILES - 1) * channels + count;
        assert!(end <= y.len() && end <= winners.len());
        for tile in 0..TILES {
            let ([a, b], [c, d]) = (above[tile], below[tile]);
            // A bias that all have changes no winner.
            let (most, winner) = largest([a, b, c, d]);
            let at = first + tile * channels;
            // SAFETY: checked above.
            unsafe {
                let (y, winners) = (y.as_mut_ptr().add(at), winners.as_mut_ptr().add(at));
                write((bias.add(most), winner), self.line, count, y, winners);
            }
        }
        TILES
    }
}

/// What a row of points gives to both pixels of a line of each tile.
#[inline(always)]
fn products<L: Lanes, const TILES: usize>(filter: &[f32], values: &[f32], row: usize) -> [[L; 2]; TILES] {
    let (filter, values) = (&filter[(1 + row * 4 * CHANNELS) * L::COUNT..], &values[row * 3 * SEEN..]);
    assert!(filter.len() >= 4 * CHANNELS * L::COUNT);
    assert!(values.len() >= 2 * SEEN + 2 * TILES * CHANNELS);
    let starts = [0, SEEN + CHANNELS, 2 * SEEN + CHANNELS, CHANNELS];
    let mut points = [[L::splat(0.0); TILES]; 4];
    for channel in 0..CHANNELS {
        for (point, points) in points.iter_mut().enumerate() {
            // SAFETY: checked above.
            let weights = unsafe { L::load(filter.as_ptr().add((channel * 4 + point) * L::COUNT)) };
            for (tile, sum) in points.iter_mut().enumerate() {
                // SAFETY: checked above.
                let value = unsafe { *values.as_ptr().add(starts[point] + 2 * tile * CHANNELS + channel) };
                let value = L::splat(value);
                *sum = if channel == 0 { value.mul(weights) } else { value.mul_add(weights, *sum) };
            }
        }
    }
    let mut sums = [[L::splat(0.0); 2]; TILES];
    for (tile, sum) in sums.iter_mut().enumerate() {
        let (first, second, third, last) =
            (points[0][tile], points[1][tile], points[2][tile], points[3][tile]);
        *sum = [first.add(second.add(third)), second.sub(third).sub(last)];
    }
    sums
}
