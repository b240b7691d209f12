//! The answer: an offset for every item, how high that reaches, and how low it could.

use crate::Item;

/// Where every item lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    /// One offset for each item, in the order of the items.
    pub offsets: Vec<u64>,
    /// The first byte above everything.
    pub height: u64,
    /// No packing is lower than this; `height == bound` is proof of the best.
    pub bound: u64,
}

/// The first byte above every item at these offsets.
pub(crate) fn height_of(items: &[Item], offsets: &[u64]) -> u64 {
    let placed = items.iter().zip(offsets).filter(|(item, _)| !item.is_nothing());
    placed.map(|(item, offset)| offset + item.size).max().unwrap_or(0)
}
