//! A check of a packing that shares no code with the packer, and is slow and obvious on purpose.

use std::collections::BTreeSet;
use std::fmt;

use crate::{Item, Packing};

/// What is wrong with a packing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// There must be one offset for each item.
    Count {
        /// How many items there are.
        items: usize,
        /// How many offsets were given.
        offsets: usize,
    },
    /// An offset is not a multiple of its item's alignment.
    Misaligned {
        /// Index of the item.
        item: usize,
        /// Where it was put.
        offset: u64,
        /// What the offset must be a multiple of.
        alignment: u64,
    },
    /// An item ends above the stated height.
    AboveHeight {
        /// Index of the item.
        item: usize,
        /// The first byte above the item.
        top: u64,
        /// The height that the packing states.
        height: u64,
    },
    /// The stated height is below the stated bound: one of them is wrong.
    BelowBound {
        /// The height that the packing states.
        height: u64,
        /// The bound that the packing states.
        bound: u64,
    },
    /// Two items hold one byte at one time.
    Shared {
        /// Index of one item.
        first: usize,
        /// Index of the other.
        second: usize,
        /// A time at which they meet.
        time: usize,
        /// The lowest byte that both hold then.
        byte: u64,
    },
}

/// Checks that no two items hold the same byte at the same time, that alignments are kept, and
/// that the height covers everything.
pub fn validate(items: &[Item], packing: &Packing) -> Result<(), Overlap> {
    let offsets = &packing.offsets;
    if items.len() != offsets.len() {
        return Err(Overlap::Count { items: items.len(), offsets: offsets.len() });
    }
    if packing.height < packing.bound {
        return Err(Overlap::BelowBound { height: packing.height, bound: packing.bound });
    }
    for (index, item) in items.iter().enumerate() {
        let (offset, alignment) = (offsets[index], item.alignment);
        if alignment != 0 && offset % alignment != 0 {
            return Err(Overlap::Misaligned { item: index, offset, alignment });
        }
        let top = offset.saturating_add(item.size);
        if item.lower < item.upper && item.size > 0 && top > packing.height {
            return Err(Overlap::AboveHeight { item: index, top, height: packing.height });
        }
    }
    for second in 0..items.len() {
        for first in 0..second {
            let one = (&items[first], offsets[first]);
            let other = (&items[second], offsets[second]);
            if let Some((time, byte)) = meeting(one, other) {
                return Err(Overlap::Shared { first, second, time, byte });
            }
        }
    }
    Ok(())
}

/// A time and a byte that both items hold, if there is one.
fn meeting(one: (&Item, u64), other: (&Item, u64)) -> Option<(usize, u64)> {
    let begin = one.0.lower.max(other.0.lower);
    let end = one.0.upper.min(other.0.upper);
    if begin >= end {
        return None;
    }
    // What an item holds can only change where a gap begins or ends.
    let mut times = BTreeSet::from([begin]);
    for gap in one.0.gaps.iter().chain(&other.0.gaps) {
        times.extend([gap.lower, gap.upper].into_iter().filter(|time| (begin..end).contains(time)));
    }
    for time in times {
        let (one, other) = (held(one, time), held(other, time));
        let byte = one.0.max(other.0);
        if byte < one.1.min(other.1) {
            return Some((time, byte));
        }
    }
    None
}

/// The half-open range of bytes that an item holds at a time within its life.
fn held((item, offset): (&Item, u64), time: usize) -> (u64, u64) {
    match item.gaps.iter().find(|gap| gap.lower <= time && time < gap.upper) {
        None => (offset, offset + item.size),
        Some(gap) => match gap.window {
            None => (offset, offset),
            Some(window) => (offset + window.lower, offset + window.upper.min(item.size)),
        },
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Overlap::Count { items, offsets } => {
                write!(f, "{items} items but {offsets} offsets")
            }
            Overlap::Misaligned { item, offset, alignment } => {
                write!(f, "item {item} at offset {offset} is not at a multiple of {alignment}")
            }
            Overlap::AboveHeight { item, top, height } => {
                write!(f, "item {item} ends at {top}, above the height {height}")
            }
            Overlap::BelowBound { height, bound } => {
                write!(f, "the height {height} is below the bound {bound}")
            }
            Overlap::Shared { first, second, time, byte } => {
                write!(f, "items {first} and {second} both hold byte {byte} at time {time}")
            }
        }
    }
}

impl std::error::Error for Overlap {}
