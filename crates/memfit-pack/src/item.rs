//! What is packed: an interval of time, a size, and the times at which part of it rests.

/// Something that needs `size` bytes at one offset for the half-open time `lower..upper`.
///
/// An item of no size, or whose time is empty, occupies nothing and is placed at offset 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Item {
    /// The first time at which the item is live.
    pub lower: usize,
    /// The first time at which the item is no longer live.
    pub upper: usize,
    /// Bytes.
    pub size: u64,
    /// The offset is a multiple of this; 0 and 1 both mean any offset.
    pub alignment: u64,
    /// Times inside the life at which some or all of the bytes are free for others.
    /// Where two gaps hold the same time, the one that stands first in the list counts.
    pub gaps: Vec<Gap>,
}

/// A half-open time inside an item's life at which it occupies only `window`, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gap {
    /// The first time of the gap.
    pub lower: usize,
    /// The first time after the gap.
    pub upper: usize,
    /// The bytes of the item that stay occupied, counted from the item's offset.
    pub window: Option<Window>,
}

/// A half-open range of bytes inside an item; what reaches past the item's size is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// The first byte.
    pub lower: u64,
    /// The first byte after the window.
    pub upper: u64,
}

impl Item {
    /// An item without gaps at any offset.
    pub fn new(lower: usize, upper: usize, size: u64) -> Self {
        Self { lower, upper, size, alignment: 1, gaps: Vec::new() }
    }

    /// The same item at a multiple of `alignment`.
    pub fn aligned(self, alignment: u64) -> Self {
        Self { alignment, ..self }
    }

    /// The same item with one more gap.
    pub fn resting(mut self, gap: Gap) -> Self {
        self.gaps.push(gap);
        self
    }

    /// Whether the item never occupies a byte.
    pub(crate) fn is_nothing(&self) -> bool {
        self.size == 0 || self.upper <= self.lower
    }
}
