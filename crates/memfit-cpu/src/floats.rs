//! Floats of any size that an input and an output may share: no references, but parts that are read and written in turn.

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

use super::half::Half;
use super::lanes::{LANES_MAX, Lanes, load, prefetch_read};
use super::tasks::BLOCK;
use memfit_device::Arena;

/// Floats that an input and an output may share. It makes references only to parts, while they are not
/// written: a kernel reads a block, computes in a buffer of its own, and writes the block.
#[derive(Clone, Copy)]
pub(crate) struct Floats<'a> {
    start: NonNull<u8>,
    length: usize,
    /// The type of the elements where they are not of single precision.
    half: Option<Half>,
    arena: PhantomData<&'a Arena>,
}

// SAFETY: reading and writing parts is unsafe, and those who do it keep tasks apart.
unsafe impl Send for Floats<'_> {}
// SAFETY: as above.
unsafe impl Sync for Floats<'_> {}

impl<'a> Floats<'a> {
    /// As many elements from an aligned place in the arena on, all of them inside one slot.
    pub(super) fn new(start: NonNull<u8>, length: usize, half: Option<Half>) -> Floats<'a> {
        Floats { start, length, half, arena: PhantomData }
    }

    /// Scratch memory whose parts several tasks write and then read.
    pub(crate) fn over(floats: &'a mut [f32]) -> Floats<'a> {
        let (start, length) = (NonNull::from(&mut *floats).cast(), floats.len());
        Floats { start, length, half: None, arena: PhantomData }
    }

    /// How many floats there are.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Whether the elements are f16 or bf16.
    pub(crate) fn is_half(&self) -> bool {
        self.half.is_some()
    }

    /// A part in single precision: in place, or widened into a buffer.
    ///
    /// # Safety
    /// The part is not written while the slice lives.
    #[inline(always)]
    pub(crate) unsafe fn load<'b>(&self, part: Range<usize>, buffer: &'b mut [f32]) -> &'b [f32]
    where
        'a: 'b,
    {
        match self.half {
            // SAFETY: the caller's promise.
            None => unsafe { self.read(part) },
            Some(half) => {
                let buffer = &mut buffer[..part.len()];
                // SAFETY: the caller's promise.
                half.widen(unsafe { self.halves(part) }, buffer);
                buffer
            }
        }
    }

    /// A vector of neighbours in single precision, or its first `count` and zeros.
    ///
    /// # Safety
    /// `count` elements lie inside, no more than a vector's, and they are not written meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn vector<L: Lanes>(&self, element: usize, count: usize) -> L {
        if self.half.is_none() {
            // SAFETY: the caller's promise.
            return unsafe { load(self.singles().add(element), count) };
        }
        let mut wide = [0.0; LANES_MAX];
        // SAFETY: the caller's promise.
        unsafe { self.load(element..element + count, &mut wide) };
        // SAFETY: there is room for every vector.
        unsafe { L::load(wide.as_ptr()) }
    }

    /// The same, of a kind that is known where the loop is compiled.
    ///
    /// # Safety
    /// As above; unless `HALVES` the elements are of single precision.
    #[inline(always)]
    pub(crate) unsafe fn vector_of<L: Lanes, const HALVES: bool>(&self, element: usize, count: usize) -> L {
        // SAFETY: the caller's promise.
        unsafe {
            match HALVES {
                true => self.vector(element, count),
                false => load(self.start.cast::<f32>().as_ptr().add(element), count),
            }
        }
    }

    /// Prefetches the cache line of an element of single precision; the element need not lie inside.
    #[inline(always)]
    pub(crate) fn prefetch(&self, element: usize) {
        if self.half.is_none() {
            prefetch_read(self.singles().wrapping_add(element));
        }
    }

    /// Hands a part of at most a block to a function, in single precision.
    ///
    /// # Safety
    /// The part is not written while the function runs.
    #[inline(always)]
    pub(crate) unsafe fn with<R>(&self, part: Range<usize>, body: impl FnOnce(&[f32]) -> R) -> R {
        match self.half {
            // SAFETY: the caller's promise.
            None => body(unsafe { self.read(part) }),
            Some(_) => {
                let mut buffer = [0.0; BLOCK];
                // SAFETY: the caller's promise.
                body(unsafe { self.load(part, &mut buffer) })
            }
        }
    }

    /// Writes a part, rounded where the elements are f16 or bf16.
    ///
    /// # Safety
    /// The part is not read or written elsewhere meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn store(&self, part: Range<usize>, values: &[f32]) {
        match self.half {
            // SAFETY: the caller's promise.
            None => unsafe { self.write(part) }.copy_from_slice(values),
            Some(half) => {
                assert!(part.start <= part.end && part.end <= self.length, "a part lies inside its tensor");
                let start = self.start.cast::<u16>().as_ptr();
                // SAFETY: the part lies inside, and the caller guarantees that only this task uses it.
                let to = unsafe { std::slice::from_raw_parts_mut(start.add(part.start), part.len()) };
                half.narrow(values, to);
            }
        }
    }

    /// A part of f16 or bf16 elements, to be read.
    ///
    /// # Safety
    /// The part is not written while the slice lives.
    #[inline(always)]
    unsafe fn halves(&self, part: Range<usize>) -> &'a [u16] {
        assert!(part.start <= part.end && part.end <= self.length, "a part lies inside its tensor");
        // SAFETY: the part lies inside, and the caller guarantees that it is not written.
        unsafe { std::slice::from_raw_parts(self.start.cast::<u16>().as_ptr().add(part.start), part.len()) }
    }

    /// Where the elements begin, which are of single precision.
    #[inline(always)]
    fn singles(&self) -> *mut f32 {
        assert!(self.half.is_none(), "f16 and bf16 are loaded and stored");
        self.start.cast().as_ptr()
    }

    /// A pointer to the first float, for kernels whose parts are not one range. They keep readers and writers apart.
    pub(crate) fn pointer(&self) -> *mut f32 {
        self.singles()
    }

    /// Where a part begins, for loops that read and write the same place in turn.
    #[inline(always)]
    pub(crate) fn place(&self, part: &Range<usize>) -> *mut f32 {
        assert!(part.start <= part.end && part.end <= self.length, "a part lies inside its tensor");
        self.singles().wrapping_add(part.start)
    }

    /// A part, to be read.
    ///
    /// # Safety
    /// The part is not written while the slice lives.
    #[inline(always)]
    pub(crate) unsafe fn read(&self, part: Range<usize>) -> &'a [f32] {
        assert!(part.start <= part.end && part.end <= self.length, "a part lies inside its tensor");
        // SAFETY: the part lies inside, and the caller guarantees that it is not written.
        unsafe { std::slice::from_raw_parts(self.singles().add(part.start), part.end - part.start) }
    }

    /// A part, to be written.
    ///
    /// # Safety
    /// The part is not read or written elsewhere while the slice lives.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, part: Range<usize>) -> &'a mut [f32] {
        assert!(part.start <= part.end && part.end <= self.length, "a part lies inside its tensor");
        // SAFETY: the part lies inside, and the caller guarantees that only this task uses it.
        unsafe { std::slice::from_raw_parts_mut(self.singles().add(part.start), part.end - part.start) }
    }
}
