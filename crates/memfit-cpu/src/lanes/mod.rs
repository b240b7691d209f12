//! Vectors of floats: one trait, one type for each instruction set, and the choice between them at run time.

mod choice;
#[cfg(target_arch = "aarch64")]
mod neon;
mod plain;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::ops::Not;
use std::sync::OnceLock;

/// The most rows that any level's register tile has.
pub(crate) const ROWS_MAX: usize = 12;
/// The most floats that any level's vector holds.
pub(crate) const LANES_MAX: usize = 16;
/// The most columns that any level's register tile has: two vectors.
pub(crate) const COLUMNS_MAX: usize = 2 * LANES_MAX;

/// Some lanes of a vector: a bit for each, the first lowest, or a vector where instructions choose by one.
pub(crate) trait Mask: Copy + Not<Output = Self> {
    /// The lanes whose bit is set.
    fn of(bits: u32) -> Self;
    /// A bit for each lane that is meant; those past the last lane mean nothing.
    fn bits(self) -> u32;
}

impl Mask for u32 {
    #[inline(always)]
    fn of(bits: u32) -> Self {
        bits
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self
    }
}

/// A vector of floats. Types that implement it are met only inside `Level::call`, which knows that the
/// machine has their instructions.
pub(crate) trait Lanes: Copy {
    /// How many floats a vector holds.
    const COUNT: usize;
    /// How many rows, of two vectors each, a register tile has before registers spill.
    const ROWS: usize;
    /// Lanes that a comparison found.
    type Mask: Mask;

    fn splat(value: f32) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// No lane below `low`; what is not a number stays so.
    fn at_least(self, low: Self) -> Self;
    /// No lane above `high`; what is not a number stays so.
    fn at_most(self, high: Self) -> Self;
    /// `self * factor + term`, rounded once where the machine can.
    fn mul_add(self, factor: Self, term: Self) -> Self;
    /// The lanes above `low` and below `high`.
    #[inline(always)]
    fn between(self, low: Self, high: Self) -> Self::Mask {
        let [values, low, high] = [self, low, high].map(floats);
        Mask::of(
            (0..Self::COUNT)
                .fold(0, |bits, i| bits | u32::from(low[i] < values[i] && values[i] < high[i]) << i),
        )
    }
    /// Zero in all other lanes.
    #[inline(always)]
    fn keep(self, lanes: Self::Mask) -> Self {
        let (mut values, bits) = (floats(self), lanes.bits());
        (0..Self::COUNT).filter(|i| bits >> i & 1 == 0).for_each(|i| values[i] = 0.0);
        // SAFETY: there is room for every vector.
        unsafe { Self::load(values.as_ptr()) }
    }
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        let [mut values, others] = [self, other].map(floats);
        for i in 0..Self::COUNT {
            values[i] /= others[i];
        }
        // SAFETY: there is room for every vector.
        unsafe { Self::load(values.as_ptr()) }
    }
    /// The square root.
    #[inline(always)]
    fn root(self) -> Self {
        let mut values = floats(self);
        for value in &mut values[..Self::COUNT] {
            *value = value.sqrt();
        }
        // SAFETY: there is room for every vector.
        unsafe { Self::load(values.as_ptr()) }
    }
    /// `self · 2ⁿ` for whole numbers `n` from −252 to 254; `self` where both are not numbers.
    #[inline(always)]
    fn times_power_of_two(self, n: Self) -> Self {
        let [mut values, n] = [self, n].map(floats);
        for i in 0..Self::COUNT {
            // Two factors, since 2ⁿ alone can lie outside the normal numbers.
            let (n, half) = (n[i] as i32, n[i] as i32 >> 1);
            let power = |n: i32| f32::from_bits(((n + 127) as u32) << 23);
            values[i] = values[i] * power(half) * power(n - half);
        }
        // SAFETY: as above.
        unsafe { Self::load(values.as_ptr()) }
    }
    /// The lanes that are larger than the other's, or not a number.
    #[inline(always)]
    fn beats(self, other: Self) -> Self::Mask {
        let [values, others] = [self, other].map(floats);
        Mask::of(
            (0..Self::COUNT)
                .fold(0, |bits, i| bits | u32::from(values[i] > others[i] || values[i].is_nan()) << i),
        )
    }
    /// The other's values in these lanes.
    #[inline(always)]
    fn or_where(self, lanes: Self::Mask, other: Self) -> Self {
        let ([mut values, others], bits) = ([self, other].map(floats), lanes.bits());
        for i in 0..Self::COUNT {
            values[i] = if bits >> i & 1 == 1 { others[i] } else { values[i] };
        }
        // SAFETY: there is room for every vector.
        unsafe { Self::load(values.as_ptr()) }
    }
    /// The maximum of four, and its place: the first of equals. A NaN is the maximum; then the place is any
    /// of them.
    #[inline(always)]
    fn max_and_argmax([a, b, c, d]: [Self; 4]) -> (Self, Self) {
        // Pairs first, which need not wait for each other.
        let (below, above) = (d.beats(c), b.beats(a));
        let (most_above, most_below) = (a.or_where(above, b), c.or_where(below, d));
        let (first, second) = (Self::splat(f32::from_bits(0)), Self::splat(f32::from_bits(1)));
        let (third, last) = (Self::splat(f32::from_bits(2)), Self::splat(f32::from_bits(3)));
        let (place_above, place_below) = (first.or_where(above, second), third.or_where(below, last));
        let takes_below = most_below.beats(most_above);
        (most_above.or_where(takes_below, most_below), place_above.or_where(takes_below, place_below))
    }
    /// Writes the low byte of the first `count` lanes.
    /// # Safety
    /// `count` bytes can be written.
    #[inline(always)]
    unsafe fn store_low_bytes(self, to: *mut u8, count: usize) {
        for (i, value) in floats(self)[..count].iter().enumerate() {
            // SAFETY: the caller guarantees them.
            unsafe { *to.add(i) = value.to_bits() as u8 };
        }
    }
    /// Those of the first `count` lanes whose byte is this one.
    /// # Safety
    /// `count` bytes can be read.
    #[inline(always)]
    unsafe fn bytes_equal(from: *const u8, byte: u8, count: usize) -> Self::Mask {
        // SAFETY: the caller guarantees them.
        Mask::of((0..count).fold(0, |bits, i| bits | u32::from(unsafe { *from.add(i) } == byte) << i))
    }
    /// The first `count` bytes as whole numbers, one a lane; lanes of whole numbers hold their bits.
    /// # Safety
    /// `count` bytes can be read.
    #[inline(always)]
    unsafe fn load_bytes(from: *const u8, count: usize) -> Self {
        let mut values = [0.0; LANES_MAX];
        for (i, value) in values[..count].iter_mut().enumerate() {
            // SAFETY: the caller guarantees them.
            *value = f32::from_bits(u32::from(unsafe { *from.add(i) }));
        }
        // SAFETY: there is room for every vector.
        unsafe { Self::load(values.as_ptr()) }
    }
    /// Whether [`Lanes::pick`] is one instruction.
    const PICKS: bool = false;
    /// For each of these whole numbers below 8 the float at that place; for any other one of them, or 0.
    /// # Safety
    /// 8 floats can be read.
    #[inline(always)]
    unsafe fn pick(self, from: *const f32) -> Self {
        let mut values = floats(self);
        for value in &mut values[..Self::COUNT] {
            // SAFETY: the caller guarantees them.
            *value = unsafe { *from.add(value.to_bits() as usize % 8) };
        }
        // SAFETY: there is room for every vector.
        unsafe { Self::load(values.as_ptr()) }
    }
    /// Writes `COUNT` pairs, each of a lane and the other's.
    /// # Safety
    /// There is room for them.
    #[inline(always)]
    unsafe fn store_pairs(self, other: Self, to: *mut f32) {
        let [values, others] = [self, other].map(floats);
        for i in 0..Self::COUNT {
            // SAFETY: the caller guarantees it.
            unsafe {
                *to.add(2 * i) = values[i];
                *to.add(2 * i + 1) = others[i];
            }
        }
    }
    /// Adds to doubles.
    /// # Safety
    /// `COUNT` doubles can be read and written.
    #[inline(always)]
    unsafe fn add_to(self, to: *mut f64) {
        for (i, value) in floats(self)[..Self::COUNT].iter().enumerate() {
            // SAFETY: the caller guarantees them.
            unsafe { *to.add(i) += f64::from(*value) };
        }
    }
    /// # Safety
    /// `COUNT` floats can be read.
    unsafe fn load(from: *const f32) -> Self;
    /// Zero in the lanes from `count` on.
    /// # Safety
    /// `count` floats can be read.
    unsafe fn load_first(from: *const f32, count: usize) -> Self;
    /// # Safety
    /// `COUNT` floats can be written.
    unsafe fn store(self, to: *mut f32);
    /// The same past the caches, for what is not read soon; [`Lanes::fence`] comes before another thread
    /// reads it.
    /// # Safety
    /// `COUNT` floats can be written, and `to` is a multiple of as many.
    #[inline(always)]
    unsafe fn stream(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { self.store(to) }
    }
    /// Makes what was streamed visible to all threads.
    #[inline(always)]
    fn fence() {}
    /// # Safety
    /// `count` floats can be written.
    unsafe fn store_first(self, to: *mut f32, count: usize);
    /// Writes `COUNT` rows of no more than `COUNT` columns as that many rows of `COUNT` floats.
    /// # Safety
    /// Both ends hold their rows, `stride` and `to_stride` apart.
    #[inline(always)]
    unsafe fn transpose(from: *const f32, stride: usize, columns: usize, to: *mut f32, to_stride: usize) {
        // SAFETY: the caller guarantees both ends.
        unsafe { transpose(from, stride, Self::COUNT, columns, to, to_stride) }
    }
}

/// The lanes of a vector, one by one.
#[inline(always)]
fn floats<L: Lanes>(vector: L) -> [f32; LANES_MAX] {
    let mut floats = [0.0; LANES_MAX];
    // SAFETY: there is room for every vector.
    unsafe { vector.store(floats.as_mut_ptr()) };
    floats
}

/// A loop over vectors. `run` and all that it calls are `#[inline(always)]`, so that they are compiled for
/// the instructions of `L`.
pub(crate) trait Kernel {
    fn run<L: Lanes>(self);
}

/// The vector instructions to use: always ones that this machine has, since nothing outside this file makes
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level(Instructions);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instructions {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Level {
    /// The widest vectors that this machine has.
    pub(crate) fn best() -> Level {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(|| Level::available().last().expect("plain floats are always there"))
    }

    /// Every level that this machine has, the widest last.
    pub(crate) fn available() -> impl Iterator<Item = Level> {
        let levels = [
            Some(Instructions::Plain),
            #[cfg(target_arch = "x86_64")]
            (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"))
                .then_some(Instructions::Avx2),
            #[cfg(target_arch = "x86_64")]
            is_x86_feature_detected!("avx512f").then_some(Instructions::Avx512),
            #[cfg(target_arch = "aarch64")]
            Some(Instructions::Neon),
        ];
        levels.into_iter().flatten().map(Level)
    }

    /// Runs a kernel, compiled for these instructions.
    pub(crate) fn call(self, kernel: impl Kernel) {
        match self.0 {
            Instructions::Plain => kernel.run::<plain::Plain>(),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a level exists only where `available` found its instructions.
            Instructions::Avx2 => unsafe { x86::call_avx2(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Instructions::Avx512 => unsafe { x86::call_avx512(kernel) },
            #[cfg(target_arch = "aarch64")]
            Instructions::Neon => kernel.run::<std::arch::aarch64::float32x4_t>(),
        }
    }

    /// How many floats a vector holds.
    pub(crate) fn lanes(self) -> usize {
        match self.0 {
            Instructions::Plain => plain::Plain::COUNT,
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => std::arch::x86_64::__m256::COUNT,
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => std::arch::x86_64::__m512::COUNT,
            #[cfg(target_arch = "aarch64")]
            Instructions::Neon => std::arch::aarch64::float32x4_t::COUNT,
        }
    }

    /// How many rows a register tile has.
    pub(crate) fn rows(self) -> usize {
        match self.0 {
            Instructions::Plain => plain::Plain::ROWS,
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => std::arch::x86_64::__m256::ROWS,
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => std::arch::x86_64::__m512::ROWS,
            #[cfg(target_arch = "aarch64")]
            Instructions::Neon => std::arch::aarch64::float32x4_t::ROWS,
        }
    }
}

/// Rows and columns of what `transpose_block` transposes.
const BLOCK: usize = 4;

/// Writes four rows of four floats as four columns.
///
/// # Safety
/// Both ends hold four rows of four floats, `stride` and `to_stride` apart.
#[inline(always)]
unsafe fn transpose_block(from: *const f32, stride: usize, to: *mut f32, to_stride: usize) {
    // SAFETY: the caller guarantees both ends.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        x86::transpose_block(from, stride, to, to_stride);
    }
    #[cfg(not(target_arch = "x86_64"))]
    for at in 0..BLOCK * BLOCK {
        let (row, column) = (at / BLOCK, at % BLOCK);
        // SAFETY: as above.
        unsafe { *to.add(column * to_stride + row) = *from.add(row * stride + column) };
    }
}

/// Writes `rows` x `columns` floats as `columns` x `rows`.
///
/// # Safety
/// Both ends hold their rows.
#[inline(always)]
pub(crate) unsafe fn transpose(
    from: *const f32,
    stride: usize,
    rows: usize,
    columns: usize,
    to: *mut f32,
    to_stride: usize,
) {
    if rows < BLOCK || columns < BLOCK {
        for at in 0..rows * columns {
            let (row, column) = (at / columns, at % columns);
            // SAFETY: the caller guarantees both ends.
            unsafe { *to.add(column * to_stride + row) = *from.add(row * stride + column) };
        }
        return;
    }
    // The last block of a row or column overlaps the one before where sizes are no multiples.
    for row in (0..rows).step_by(BLOCK).map(|row| row.min(rows - BLOCK)) {
        for column in (0..columns).step_by(BLOCK).map(|column| column.min(columns - BLOCK)) {
            let (from, to) =
                (from.wrapping_add(row * stride + column), to.wrapping_add(column * to_stride + row));
            // SAFETY: as above.
            unsafe { transpose_block(from, stride, to, to_stride) };
        }
    }
}

/// Prefetches the cache line of an address that is about to be read; the address need not be valid.
#[inline(always)]
pub(crate) fn prefetch_read(from: *const f32) {
    #[cfg(target_arch = "x86_64")]
    x86::prefetch_read(from);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = from;
}

/// Prefetches the cache line of an address that will be read later, into a nearer cache; the address need not
/// be valid.
#[inline(always)]
pub(crate) fn prefetch_later(from: *const f32) {
    #[cfg(target_arch = "x86_64")]
    x86::prefetch_later(from);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = from;
}

/// Prefetches the cache line of an address that is about to be written; the address need not be valid.
#[inline(always)]
pub(crate) fn prefetch_write(to: *mut f32) {
    #[cfg(target_arch = "x86_64")]
    x86::prefetch_write(to);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = to;
}

/// A vector, or its first `count` floats and zeros.
///
/// # Safety
/// `count` floats can be read, which are no more than a vector's.
#[inline(always)]
pub(crate) unsafe fn load<L: Lanes>(from: *const f32, count: usize) -> L {
    // SAFETY: the caller's promise.
    unsafe { if count == L::COUNT { L::load(from) } else { L::load_first(from, count) } }
}

/// Writes a vector, or its first `count` floats.
///
/// # Safety
/// `count` floats can be written, which are no more than a vector's.
#[inline(always)]
pub(crate) unsafe fn store<L: Lanes>(value: L, to: *mut f32, count: usize) {
    // SAFETY: the caller's promise.
    unsafe { if count == L::COUNT { value.store(to) } else { value.store_first(to, count) } }
}

/// Copies `count` floats.
///
/// # Safety
/// Both ends hold `count` floats and do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy<L: Lanes>(from: *const f32, to: *mut f32, count: usize) {
    let mut at = 0;
    while at + L::COUNT <= count {
        // SAFETY: a whole vector is left.
        unsafe { L::load(from.add(at)).store(to.add(at)) };
        at += L::COUNT;
    }
    if at < count {
        // SAFETY: `count - at` floats are left.
        unsafe { L::load_first(from.add(at), count - at).store_first(to.add(at), count - at) };
    }
}

/// Sets `count` floats to zero.
///
/// # Safety
/// `count` floats can be written.
#[inline(always)]
pub(crate) unsafe fn clear<L: Lanes>(to: *mut f32, count: usize) {
    let mut at = 0;
    while at + L::COUNT <= count {
        // SAFETY: a whole vector is left.
        unsafe { L::splat(0.0).store(to.add(at)) };
        at += L::COUNT;
    }
    if at < count {
        // SAFETY: `count - at` floats are left.
        unsafe { L::splat(0.0).store_first(to.add(at), count - at) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Check;

    impl Kernel for Check {
        fn run<L: Lanes>(self) {
            let from: Vec<f32> = (0..L::COUNT).map(|i| i as f32 + 1.0).collect();
            for count in 0..=L::COUNT {
                let mut to = vec![-1.0; L::COUNT + 1];
                // SAFETY: both vectors hold at least `COUNT` floats.
                unsafe { L::load_first(from.as_ptr(), count).store(to.as_mut_ptr()) };
                let expected = |i: usize| if i < count { from[i] } else { 0.0 };
                assert!((0..L::COUNT).all(|i| to[i] == expected(i)));

                let mut to = vec![-1.0; L::COUNT + 1];
                // SAFETY: as above.
                unsafe { L::load(from.as_ptr()).store_first(to.as_mut_ptr(), count) };
                let expected = |i: usize| if i < count { from[i] } else { -1.0 };
                assert!((0..=L::COUNT).all(|i| to[i] == expected(i)));
            }
            let mut to = vec![0.0; L::COUNT];
            let value =
                L::splat(3.0).mul(L::splat(2.0)).add(L::splat(1.0)).mul_add(L::splat(10.0), L::splat(0.5));
            // SAFETY: as above.
            unsafe { value.store(to.as_mut_ptr()) };
            assert_eq!(to, vec![70.5; L::COUNT]);
            for (value, expected) in [(-1.0, 0.0), (3.0, 3.0), (7.0, 6.0), (f32::INFINITY, 6.0)] {
                let clamped = L::splat(value).at_least(L::splat(0.0)).at_most(L::splat(6.0));
                // SAFETY: as above.
                unsafe { clamped.store(to.as_mut_ptr()) };
                assert_eq!(to, vec![expected; L::COUNT]);
            }
            let mut doubles = vec![1.0; L::COUNT];
            // SAFETY: there are as many doubles as lanes.
            unsafe { L::load(from.as_ptr()).add_to(doubles.as_mut_ptr()) };
            assert!((0..L::COUNT).all(|i| doubles[i] == f64::from(from[i]) + 1.0));
            // SAFETY: as above.
            let counted: L = unsafe { L::load(from.as_ptr()) };
            let odd = 0x5555 & ((1 << L::COUNT) - 1);
            // SAFETY: as above.
            unsafe { counted.keep(Mask::of(odd)).store(to.as_mut_ptr()) };
            assert!((0..L::COUNT).all(|i| to[i] == if i % 2 == 0 { from[i] } else { 0.0 }));
            assert_eq!(counted.between(L::splat(1.0), L::splat(4.0)).bits(), 0b110 & ((1 << L::COUNT) - 1));
            assert_eq!(
                L::splat(f32::NAN).between(L::splat(f32::NEG_INFINITY), L::splat(f32::INFINITY)).bits(),
                0
            );
            // SAFETY: as above.
            unsafe {
                L::splat(f32::NAN).at_least(L::splat(0.0)).at_most(L::splat(6.0)).store(to.as_mut_ptr())
            };
            assert!(to.iter().all(|value| value.is_nan()));
            // SAFETY: as above.
            unsafe {
                let other = L::splat(2.0).or_where(Mask::of(0b101), L::splat(f32::NAN));
                assert_eq!(other.beats(counted).bits(), 0b101 & ((1 << L::COUNT) - 1));
                assert_eq!(counted.beats(other).bits() & 0b1111, 0b1000 & ((1 << L::COUNT) - 1));
                for count in 0..=L::COUNT {
                    let mut bytes = [9; LANES_MAX + 1];
                    L::splat(f32::from_bits(0x307)).store_low_bytes(bytes.as_mut_ptr(), count);
                    assert!(bytes.iter().enumerate().all(|(i, byte)| *byte == if i < count { 7 } else { 9 }));
                    assert_eq!(L::bytes_equal(bytes.as_ptr(), 7, L::COUNT).bits(), (1 << count) - 1);
                    assert_eq!(L::bytes_equal(bytes.as_ptr(), 9, count).bits(), 0);
                    let whole = floats(L::load_bytes(bytes.as_ptr(), count));
                    let expected = |i: usize| if i < count { 7 } else { 0 };
                    assert!((0..L::COUNT).all(|i| whole[i].to_bits() == expected(i)));
                }
            }
            // Every lane has its maximum in another vector, and some have it twice.
            let values: [Vec<f32>; 4] =
                [1, 3, 4, 6].map(|step| (0..L::COUNT).map(|i| (step * i % 5) as f32).collect());
            // SAFETY: as above.
            let (most, places) =
                unsafe { L::max_and_argmax([0, 1, 2, 3].map(|i: usize| L::load(values[i].as_ptr()))) };
            for i in 0..L::COUNT {
                let place = floats(places)[i].to_bits() as usize;
                assert!(
                    values.iter().all(|value| value[i] <= values[place][i])
                        && floats(most)[i] == values[place][i]
                );
                assert!(
                    values[..place].iter().all(|value| value[i] < values[place][i]),
                    "the first of equals"
                );
            }
            for place in 0..4 {
                let mut values = [L::splat(f32::INFINITY); 4];
                values[place] = L::splat(f32::NAN);
                assert!(floats(L::max_and_argmax(values).0)[..L::COUNT].iter().all(|value| value.is_nan()));
            }
            let eight: Vec<f32> = (0..8).map(|i| i as f32 + 0.5).collect();
            let places: Vec<f32> = (0..L::COUNT).map(|i| f32::from_bits(5 * i as u32 % 8)).collect();
            let mut pairs = vec![-1.0; 2 * L::COUNT];
            // SAFETY: as above.
            unsafe {
                let picked = floats(L::load(places.as_ptr()).pick(eight.as_ptr()));
                assert!((0..L::COUNT).all(|i| picked[i] == eight[5 * i % 8]));
                counted.store_pairs(L::splat(7.0), pairs.as_mut_ptr());
            }
            assert!((0..L::COUNT).all(|i| [pairs[2 * i], pairs[2 * i + 1]] == [from[i], 7.0]));
            assert!(L::ROWS <= ROWS_MAX && 2 * L::COUNT <= COLUMNS_MAX);
        }
    }

    #[test]
    fn every_level_loads_stores_and_computes() {
        Level::available().for_each(|level| level.call(Check));
    }
}
