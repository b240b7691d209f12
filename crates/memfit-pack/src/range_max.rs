//! The largest value over a range of sections, where values only ever rise.

/// A segment tree for "raise this range" and "largest in this range", each in O(log n).
///
/// A skyline never sinks, so raising needs no pushing down: the largest value of a node is known
/// as soon as its children are, or when all of it was raised at once.
pub(crate) struct RangeMax {
    leaves: usize,
    /// The largest value in the node's range.
    largest: Vec<u64>,
    /// What all of the node's range was raised to at once.
    raised: Vec<u64>,
}

impl RangeMax {
    pub(crate) fn new(length: usize) -> Self {
        let leaves = length.max(1).next_power_of_two();
        Self { leaves, largest: vec![0; 2 * leaves], raised: vec![0; 2 * leaves] }
    }

    /// Raises every value in `first..end` to at least `value`.
    pub(crate) fn raise(&mut self, first: usize, end: usize, value: u64) {
        let (mut left, mut right) = (first + self.leaves, end + self.leaves);
        while left < right {
            if left & 1 == 1 {
                self.raise_node(left, value);
                left += 1;
            }
            if right & 1 == 1 {
                right -= 1;
                self.raise_node(right, value);
            }
            left >>= 1;
            right >>= 1;
        }
        // Every ancestor of a raised node is an ancestor of the first or the last leaf.
        for leaf in [first + self.leaves, end - 1 + self.leaves] {
            let mut node = leaf >> 1;
            while node > 0 {
                self.largest[node] = self.largest[node].max(value);
                node >>= 1;
            }
        }
    }

    /// The largest value in `first..end`.
    pub(crate) fn largest(&self, first: usize, end: usize) -> u64 {
        let (mut left, mut right) = (first + self.leaves, end + self.leaves);
        let mut largest = 0;
        while left < right {
            if left & 1 == 1 {
                largest = largest.max(self.largest[left]);
                left += 1;
            }
            if right & 1 == 1 {
                right -= 1;
                largest = largest.max(self.largest[right]);
            }
            left >>= 1;
            right >>= 1;
        }
        for leaf in [first + self.leaves, end - 1 + self.leaves] {
            let mut node = leaf >> 1;
            while node > 0 {
                largest = largest.max(self.raised[node]);
                node >>= 1;
            }
        }
        largest
    }

    fn raise_node(&mut self, node: usize, value: u64) {
        self.largest[node] = self.largest[node].max(value);
        self.raised[node] = self.raised[node].max(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn agrees_with_a_plain_array() {
        let mut random = Random::new(7);
        for length in [1, 2, 3, 17, 64, 100] {
            let mut tree = RangeMax::new(length);
            let mut plain = vec![0_u64; length];
            for _ in 0..500 {
                let first = random.below(length as u64) as usize;
                let end = first + 1 + random.below((length - first) as u64) as usize;
                let expected = *plain[first..end].iter().max().unwrap();
                assert_eq!(tree.largest(first, end), expected);
                let value = expected + random.below(10);
                tree.raise(first, end, value);
                plain[first..end].iter_mut().for_each(|entry| *entry = value.max(*entry));
            }
        }
    }
}
