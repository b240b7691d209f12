//! Vectors of four floats in the 32 NEON registers, which every 64-bit Arm has.

use std::arch::aarch64::*;

use super::Lanes;

// SAFETY of every block below: NEON is part of the architecture, and callers guarantee the floats at each
// pointer.
impl Lanes for float32x4_t {
    const COUNT: usize = 4;
    const ROWS: usize = 12;
    type Mask = u32;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: see above.
        unsafe { vdupq_n_f32(value) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { vaddq_f32(self, other) }
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { vsubq_f32(self, other) }
    }

    #[inline(always)]
    fn at_least(self, low: Self) -> Self {
        // SAFETY: see above.
        unsafe { vmaxq_f32(self, low) }
    }

    #[inline(always)]
    fn at_most(self, high: Self) -> Self {
        // SAFETY: see above.
        unsafe { vminq_f32(self, high) }
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { vmulq_f32(self, other) }
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        // SAFETY: see above.
        unsafe { vfmaq_f32(term, self, factor) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: see above.
        unsafe { vld1q_f32(from) }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> Self {
        let mut values = [0.0; 4];
        for (i, value) in values.iter_mut().enumerate().take(count) {
            // SAFETY: see above.
            *value = unsafe { *from.add(i) };
        }
        // SAFETY: see above.
        unsafe { vld1q_f32(values.as_ptr()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: see above.
        unsafe { vst1q_f32(to, self) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        let mut values = [0.0; 4];
        // SAFETY: see above.
        unsafe { vst1q_f32(values.as_mut_ptr(), self) };
        for (i, value) in values.into_iter().enumerate().take(count) {
            // SAFETY: see above.
            unsafe { *to.add(i) = value };
        }
    }
}
