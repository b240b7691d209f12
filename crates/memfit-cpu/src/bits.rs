//! One bit an element: what a ReLU's gradient needs of its output, lowest bit first, every row from a byte of
//! its own.

use std::ops::Range;

use memfit_ir::Operand::{Bits, Dx, Dy, X, Y};
use memfit_ir::Producer;

use super::floats::Floats;
use super::lanes::{LANES_MAX, Lanes, Mask, load, store};
use super::operands::Operands;
use super::producer::{self, Made};
use super::tasks::{self, BLOCK, Cut, Tasks, blocks};
use super::threads::Shared;

/// The most bytes of a row that are handled together.
const RUN: usize = 1 << 11;

/// Sets the bits of elements above 0 and below a bound.
pub(crate) fn sign_bits(operands: &Operands, below: f32) {
    let runs = Runs::new(operands.shape(Y).elements_per_row(), operands.context.rows);
    let bits = Shared::new(operands.output(Bits));
    let work = SignBits { runs, below, values: operands.input_floats(Y), bits };
    tasks::run(operands.threads, runs.cut.count(), &work);
}

/// The same for elements that are recomputed while they are read.
pub(crate) fn sign_bits_of(operands: &Operands, producer: &Producer, below: f32) {
    let shape = operands.shape(X);
    let made =
        Made::new(operands, producer, operands.workspace().take_floats(producer::workspace(producer, shape)));
    let runs = Runs::new(shape.elements_per_row(), operands.context.rows);
    let channels = shape.last();
    let work = SignBitsOf { runs, below, made, channels, bits: Shared::new(operands.output(Bits)) };
    tasks::run(operands.threads, runs.cut.count(), &work);
}

/// Keeps elements whose bit is set, and hands back where they stand now.
pub(crate) fn mask_bits<'a>(operands: &Operands<'a>) -> Floats<'a> {
    let runs = Runs::new(operands.shape(Dy).elements_per_row(), operands.context.rows);
    let (dy, dx) = (operands.input_floats(Dy), operands.output_floats(Dx));
    let work = MaskBits { runs, dy, other: None, bits: operands.input(Bits), dx };
    tasks::run(operands.threads, runs.cut.count(), &work);
    dx
}

/// Keeps sums of the first two inputs whose bit, of the third, is set.
pub(crate) fn mask_sum_into(operands: &Operands, dx: Floats<'_>) {
    let runs = Runs::new(operands.shape(Dy).elements_per_row(), operands.context.rows);
    let (dy, other) = (operands.input_floats(Dy), operands.input_floats((Dy, 1)));
    let work = MaskBits { runs, dy, other: Some(other), bits: operands.input(Bits), dx };
    tasks::run(operands.threads, runs.cut.count(), &work);
}

/// Rows of elements cut into runs of whole bytes, and runs gathered into tasks.
#[derive(Clone, Copy)]
struct Runs {
    elements: usize,
    bytes: usize,
    in_row: usize,
    cut: Cut,
}

impl Runs {
    fn new(elements: usize, rows: usize) -> Runs {
        let bytes = elements.div_ceil(8);
        let in_row = bytes.div_ceil(RUN);
        Runs { elements, bytes, in_row, cut: Cut::items(rows * in_row, elements.min(8 * RUN)) }
    }

    /// The elements of a run, and the bytes of their bits.
    #[inline(always)]
    fn run(&self, run: usize) -> (Range<usize>, Range<usize>) {
        let (row, part) = (run / self.in_row, run % self.in_row);
        let (start, end) = (part * RUN, self.bytes.min((part + 1) * RUN));
        let elements = row * self.elements + 8 * start..row * self.elements + self.elements.min(8 * end);
        (elements, row * self.bytes + start..row * self.bytes + end)
    }
}

struct SignBits<'a> {
    runs: Runs,
    below: f32,
    values: Floats<'a>,
    bits: Shared<'a, u8>,
}

impl Tasks for SignBits<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        for run in self.runs.cut.range(task) {
            let (elements, bytes) = self.runs.run(run);
            // SAFETY: runs do not share bytes, and every run belongs to one task.
            let bits = unsafe { self.bits.slice(bytes) };
            let mut wide = [0.0; BLOCK];
            for (block, bits) in blocks(elements).zip(bits.chunks_mut(BLOCK / 8)) {
                // SAFETY: the values are not written during this launch.
                within::<L>(unsafe { self.values.load(block, &mut wide) }, self.below, bits);
            }
        }
    }
}

struct SignBitsOf<'a> {
    runs: Runs,
    below: f32,
    made: Made<'a>,
    channels: usize,
    bits: Shared<'a, u8>,
}

impl Tasks for SignBitsOf<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        for run in self.runs.cut.range(task) {
            let (elements, bytes) = self.runs.run(run);
            // SAFETY: runs do not share bytes, and every run belongs to one task.
            let bits = unsafe { self.bits.slice(bytes) };
            let mut values = [0.0; BLOCK];
            for (block, bits) in blocks(elements).zip(bits.chunks_mut(BLOCK / 8)) {
                let (column, count) = (block.start % self.channels, block.len());
                // SAFETY: the buffer holds a block.
                unsafe { self.made.make::<L>(block, column, values.as_mut_ptr()) };
                within::<L>(&values[..count], self.below, bits);
            }
        }
    }
}

/// Elements whose bits are handled together: of every vector there is a whole number.
const TOGETHER: usize = LANES_MAX;

#[inline(always)]
fn within<L: Lanes>(values: &[f32], below: f32, bits: &mut [u8]) {
    let (whole, rest) = values.as_chunks::<TOGETHER>();
    let (words, last) = bits.as_chunks_mut::<{ TOGETHER / 8 }>();
    for (values, word) in whole.iter().zip(&mut *words) {
        *word = bits_of::<L>(values, below);
    }
    if !rest.is_empty() {
        let mut values = [0.0; TOGETHER];
        values[..rest.len()].copy_from_slice(rest);
        let last = if last.is_empty() { &mut words[whole.len()][..] } else { last };
        last.copy_from_slice(&bits_of::<L>(&values, below)[..last.len()]);
    }
}

#[inline(always)]
fn bits_of<L: Lanes>(values: &[f32; TOGETHER], below: f32) -> [u8; TOGETHER / 8] {
    let (mut word, mut lane) = (0, 0);
    while lane < TOGETHER {
        // SAFETY: vectors divide what is handled together.
        let vector = unsafe { L::load(values.as_ptr().add(lane)) };
        word |= vector.between(L::splat(0.0), L::splat(below)).bits() << lane;
        lane += L::COUNT;
    }
    (word as u16).to_le_bytes()
}

/// Keeps the values whose bit is set, in place or in another buffer.
///
/// # Safety
/// Both ends hold `count` floats that no other task writes. They are the same floats or do not overlap.
#[inline(always)]
unsafe fn keep<L: Lanes>(from: *const f32, bits: &[u8], to: *mut f32, count: usize) {
    let mut at = 0;
    while at + TOGETHER <= count {
        let word = u32::from(u16::from_le_bytes([bits[at / 8], bits[at / 8 + 1]]));
        let mut lane = 0;
        while lane < TOGETHER {
            // SAFETY: a vector's floats are left at both ends.
            unsafe { L::load(from.add(at + lane)).keep(Mask::of(word >> lane)).store(to.add(at + lane)) };
            lane += L::COUNT;
        }
        at += TOGETHER;
    }
    while at < count {
        let kept = bits[at / 8] >> (at % 8) & 1 == 1;
        // SAFETY: as above.
        unsafe { *to.add(at) = if kept { *from.add(at) } else { 0.0 } };
        at += 1;
    }
}

/// The sums of two tensors, element by element.
///
/// # Safety
/// All three hold `count` floats, and no other task touches those that are written.
#[inline(always)]
unsafe fn add<L: Lanes>(a: *const f32, b: *const f32, to: *mut f32, count: usize) {
    let mut at = 0;
    while at < count {
        let left = L::COUNT.min(count - at);
        // SAFETY: `left` floats are left of each.
        unsafe { store(load::<L>(a.add(at), left).add(load(b.add(at), left)), to.add(at), left) };
        at += L::COUNT;
    }
}

struct MaskBits<'a> {
    runs: Runs,
    dy: Floats<'a>,
    /// What is added to it, where there is something.
    other: Option<Floats<'a>>,
    bits: &'a [u8],
    dx: Floats<'a>,
}

impl Tasks for MaskBits<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let (mut kept, mut wide, mut sums) = ([0.0; BLOCK], [0.0; BLOCK], [0.0; BLOCK]);
        for run in self.runs.cut.range(task) {
            let (elements, bytes) = self.runs.run(run);
            let bits = &self.bits[bytes];
            for (block, bits) in blocks(elements).zip(bits.chunks(BLOCK / 8)) {
                let count = block.len();
                // SAFETY: the only write to the block is this task's own, after the read.
                let mut dy = unsafe { self.dy.load(block.clone(), &mut wide) }.as_ptr();
                if let Some(other) = self.other {
                    // SAFETY: as above.
                    let other = unsafe { other.load(block.clone(), &mut kept) }.as_ptr();
                    // SAFETY: all three hold the block, and the sums belong to this task.
                    unsafe { add::<L>(dy, other, sums.as_mut_ptr(), count) };
                    dy = sums.as_ptr();
                }
                if self.dx.is_half() {
                    // SAFETY: both hold the block.
                    unsafe { keep::<L>(dy, bits, kept.as_mut_ptr(), count) };
                    // SAFETY: the block belongs to this task.
                    unsafe { self.dx.store(block, &kept[..count]) };
                } else {
                    // SAFETY: the block belongs to this task, which has no slice of it.
                    let to = unsafe { self.dx.write(block) }.as_mut_ptr();
                    // SAFETY: the block lies inside both; they are the same or share nothing.
                    unsafe { keep::<L>(dy, bits, to, count) };
                }
            }
        }
    }
}
