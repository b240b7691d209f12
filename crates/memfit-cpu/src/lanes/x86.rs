//! Vectors of eight floats (AVX2 with FMA, 16 registers) and of sixteen (AVX-512, 32 registers).

use std::arch::x86_64::*;
use std::ops::Not;

use super::{Kernel, Lanes, Mask};

/// Runs a kernel compiled for AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(super) fn call_avx2(kernel: impl Kernel) {
    kernel.run::<__m256>();
}

/// Runs a kernel compiled for AVX-512.
#[target_feature(enable = "avx512f")]
pub(super) fn call_avx512(kernel: impl Kernel) {
    kernel.run::<__m512>();
}

/// Prefetches the cache line of an address that is about to be read.
#[inline(always)]
pub(super) fn prefetch_read(from: *const f32) {
    // SAFETY: a prefetch of any address is harmless.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
}

/// Prefetches the cache line of an address that will be read later, into the second-level cache.
#[inline(always)]
pub(super) fn prefetch_later(from: *const f32) {
    // SAFETY: a prefetch of any address is harmless.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) }
}

/// Prefetches the cache line of an address that is about to be written.
#[inline(always)]
pub(super) fn prefetch_write(to: *mut f32) {
    // SAFETY: as above.
    unsafe { _mm_prefetch::<_MM_HINT_ET0>(to.cast()) }
}

/// Writes four rows of four floats as four columns, with instructions that every x86-64 has.
///
/// # Safety
/// Both ends hold four rows of four floats, `stride` and `to_stride` apart.
#[inline(always)]
pub(super) unsafe fn transpose_block(from: *const f32, stride: usize, to: *mut f32, to_stride: usize) {
    // SAFETY: the caller guarantees both ends.
    unsafe {
        let mut rows = (
            _mm_loadu_ps(from),
            _mm_loadu_ps(from.add(stride)),
            _mm_loadu_ps(from.add(2 * stride)),
            _mm_loadu_ps(from.add(3 * stride)),
        );
        _MM_TRANSPOSE4_PS(&mut rows.0, &mut rows.1, &mut rows.2, &mut rows.3);
        _mm_storeu_ps(to, rows.0);
        _mm_storeu_ps(to.add(to_stride), rows.1);
        _mm_storeu_ps(to.add(2 * to_stride), rows.2);
        _mm_storeu_ps(to.add(3 * to_stride), rows.3);
    }
}

// SAFETY of every block below: kernels meet these types only inside `call_avx2`, and callers guarantee the
// floats at each pointer.

/// Lanes of eight: all bits of a lane are set, or none.
#[derive(Clone, Copy)]
pub(crate) struct Wide(__m256);

impl Mask for Wide {
    #[inline(always)]
    fn of(bits: u32) -> Self {
        // SAFETY: see above.
        unsafe {
            let lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let set = _mm256_and_si256(_mm256_set1_epi32(bits.cast_signed()), lane);
            Wide(_mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lane)))
        }
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        // SAFETY: see above.
        unsafe { _mm256_movemask_ps(self.0).cast_unsigned() }
    }
}

impl Not for Wide {
    type Output = Self;

    #[inline(always)]
    fn not(self) -> Self {
        // SAFETY: see above.
        unsafe { Wide(_mm256_xor_ps(self.0, _mm256_castsi256_ps(_mm256_set1_epi32(-1)))) }
    }
}

impl Lanes for __m256 {
    const COUNT: usize = 8;
    const ROWS: usize = 6;
    type Mask = Wide;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_add_ps(self, other) }
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_sub_ps(self, other) }
    }

    #[inline(always)]
    fn between(self, low: Self, high: Self) -> Wide {
        // SAFETY: see above.
        unsafe {
            let above = _mm256_cmp_ps::<_CMP_GT_OQ>(self, low);
            Wide(_mm256_and_ps(above, _mm256_cmp_ps::<_CMP_LT_OQ>(self, high)))
        }
    }

    #[inline(always)]
    unsafe fn add_to(self, to: *mut f64) {
        // SAFETY: see above.
        unsafe {
            let halves = [_mm256_castps256_ps128(self), _mm256_extractf128_ps::<1>(self)];
            for (i, half) in halves.into_iter().enumerate() {
                let to = to.add(4 * i);
                _mm256_storeu_pd(to, _mm256_add_pd(_mm256_loadu_pd(to), _mm256_cvtps_pd(half)));
            }
        }
    }

    #[inline(always)]
    fn beats(self, other: Self) -> Wide {
        // SAFETY: see above.
        unsafe {
            let larger = _mm256_cmp_ps::<_CMP_GT_OQ>(self, other);
            let none = _mm256_cmp_ps::<_CMP_UNORD_Q>(self, self);
            Wide(_mm256_or_ps(larger, none))
        }
    }

    #[inline(always)]
    fn or_where(self, lanes: Wide, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_blendv_ps(self, other, lanes.0) }
    }

    /// By comparisons with the maximum: blends would compete for the units that multiply.
    #[inline(always)]
    fn max_and_argmax([a, b, c, d]: [Self; 4]) -> (Self, Self) {
        // SAFETY: see above.
        unsafe {
            let most = _mm256_max_ps(_mm256_max_ps(a, b), _mm256_max_ps(c, d));
            let none = _mm256_or_ps(_mm256_cmp_ps::<_CMP_UNORD_Q>(a, b), _mm256_cmp_ps::<_CMP_UNORD_Q>(c, d));
            let not_a = _mm256_cmp_ps::<_CMP_NEQ_UQ>(a, most);
            let not_b = _mm256_and_ps(not_a, _mm256_cmp_ps::<_CMP_NEQ_UQ>(b, most));
            let not_c = _mm256_and_ps(not_b, _mm256_cmp_ps::<_CMP_NEQ_UQ>(c, most));
            // A lane that was found is −1.
            let (not_a, not_b) = (_mm256_castps_si256(not_a), _mm256_castps_si256(not_b));
            let found = _mm256_add_epi32(_mm256_add_epi32(not_a, not_b), _mm256_castps_si256(not_c));
            let place = _mm256_sub_epi32(_mm256_setzero_si256(), found);
            // All bits set are not a number either.
            (_mm256_or_ps(most, none), _mm256_castsi256_ps(place))
        }
    }

    const PICKS: bool = true;

    #[inline(always)]
    unsafe fn load_bytes(from: *const u8, count: usize) -> Self {
        // SAFETY: see above; a whole vector is read only where there are as many.
        unsafe {
            let mut buffer = [0; 8];
            let bytes = if count == 8 {
                _mm_loadl_epi64(from.cast())
            } else {
                buffer[..count].copy_from_slice(std::slice::from_raw_parts(from, count));
                _mm_loadl_epi64(buffer.as_ptr().cast())
            };
            _mm256_castsi256_ps(_mm256_cvtepu8_epi32(bytes))
        }
    }

    #[inline(always)]
    unsafe fn pick(self, from: *const f32) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_permutevar8x32_ps(_mm256_loadu_ps(from), _mm256_castps_si256(self)) }
    }

    #[inline(always)]
    unsafe fn store_pairs(self, other: Self, to: *mut f32) {
        // SAFETY: see above.
        unsafe {
            let (low, high) = (_mm256_unpacklo_ps(self, other), _mm256_unpackhi_ps(self, other));
            _mm256_storeu_ps(to, _mm256_permute2f128_ps::<0x20>(low, high));
            _mm256_storeu_ps(to.add(8), _mm256_permute2f128_ps::<0x31>(low, high));
        }
    }

    #[inline(always)]
    unsafe fn bytes_equal(from: *const u8, byte: u8, count: usize) -> Wide {
        // SAFETY: see above.
        unsafe {
            if count < 8 {
                return Wide::of(bytes_equal(from, byte, count));
            }
            let bytes = _mm_cmpeq_epi8(_mm_loadl_epi64(from.cast()), _mm_set1_epi8(byte.cast_signed()));
            Wide(_mm256_castsi256_ps(_mm256_cvtepi8_epi32(bytes)))
        }
    }

    #[inline(always)]
    unsafe fn store_low_bytes(self, to: *mut u8, count: usize) {
        // SAFETY: see above; a whole vector is written only where there is room.
        unsafe {
            let each = _mm256_setr_epi8(
                0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, //
                -1, -1, -1, -1, 0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1,
            );
            let halves = _mm256_shuffle_epi8(_mm256_castps_si256(self), each);
            let bytes = _mm_or_si128(_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves));
            if count == 8 {
                return _mm_storel_epi64(to.cast(), bytes);
            }
            let mut buffer = [0; 8];
            _mm_storel_epi64(buffer.as_mut_ptr().cast(), bytes);
            for (i, byte) in buffer[..count].iter().enumerate() {
                *to.add(i) = *byte;
            }
        }
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_div_ps(self, other) }
    }

    #[inline(always)]
    fn root(self) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_sqrt_ps(self) }
    }

    #[inline(always)]
    fn times_power_of_two(self, n: Self) -> Self {
        // SAFETY: see above.
        unsafe {
            let n = _mm256_cvtps_epi32(n);
            let half = _mm256_srai_epi32::<1>(n);
            let mut value = self;
            for n in [half, _mm256_sub_epi32(n, half)] {
                let power = _mm256_slli_epi32::<23>(_mm256_add_epi32(n, _mm256_set1_epi32(127)));
                value = _mm256_mul_ps(value, _mm256_castsi256_ps(power));
            }
            value
        }
    }

    #[inline(always)]
    fn keep(self, lanes: Wide) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_and_ps(self, lanes.0) }
    }

    #[inline(always)]
    fn at_least(self, low: Self) -> Self {
        // SAFETY: see above. The instruction yields its second operand where one is not a number.
        unsafe { _mm256_max_ps(low, self) }
    }

    #[inline(always)]
    fn at_most(self, high: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_min_ps(high, self) }
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_mul_ps(self, other) }
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_fmadd_ps(self, factor, term) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> Self {
        // SAFETY: see above; lanes that the mask leaves out are not read.
        unsafe {
            let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), lane);
            _mm256_maskload_ps(from, mask)
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: see above.
        unsafe { _mm256_storeu_ps(to, self) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut f32) {
        // SAFETY: see above.
        unsafe { _mm256_stream_ps(to, self) }
    }

    #[inline(always)]
    fn fence() {
        // SAFETY: every machine of this architecture has it.
        unsafe { _mm_sfence() };
    }

    /// In two parts: a masked store of eight lanes is microcode on some machines.
    #[inline(always)]
    unsafe fn store_first(self, mut to: *mut f32, count: usize) {
        // SAFETY: see above; each store writes lanes below `count`.
        unsafe {
            if count >= 8 {
                return _mm256_storeu_ps(to, self);
            }
            let mut rest = _mm256_castps256_ps128(self);
            if count & 4 != 0 {
                _mm_storeu_ps(to, rest);
                rest = _mm256_extractf128_ps::<1>(self);
                to = to.add(4);
            }
            if count & 2 != 0 {
                _mm_storel_pd(to.cast(), _mm_castps_pd(rest));
                rest = _mm_movehl_ps(rest, rest);
                to = to.add(2);
            }
            if count & 1 != 0 {
                _mm_store_ss(to, rest);
            }
        }
    }

    /// Both 128-bit halves of the rows at once: four by four in each half, which is all where there are no
    /// more than four columns.
    #[inline(always)]
    unsafe fn transpose(from: *const f32, stride: usize, columns: usize, to: *mut f32, to_stride: usize) {
        // SAFETY: see above; rows are read and written as far as there are columns.
        unsafe {
            for first in (0..columns).step_by(4) {
                let count = (columns - first).min(4);
                let mask = _mm_cmpgt_epi32(_mm_set1_epi32(count as i32), _mm_setr_epi32(0, 1, 2, 3));
                let mut rows = [_mm256_setzero_ps(); 4];
                for (i, row) in rows.iter_mut().enumerate() {
                    let (above, below) = (from.add(i * stride + first), from.add((i + 4) * stride + first));
                    let halves = match count {
                        4 => [_mm_loadu_ps(above), _mm_loadu_ps(below)],
                        _ => [_mm_maskload_ps(above, mask), _mm_maskload_ps(below, mask)],
                    };
                    *row = _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(halves[0]), halves[1]);
                }
                let [a, b, c, d] = rows;
                let (low, low_next) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
                let (high, high_next) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
                let (low, low_next) = (_mm256_castps_pd(low), _mm256_castps_pd(low_next));
                let (high, high_next) = (_mm256_castps_pd(high), _mm256_castps_pd(high_next));
                let results = [
                    _mm256_unpacklo_pd(low, low_next),
                    _mm256_unpackhi_pd(low, low_next),
                    _mm256_unpacklo_pd(high, high_next),
                    _mm256_unpackhi_pd(high, high_next),
                ];
                for (i, result) in results.into_iter().enumerate() {
                    if i < count {
                        _mm256_castpd_ps(result).store(to.add((first + i) * to_stride));
                    }
                }
            }
        }
    }
}

// SAFETY of every block below: kernels meet this type only inside `call_avx512`, and callers guarantee the
// floats at each pointer.
impl Lanes for __m512 {
    const COUNT: usize = 16;
    const ROWS: usize = 12;
    type Mask = u32;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_add_ps(self, other) }
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_sub_ps(self, other) }
    }

    #[inline(always)]
    fn between(self, low: Self, high: Self) -> u32 {
        // SAFETY: see above.
        unsafe {
            let above = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(self, low);
            u32::from(_mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(above, self, high))
        }
    }

    #[inline(always)]
    unsafe fn add_to(self, to: *mut f64) {
        // SAFETY: see above.
        unsafe {
            let high =
                _mm512_castpd_ps(_mm512_castpd256_pd512(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(self))));
            for (i, half) in [self, high].into_iter().enumerate() {
                let (to, half) = (to.add(8 * i), _mm512_cvtps_pd(_mm512_castps512_ps256(half)));
                _mm512_storeu_pd(to, _mm512_add_pd(_mm512_loadu_pd(to), half));
            }
        }
    }

    #[inline(always)]
    fn beats(self, other: Self) -> u32 {
        // SAFETY: see above.
        unsafe {
            let larger = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(self, other);
            u32::from(larger | _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self, self))
        }
    }

    #[inline(always)]
    fn or_where(self, lanes: u32, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_mask_mov_ps(self, lanes as u16, other) }
    }

    #[inline(always)]
    unsafe fn store_low_bytes(self, to: *mut u8, count: usize) {
        // SAFETY: see above; a whole vector is written only where there is room.
        unsafe {
            let bytes = _mm512_cvtepi32_epi8(_mm512_castps_si512(self));
            if count == 16 {
                return _mm_storeu_si128(to.cast(), bytes);
            }
            let mut buffer = [0; 16];
            _mm_storeu_si128(buffer.as_mut_ptr().cast(), bytes);
            for (i, byte) in buffer[..count].iter().enumerate() {
                *to.add(i) = *byte;
            }
        }
    }

    #[inline(always)]
    unsafe fn load_bytes(from: *const u8, count: usize) -> Self {
        // SAFETY: see above; a whole vector is read only where there are as many.
        unsafe {
            let mut buffer = [0; 16];
            let bytes = if count == 16 {
                _mm_loadu_si128(from.cast())
            } else {
                buffer[..count].copy_from_slice(std::slice::from_raw_parts(from, count));
                _mm_loadu_si128(buffer.as_ptr().cast())
            };
            _mm512_castsi512_ps(_mm512_cvtepu8_epi32(bytes))
        }
    }

    const PICKS: bool = true;

    #[inline(always)]
    unsafe fn pick(self, from: *const f32) -> Self {
        // SAFETY: see above.
        unsafe {
            let eight = _mm512_zextps256_ps512(_mm256_loadu_ps(from));
            _mm512_permutexvar_ps(_mm512_castps_si512(self), eight)
        }
    }

    #[inline(always)]
    unsafe fn store_pairs(self, other: Self, to: *mut f32) {
        // SAFETY: see above.
        unsafe {
            let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
            _mm512_storeu_ps(to, _mm512_permutex2var_ps(self, low, other));
            _mm512_storeu_ps(to.add(16), _mm512_permutex2var_ps(self, high, other));
        }
    }

    #[inline(always)]
    unsafe fn bytes_equal(from: *const u8, byte: u8, count: usize) -> u32 {
        // SAFETY: see above.
        unsafe { bytes_equal(from, byte, count) }
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_div_ps(self, other) }
    }

    #[inline(always)]
    fn root(self) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_sqrt_ps(self) }
    }

    #[inline(always)]
    fn times_power_of_two(self, n: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_scalef_ps(self, n) }
    }

    #[inline(always)]
    fn keep(self, lanes: u32) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_maskz_mov_ps(lanes as u16, self) }
    }

    #[inline(always)]
    fn at_least(self, low: Self) -> Self {
        // SAFETY: see above. The instruction yields its second operand where one is not a number.
        unsafe { _mm512_max_ps(low, self) }
    }

    #[inline(always)]
    fn at_most(self, high: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_min_ps(high, self) }
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_mul_ps(self, other) }
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_fmadd_ps(self, factor, term) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> Self {
        // SAFETY: see above; lanes that the mask leaves out are not read.
        unsafe { _mm512_maskz_loadu_ps(first(count), from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: see above.
        unsafe { _mm512_storeu_ps(to, self) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut f32) {
        // SAFETY: see above.
        unsafe { _mm512_stream_ps(to, self) }
    }

    #[inline(always)]
    fn fence() {
        // SAFETY: every machine of this architecture has it.
        unsafe { _mm_sfence() };
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        // SAFETY: see above; lanes that the mask leaves out are not written.
        unsafe { _mm512_mask_storeu_ps(to, first(count), self) }
    }

    /// In four steps, each of which swaps halves of ever larger squares.
    #[inline(always)]
    unsafe fn transpose(from: *const f32, stride: usize, columns: usize, to: *mut f32, to_stride: usize) {
        // SAFETY: see above; rows are read and written as far as there are columns.
        unsafe {
            let mut rows = [_mm512_setzero_ps(); 16];
            for (i, row) in rows.iter_mut().enumerate() {
                *row = Self::load_first(from.add(i * stride), columns);
            }
            let mut pairs = rows;
            for i in 0..8 {
                pairs[2 * i] = _mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
                pairs[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
            }
            let mut quads = rows;
            for i in 0..8 {
                let (first, half) = (i / 2 * 4, i % 2);
                let (low, high) =
                    (_mm512_castps_pd(pairs[first + half]), _mm512_castps_pd(pairs[first + half + 2]));
                quads[first + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
                quads[first + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
            }
            // quads[4 * q + c] holds column c of rows 4q..4q+4, then column c + 4, c + 8 and c + 12 of them.
            for column in 0..4 {
                let even = _mm512_shuffle_f32x4::<0x88>(quads[column], quads[4 + column]);
                let odd = _mm512_shuffle_f32x4::<0xdd>(quads[column], quads[4 + column]);
                let even_high = _mm512_shuffle_f32x4::<0x88>(quads[8 + column], quads[12 + column]);
                let odd_high = _mm512_shuffle_f32x4::<0xdd>(quads[8 + column], quads[12 + column]);
                let results = [
                    _mm512_shuffle_f32x4::<0x88>(even, even_high),
                    _mm512_shuffle_f32x4::<0x88>(odd, odd_high),
                    _mm512_shuffle_f32x4::<0xdd>(even, even_high),
                    _mm512_shuffle_f32x4::<0xdd>(odd, odd_high),
                ];
                for (i, result) in results.into_iter().enumerate() {
                    if column + 4 * i < columns {
                        result.store(to.add((column + 4 * i) * to_stride));
                    }
                }
            }
        }
    }
}

/// A mask of the first `count` of sixteen lanes.
#[inline(always)]
fn first(count: usize) -> __mmask16 {
    ((1u32 << count) - 1) as __mmask16
}

/// One bit for each of the first `count` bytes, at most sixteen: whether it is this one.
///
/// # Safety
/// `count` bytes can be read.
#[inline(always)]
unsafe fn bytes_equal(from: *const u8, byte: u8, count: usize) -> u32 {
    // SAFETY: the caller guarantees the bytes; vectors of sixteen are in every x86-64.
    unsafe {
        let bytes = match count {
            16 => _mm_loadu_si128(from.cast()),
            8 => _mm_loadl_epi64(from.cast()),
            // The last eight, moved to where they belong.
            9..16 => {
                let first = _mm_loadl_epi64(from.cast());
                let last = u64::from_le_bytes(from.add(count - 8).cast::<[u8; 8]>().read());
                _mm_unpacklo_epi64(first, _mm_cvtsi64_si128((last >> (8 * (16 - count))).cast_signed()))
            }
            _ => {
                let bytes = (0..count).rev().fold(0, |bytes, i| bytes << 8 | u64::from(*from.add(i)));
                _mm_cvtsi64_si128(bytes.cast_signed())
            }
        };
        let equal = _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte.cast_signed())));
        equal.cast_unsigned() & ((1 << count) - 1)
    }
}
