//! What kernels did not write because it was not finite: raised by any thread, read after a launch.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bits of a float that hold its magnitude, and those of infinity's.
const MAGNITUDE: u32 = 0x7fff_ffff;
const INFINITE: u32 = 0x7f80_0000;

/// The magnitude of a float as bits: the largest of many is finite if and only if all of them are.
#[inline(always)]
pub fn magnitude(value: f32) -> u32 {
    value.to_bits() & MAGNITUDE
}

/// Whether a magnitude is that of a finite value.
#[inline(always)]
pub fn is_finite(magnitude: u32) -> bool {
    magnitude < INFINITE
}

/// What a launch kept as it was, because its new values were not finite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Elements of the first tensor that the node changes.
    pub elements: u64,
    /// Whether the other tensors that the node changes were written nevertheless: a rule that sees a whole
    /// weight updates its state first.
    pub state_written: bool,
}

/// Raised by kernels that keep old values.
#[derive(Default)]
pub struct FoundInf {
    elements: AtomicU64,
    state_written: AtomicBool,
}

impl FoundInf {
    /// Elements were kept, and their state too.
    pub fn raise(&self, elements: usize) {
        self.elements.fetch_add(elements as u64, Ordering::Relaxed);
    }

    /// Elements were kept, and their state was written.
    pub fn raise_with_state(&self, elements: usize) {
        self.state_written.store(true, Ordering::Relaxed);
        self.raise(elements);
    }

    /// What was raised since this was asked last.
    pub fn take(&mut self) -> Kept {
        Kept {
            elements: std::mem::take(self.elements.get_mut()),
            state_written: std::mem::take(self.state_written.get_mut()),
        }
    }
}
