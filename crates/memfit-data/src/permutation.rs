//! The order of the rows in an epoch: a permutation computed from seed, epoch and index. Checkpoints depend on it, so it never
//! changes.

use memfit_ir::{Bytes, random};

/// Below this many rows the permutation is a table (Fisher–Yates), from here on a Feistel network.
const TABLE_ROWS: u64 = 4096;
/// Rounds of the network: every half is mixed three times.
const ROUNDS: usize = 6;

/// A random permutation of `0..rows`, another one in every epoch.
#[derive(Clone, Debug)]
pub struct Permutation {
    seed: u64,
    rows: u64,
    epoch: u64,
    order: Order,
}

#[derive(Clone, Debug)]
enum Order {
    /// Few rows: all of them, drawn again in every epoch.
    Table(Box<[u16]>),
    /// Many rows: nothing but the keys of the rounds.
    Network(Feistel),
}

impl Permutation {
    /// The order of these rows in epoch 0.
    pub fn new(seed: u64, rows: u64) -> Permutation {
        let order = if rows < TABLE_ROWS {
            Order::Table((0..rows).map(|row| row as u16).collect())
        } else {
            Order::Network(Feistel::new(rows))
        };
        let mut permutation = Permutation { seed, rows, epoch: 0, order };
        permutation.draw();
        permutation
    }

    /// Goes to another epoch. Allocates nothing, and costs nothing where it is the same epoch.
    pub fn set_epoch(&mut self, epoch: u64) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.draw();
        }
    }

    /// The row at a position of the epoch.
    ///
    /// # Panics
    /// Where there is no such position.
    pub fn at(&self, position: u64) -> u64 {
        assert!(position < self.rows, "position {position} of {} rows", self.rows);
        match &self.order {
            Order::Table(table) => u64::from(table[position as usize]),
            Order::Network(network) => network.at(position, self.rows),
        }
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Rows in all.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes of the table, where there is one.
    pub fn bytes(&self) -> Bytes {
        match &self.order {
            Order::Table(table) => Bytes(size_of_val::<[u16]>(table) as u64),
            Order::Network(_) => Bytes::ZERO,
        }
    }

    fn draw(&mut self) {
        let seed = random::derive(random::derive(self.seed, random::purpose("shuffle")), self.epoch);
        match &mut self.order {
            Order::Table(table) => fisher_yates(seed, table),
            Order::Network(network) => network.set_keys(seed),
        }
    }
}

/// Fills a table with a random permutation.
fn fisher_yates(seed: u64, table: &mut [u16]) {
    for (place, row) in table.iter_mut().zip(0u16..) {
        *place = row;
    }
    for last in (1..table.len()).rev() {
        let bits = u128::from(random::bits(seed, last as u64));
        // A fraction of 2^64, so that every place is as likely as the next to one part in 2^52.
        let other = (bits * (last as u128 + 1)) >> 64;
        table.swap(last, other as usize);
    }
}

/// A permutation of all numbers of some bits, which is walked until the number is a row.
#[derive(Clone, Debug)]
struct Feistel {
    /// Bits of the two halves; the right half has as many as the left, or one more.
    left: u32,
    right: u32,
    keys: [u64; ROUNDS],
}

impl Feistel {
    fn new(rows: u64) -> Feistel {
        let bits = u64::BITS - (rows - 1).leading_zeros();
        Feistel { left: bits / 2, right: bits.div_ceil(2), keys: [0; ROUNDS] }
    }

    fn set_keys(&mut self, seed: u64) {
        for (key, round) in self.keys.iter_mut().zip(0..) {
            *key = random::derive(seed, round);
        }
    }

    /// Fewer than half of the numbers are no rows, so that two walks are the most on average.
    fn at(&self, position: u64, rows: u64) -> u64 {
        let mut number = self.mix(position);
        while rows <= number {
            number = self.mix(number);
        }
        number
    }

    fn mix(&self, number: u64) -> u64 {
        let mut right = number & ((1 << self.right) - 1);
        let mut left = number >> self.right;
        for keys in self.keys.as_chunks::<2>().0 {
            left ^= round(keys[0], right) >> (u64::BITS - self.left);
            right ^= round(keys[1], left) >> (u64::BITS - self.right);
        }
        left << self.right | right
    }
}

/// Bits of a key and a half, the first of which are well mixed. Six rounds need no more.
fn round(key: u64, half: u64) -> u64 {
    let mixed = (key ^ half).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of an epoch.
    fn order(seed: u64, epoch: u64, rows: u64) -> Vec<u64> {
        let mut permutation = Permutation::new(seed, rows);
        permutation.set_epoch(epoch);
        (0..rows).map(|position| permutation.at(position)).collect()
    }

    #[test]
    fn every_row_comes_once() {
        let sizes = [0, 1, 2, 3, 100, 4095, 4096, 4097, 5000, 8191, 8192, 8193, 65_536, 100_003];
        for rows in sizes {
            for epoch in 0..3 {
                let mut rows_seen = order(7, epoch, rows);
                rows_seen.sort_unstable();
                assert!(rows_seen.iter().copied().eq(0..rows), "{rows} rows, epoch {epoch}");
            }
        }
    }

    #[test]
    fn seeds_and_epochs_give_other_orders() {
        for rows in [1000, 10_000] {
            let orders = [order(1, 0, rows), order(1, 1, rows), order(1, 2, rows), order(2, 0, rows)];
            for (index, one) in orders.iter().enumerate() {
                for other in &orders[..index] {
                    let same = one.iter().zip(other).filter(|(one, other)| one == other).count();
                    // One on average, whatever the number of rows.
                    assert!(same < 8, "{rows} rows: {same} at the same position");
                }
            }
        }
    }

    #[test]
    fn an_epoch_that_comes_again_is_the_same() {
        for rows in [1000, 10_000] {
            let mut permutation = Permutation::new(3, rows);
            let first: Vec<u64> = (0..rows).map(|position| permutation.at(position)).collect();
            permutation.set_epoch(5);
            permutation.set_epoch(0);
            assert!((0..rows).map(|position| permutation.at(position)).eq(first));
        }
    }

    /// Chi-square over the standard deviations from its mean, which are within 5 for a fair draw.
    fn deviations(counts: &[u64]) -> f64 {
        let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        let chi: f64 = counts.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum();
        let freedom = counts.len() as f64 - 1.0;
        (chi - freedom) / (2.0 * freedom).sqrt()
    }

    #[test]
    fn rows_are_as_likely_at_every_position() {
        const BINS: usize = 64;
        for rows in [1024, 4096, 6016, 8192] {
            let mut permutation = Permutation::new(11, rows);
            let bin = |number: u64| (number * BINS as u64 / rows) as usize;
            // Which row stands where, and which row follows which.
            let (mut places, mut pairs) = (vec![0; BINS * BINS], vec![0; BINS * BINS]);
            for epoch in 0..200 {
                permutation.set_epoch(epoch);
                let mut before = permutation.at(rows - 1);
                for position in 0..rows {
                    let row = permutation.at(position);
                    places[bin(position) * BINS + bin(row)] += 1;
                    pairs[bin(before) * BINS + bin(row)] += 1;
                    before = row;
                }
            }
            for (what, counts) in [("places", &places), ("pairs", &pairs)] {
                let off = deviations(counts);
                assert!(off.abs() < 5.0, "{rows} rows: {what} are {off} standard deviations off");
            }
        }
    }

    #[test]
    fn small_orders_are_all_drawn_alike() {
        // All 24 orders of four rows.
        let mut counts = std::collections::BTreeMap::new();
        for epoch in 0..24_000 {
            *counts.entry(order(5, epoch, 4)).or_insert(0) += 1;
        }
        let counts: Vec<u64> = counts.into_values().collect();
        assert_eq!(counts.len(), 24);
        assert!(deviations(&counts).abs() < 5.0, "{counts:?}");
    }

    #[test]
    fn the_order_is_the_one_that_checkpoints_remember() {
        // (seed, epoch, rows), and the rows at the first positions. These may never change.
        let cases: [((u64, u64, u64), [u64; 6]); 6] = [
            ((0, 0, 10), [3, 7, 2, 0, 9, 5]),
            ((1, 2, 4095), [3099, 1747, 3989, 1978, 2430, 3606]),
            ((1, 2, 4096), [1886, 2747, 120, 2413, 157, 2809]),
            ((0, 0, 60_000), [50_570, 35_214, 34_227, 26_709, 13_052, 36_059]),
            ((42, 7, 1_281_167), [439_784, 585_559, 704_955, 9740, 918_547, 731_574]),
            (
                (42, 7, 1 << 32),
                [2_200_808_794, 3_828_109_231, 3_732_813_366, 4_265_261_556, 2_095_519_810, 3_744_996_971],
            ),
        ];
        for ((seed, epoch, rows), wanted) in cases {
            let mut permutation = Permutation::new(seed, rows);
            permutation.set_epoch(epoch);
            let first = [0, 1, 2, 3, 4, 5].map(|position| permutation.at(position));
            assert_eq!(first, wanted, "seed {seed}, epoch {epoch}, {rows} rows");
        }
    }

    #[test]
    fn only_few_rows_have_a_table() {
        let cases = [(0, 0), (1, 2), (4095, 8190), (4096, 0), (u64::MAX, 0)];
        for (rows, bytes) in cases {
            assert_eq!(Permutation::new(0, rows).bytes(), Bytes(bytes), "{rows} rows");
        }
    }
}
