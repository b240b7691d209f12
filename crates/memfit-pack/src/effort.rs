//! How hard to try, in units that are not time, so that the answer depends on nothing but the items.

/// How hard to try. The same effort on the same items gives the same packing, anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// How many placements the search may try once greedy packing is done; 0 is greedy only.
    pub nodes: u64,
    /// Stop as soon as the height is at most this. The bound always stops.
    pub goal: u64,
    /// A part whose search may hold more heap than this is packed greedily alone.
    pub bytes: u64,
}

impl Effort {
    /// Greedy packing only: milliseconds for thousands of items.
    pub const GREEDY: Effort = Effort { nodes: 0, goal: 0, bytes: u64::MAX };

    /// Greedy packing, then a search that tries this many placements.
    pub fn nodes(nodes: u64) -> Self {
        Self { nodes, ..Self::GREEDY }
    }

    /// The same effort, but with at most this much heap for a search.
    pub fn holding(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// The same effort, but any height up to `goal` is good enough.
    pub fn until(self, goal: u64) -> Self {
        Self { goal, ..self }
    }
}
