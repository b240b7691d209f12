//! Heights that no packing can be lower than.

use crate::Item;
use crate::instance::Instance;
use crate::range_max::RangeMax;

/// The largest sum of sizes that are live at one time, rounded up as far as alignment forces.
///
/// No packing is lower. The lowest packing may be higher: fragmentation is not counted.
///
/// ```
/// use memfit_pack::{Item, bound};
/// assert_eq!(bound(&[Item::new(0, 2, 10), Item::new(1, 3, 20), Item::new(2, 4, 25)]), 45);
/// // One of the two must start at 64.
/// assert_eq!(bound(&[Item::new(0, 2, 10).aligned(64), Item::new(0, 2, 20).aligned(64)]), 74);
/// ```
pub fn bound(items: &[Item]) -> u64 {
    // An item that rests for all its life still has to end below the height.
    let largest = items.iter().filter(|item| !item.is_nothing()).map(|item| item.size).max();
    let parts = Instance::new(items).components();
    parts.iter().map(bound_of).max().unwrap_or(0).max(largest.unwrap_or(0))
}

/// The same for a part of the problem that nothing else meets.
pub(crate) fn bound_of(instance: &Instance) -> u64 {
    let loads = instance.loads();
    let plain = loads.into_iter().max().unwrap_or(0);
    plain.max(bound_rounded(instance))
}

/// With every start at a multiple of `unit`, all that is live takes whole units but the topmost,
/// which at best is the one with the most padding.
fn bound_rounded(instance: &Instance) -> u64 {
    let unit = unit_of_starts(instance);
    if unit <= 1 {
        return 0;
    }
    let mut changes = vec![0_u64; instance.sections + 1];
    let mut paddings = RangeMax::new(instance.sections);
    for block in 0..instance.blocks.len() {
        for piece in instance.pieces(block) {
            let size = piece.high - piece.low;
            let whole = size.next_multiple_of(unit);
            let (first, end) = (piece.first as usize, piece.end as usize);
            paddings.raise(first, end, whole - size);
            changes[first] = changes[first].wrapping_add(whole);
            changes[end] = changes[end].wrapping_sub(whole);
        }
    }
    let mut rounded = 0_u64;
    let sections = changes.iter().take(instance.sections).enumerate();
    let bounds = sections.map(|(section, change)| {
        rounded = rounded.wrapping_add(*change);
        rounded - paddings.largest(section, section + 1)
    });
    bounds.max().unwrap_or(0)
}

/// The greatest number that divides the first byte of whatever is held, wherever it is put.
fn unit_of_starts(instance: &Instance) -> u64 {
    let mut unit = 0;
    for (index, block) in instance.blocks.iter().enumerate() {
        unit = greatest_common_divisor(unit, block.alignment);
        for piece in instance.pieces(index) {
            unit = greatest_common_divisor(unit, piece.low);
        }
    }
    unit
}

/// Euclid's.
pub(crate) fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_the_largest_live_sum() {
        let cases: [(&[Item], u64); 6] = [
            (&[], 0),
            (&[Item::new(3, 3, 9)], 0),
            (&[Item::new(0, 9, 0)], 0),
            (&[Item::new(0, 5, 7), Item::new(5, 9, 8)], 8),
            (&[Item::new(0, 6, 7), Item::new(5, 9, 8)], 15),
            (&[Item::new(0, 6, 7).aligned(4), Item::new(5, 9, 8).aligned(8)], 15),
        ];
        for (items, expected) in cases {
            assert_eq!(bound(items), expected, "{items:?}");
        }
    }
}
