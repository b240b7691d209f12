//! Vectors for machines about which nothing is known: four floats that the compiler may put in one register.

use super::Lanes;

#[derive(Clone, Copy)]
#[repr(align(16))]
pub(super) struct Plain([f32; 4]);

impl Lanes for Plain {
    const COUNT: usize = 4;
    const ROWS: usize = 4;
    type Mask = u32;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        Plain([value; 4])
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Plain(std::array::from_fn(|i| self.0[i] + other.0[i]))
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Plain(std::array::from_fn(|i| self.0[i] - other.0[i]))
    }

    #[inline(always)]
    fn at_least(self, low: Self) -> Self {
        Plain(std::array::from_fn(|i| if self.0[i] < low.0[i] { low.0[i] } else { self.0[i] }))
    }

    #[inline(always)]
    fn at_most(self, high: Self) -> Self {
        Plain(std::array::from_fn(|i| if self.0[i] > high.0[i] { high.0[i] } else { self.0[i] }))
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Plain(std::array::from_fn(|i| self.0[i] * other.0[i]))
    }

    /// Two roundings: without an instruction for it, one rounding would be a call into the maths library.
    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        self.mul(factor).add(term)
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller guarantees four floats.
        Plain(unsafe { from.cast::<[f32; 4]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> Self {
        // SAFETY: the caller guarantees `count` floats.
        Plain(std::array::from_fn(|i| if i < count { unsafe { *from.add(i) } } else { 0.0 }))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller guarantees four floats.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        for (i, value) in self.0.into_iter().enumerate().take(count) {
            // SAFETY: the caller guarantees `count` floats.
            unsafe { *to.add(i) = value };
        }
    }
}
