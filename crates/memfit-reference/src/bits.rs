//! One bit an element, lowest bit first; every row begins on a byte.

use super::call::Call;

/// The bits of elements above 0 and below a bound.
pub(crate) fn sign_bits(call: &Call, below: f32) -> Vec<f64> {
    let per_row = call.shape(0).elements_per_row().max(1);
    let is_set = |x: &f64| 0.0 < *x && *x < f64::from(below);
    let byte = |eight: &[f64]| {
        let bits = eight.iter().enumerate().map(|(place, x)| u32::from(is_set(x)) << place);
        f64::from(bits.sum::<u32>())
    };
    call.input(0).chunks(per_row).flat_map(|row| row.chunks(8).map(byte)).collect()
}

/// `dy` where the bit is set, else 0.
pub(crate) fn mask_bits(call: &Call) -> Vec<f64> {
    let (dy, bits) = (call.input(0), call.input(1));
    let per_row = call.shape(0).elements_per_row().max(1);
    let is_set = |index: usize| {
        let (row, place) = (index / per_row, index % per_row);
        bits[row * per_row.div_ceil(8) + place / 8] as usize >> (place % 8) & 1 == 1
    };
    dy.iter().enumerate().map(|(index, dy)| if is_set(index) { *dy } else { 0.0 }).collect()
}
