//! One bit an element: what a ReLU's gradient needs of its output, lowest bit first, every row from a byte of its own.

use std::ops::Range;

use super::operands::{Floats, Operands};
use super::tasks::{self, BLOCK, Cut, Tasks, blocks};
use super::threads::Shared;

/// The most bytes of a row that are handled together.
const PIECE: usize = 1 << 11;

/// Sets the bits of elements above 0 and below a bound.
pub(crate) fn sign_bits(operands: &Operands, below: f32) {
    let pieces = Pieces::new(operands.input_shape(0).elements_per_row(), operands.context.rows);
    let bits = Shared::new(operands.output(0));
    let work = SignBits { pieces, below, values: operands.input_floats(0), bits };
    tasks::run(operands.threads, pieces.cut.count(), &work);
}

/// Keeps elements whose bit is set.
pub(crate) fn mask_bits(operands: &Operands) {
    let pieces = Pieces::new(operands.input_shape(0).elements_per_row(), operands.context.rows);
    let (dy, dx) = (operands.input_floats(0), operands.output_floats(0));
    let work = MaskBits { pieces, dy, bits: operands.input(1), dx };
    tasks::run(operands.threads, pieces.cut.count(), &work);
}

/// Rows of elements cut into pieces that begin on a byte, and pieces gathered into tasks.
#[derive(Clone, Copy)]
struct Pieces {
    elements: usize,
    bytes: usize,
    in_row: usize,
    cut: Cut,
}

impl Pieces {
    fn new(elements: usize, rows: usize) -> Pieces {
        let bytes = elements.div_ceil(8);
        let in_row = bytes.div_ceil(PIECE);
        Pieces { elements, bytes, in_row, cut: Cut::items(rows * in_row, elements.min(8 * PIECE)) }
    }

    /// The elements of a piece, and the bytes of their bits.
    #[inline(always)]
    fn piece(&self, piece: usize) -> (Range<usize>, Range<usize>) {
        let (row, part) = (piece / self.in_row, piece % self.in_row);
        let (start, end) = (part * PIECE, self.bytes.min((part + 1) * PIECE));
        let elements = row * self.elements + 8 * start..row * self.elements + self.elements.min(8 * end);
        (elements, row * self.bytes + start..row * self.bytes + end)
    }
}

struct SignBits<'a> {
    pieces: Pieces,
    below: f32,
    values: Floats<'a>,
    bits: Shared<'a, u8>,
}

impl Tasks for SignBits<'_> {
    #[inline(always)]
    fn task(&self, task: usize, _worker: usize) {
        for piece in self.pieces.cut.range(task) {
            let (elements, bytes) = self.pieces.piece(piece);
            // SAFETY: pieces do not share bytes, and every piece belongs to one task.
            let bits = unsafe { self.bits.slice(bytes) };
            for (block, bits) in blocks(elements).zip(bits.chunks_mut(BLOCK / 8)) {
                // SAFETY: nobody writes the values.
                unsafe { self.values.with(block, |values| within(values, self.below, bits)) };
            }
        }
    }
}

#[inline(always)]
fn within(values: &[f32], below: f32, bits: &mut [u8]) {
    for (byte, eight) in bits.iter_mut().zip(values.chunks(8)) {
        *byte = eight
            .iter()
            .enumerate()
            .fold(0, |byte, (bit, value)| byte | u8::from(*value > 0.0 && *value < below) << bit);
    }
}

struct MaskBits<'a> {
    pieces: Pieces,
    dy: Floats<'a>,
    bits: &'a [u8],
    dx: Floats<'a>,
}

impl Tasks for MaskBits<'_> {
    #[inline(always)]
    fn task(&self, task: usize, _worker: usize) {
        let (mut kept, mut wide) = ([0.0; BLOCK], [0.0; BLOCK]);
        for piece in self.pieces.cut.range(task) {
            let (elements, bytes) = self.pieces.piece(piece);
            let bits = &self.bits[bytes];
            for (block, bits) in blocks(elements).zip(bits.chunks(BLOCK / 8)) {
                // SAFETY: the only write to the block is this task's own, behind the read.
                let dy = unsafe { self.dy.load(block.clone(), &mut wide) };
                for ((eight, dy), byte) in kept.chunks_mut(8).zip(dy.chunks(8)).zip(bits) {
                    for (bit, (kept, dy)) in eight.iter_mut().zip(dy).enumerate() {
                        *kept = if byte >> bit & 1 == 1 { *dy } else { 0.0 };
                    }
                }
                // SAFETY: the block belongs to this task, and the slice that read it is gone.
                unsafe { self.dx.store(block.clone(), &kept[..block.len()]) };
            }
        }
    }
}
