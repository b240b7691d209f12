//! Random items that are always the same, for the tests.

use memfit_pack::{Gap, Item, Window};

/// Marsaglia's xorshift.
pub struct Random(pub u64);

impl Random {
    /// A number in `0..limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    /// An item with a chance of everything: no size, no life, any alignment, gaps.
    pub fn item(&mut self, times: u64, sizes: u64) -> Item {
        let lower = self.below(times) as usize;
        let length = self.below(times / 2 + 2) as usize;
        let alignment = [0, 1, 1, 2, 4, 6, 64][self.below(7) as usize];
        let mut item = Item::new(lower, lower + length, self.below(sizes)).aligned(alignment);
        if self.below(3) == 0 {
            for _ in 0..self.below(3) {
                item.gaps.push(self.gap(&item));
            }
        }
        item
    }

    fn gap(&mut self, item: &Item) -> Gap {
        let lower = item.lower + self.below(8) as usize;
        let upper = lower + self.below(8) as usize;
        let from = self.below(item.size + 1);
        let window = Window { lower: from, upper: from + self.below(item.size + 2) };
        Gap { lower, upper, window: (self.below(2) == 0).then_some(window) }
    }
}
