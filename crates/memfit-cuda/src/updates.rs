//! Updates of many weights in one launch: a network has hundreds of weights, and most are so small that a
//! launch each would take longer than the work.

use super::work::Source;

/// Weights of one launch, at most: as many as a kernel's parameters have room for.
const MOST: usize = 48;

/// Elements of a block, as the kernel has it.
const CHUNK: u64 = 1024;

/// The kernel's words for a weight: gradient, norm, found_inf, weight, three states, average and the count of
/// elements.
pub(crate) const WORDS: usize = 9;

/// Which of these is the weight.
const WEIGHT: usize = 3;

/// Updates by the same text that wait for more of their kind.
pub(crate) struct Updates {
    pub(crate) source: Source,
    weights: Vec<[u64; WORDS]>,
}

impl Updates {
    /// The first of its kind.
    pub(crate) fn new(source: Source, weight: [u64; WORDS]) -> Updates {
        Updates { source, weights: vec![weight] }
    }

    /// Takes one more weight where it can go along: not one that is among them, whose updates follow each
    /// other.
    pub(crate) fn take(&mut self, source: &Source, weight: [u64; WORDS]) -> bool {
        let is_new = self.weights.iter().all(|known| known[WEIGHT] != weight[WEIGHT]);
        let fits = is_new && self.weights.len() < MOST && self.source == *source;
        if fits {
            self.weights.push(weight);
        }
        fits
    }

    /// The kernel's parameter, `struct Many`, and its blocks.
    pub(crate) fn packed(&self) -> (Vec<u64>, u32) {
        let mut firsts = vec![0u32];
        for weight in &self.weights {
            let blocks = weight[WORDS - 1].div_ceil(CHUNK).max(1);
            let end = firsts.last().copied().unwrap_or(0) + u32::try_from(blocks).unwrap_or(u32::MAX);
            firsts.push(end);
        }
        let blocks = firsts.last().copied().unwrap_or(0);
        firsts.resize(MOST + 2, blocks);
        let mut words: Vec<u64> = self.weights.iter().flatten().copied().collect();
        words.resize(MOST * WORDS, 0);
        words.extend(firsts.chunks_exact(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32));
        (words, blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(defines: &str) -> Source {
        Source { text: "", defines: defines.to_owned() }
    }

    #[test]
    fn weights_of_one_kind_share_a_launch_and_every_element_has_a_block() {
        let weight = |at: u64, count: u64| [1, 2, 3, at, 5, 6, 7, 8, count];
        let mut updates = Updates::new(source("a"), weight(4, 1));
        assert!(updates.take(&source("a"), weight(9, CHUNK + 1)));
        assert!(!updates.take(&source("b"), weight(10, 1)), "another rule is another launch");
        assert!(!updates.take(&source("a"), weight(9, 1)), "a weight's updates follow each other");
        let (words, blocks) = updates.packed();
        assert_eq!(blocks, 3);
        assert_eq!(words.len(), MOST * WORDS + MOST / 2 + 1);
        assert_eq!(&words[..WORDS + 1], [1, 2, 3, 4, 5, 6, 7, 8, 1, 1]);
        // First blocks: 0, 1, 3, and 3 for all that are not there.
        assert_eq!(words[MOST * WORDS], 1 << 32);
        assert_eq!(words[MOST * WORDS + 1], 3 | 3 << 32);
        for at in 2..MOST as u64 {
            assert!(updates.take(&source("a"), weight(100 + at, 1)));
        }
        assert!(!updates.take(&source("a"), weight(1000, 1)), "parameters have no more room");
    }
}
