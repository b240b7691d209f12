//! What masks and dropout do to a tile of scores.

use std::ops::Range;

use memfit_ir::Operand::{KeyMask, QueryMask};
use memfit_ir::{Attention, AttentionDropout, random};

use super::super::operands::Operands;
use super::{Rows, Sizes};

/// A score whose exponential is zero beside any other.
const HIDDEN: f32 = -1e30;

/// Masks and draws of one launch.
#[derive(Clone, Copy)]
pub(super) struct Hiding<'a> {
    sizes: Sizes,
    causal: bool,
    query_mask: Option<&'a [f32]>,
    key_mask: Option<&'a [f32]>,
    dropout: Option<AttentionDropout>,
    /// The sequence of this step's draws.
    seed: u64,
    row_start: usize,
}

impl<'a> Hiding<'a> {
    /// What the masks of a launch say, and where its draws begin.
    pub(super) fn new(operands: &Operands<'a>, kind: &Attention, sizes: Sizes) -> Hiding<'a> {
        let context = operands.context;
        let own = kind.dropout.map_or(0, |dropout| dropout.seed);
        Hiding {
            sizes,
            causal: kind.causal,
            query_mask: operands.input_if_given(QueryMask),
            key_mask: operands.input_if_given(KeyMask),
            dropout: kind.dropout,
            seed: random::derive(random::derive(context.seed, own), context.step),
            row_start: context.row_start,
        }
    }

    /// What a row hides, where it hides anything.
    pub(super) fn of_row(&self, row: usize) -> Option<RowMask<'a>> {
        let part = |mask: Option<&'a [f32]>, places: usize| mask.map(|mask| &mask[row * places..][..places]);
        let (queries, keys) =
            (part(self.query_mask, self.sizes.queries), part(self.key_mask, self.sizes.keys));
        if queries.is_none() && keys.is_none() {
            return None;
        }
        let first = keys.map_or(Some(0), |keys| keys.iter().position(|counts| *counts != 0.0));
        Some(RowMask { queries, keys, first: first.unwrap_or(usize::MAX), causal: self.causal })
    }

    /// Multiplies a tile by what is drawn for it: 0, or what makes up for the rest.
    pub(super) fn drop(
        &self,
        tile: Rows,
        (row, head): (usize, usize),
        queries: Range<usize>,
        keys: Range<usize>,
    ) {
        let Some(AttentionDropout { rate, .. }) = self.dropout else { return };
        let factor = 1.0 / (1.0 - rate);
        for (index, query) in queries.enumerate() {
            // SAFETY: the tile is its worker's own and has as many rows and keys.
            let values = unsafe { tile.write(index, keys.len()) };
            let place = ((self.row_start + row) * self.sizes.heads + head) * self.sizes.queries + query;
            let first = (place * self.sizes.keys + keys.start) as u64;
            for (index, value) in (0u64..).zip(values) {
                let kept = rate <= random::unit(self.seed, first + index);
                *value = if kept { *value * factor } else { 0.0 };
            }
        }
    }
}

/// What one row of the batch hides.
#[derive(Clone, Copy)]
pub(super) struct RowMask<'a> {
    queries: Option<&'a [f32]>,
    keys: Option<&'a [f32]>,
    /// The first key that counts.
    first: usize,
    causal: bool,
}

impl RowMask<'_> {
    /// Whether a query does not count or sees no key: then it takes the mean of all values.
    fn is_blind(&self, query: usize) -> bool {
        self.queries.is_some_and(|mask| mask[query] == 0.0)
            || if self.causal { query < self.first } else { self.first == usize::MAX }
    }

    /// Hides scores of a tile.
    pub(super) fn hide(&self, scores: Rows, queries: Range<usize>, keys: Range<usize>) {
        for (index, query) in queries.enumerate() {
            // SAFETY: the tile is its worker's own and has as many rows and keys.
            let scores = unsafe { scores.write(index, keys.len()) };
            if self.is_blind(query) {
                scores.fill(0.0);
                continue;
            }
            for (score, key) in scores.iter_mut().zip(keys.clone()) {
                let counts = self.keys.is_none_or(|mask| mask[key] != 0.0);
                if !counts || self.causal && query < key {
                    *score = HIDDEN;
                }
            }
        }
    }

    /// Takes the gradients of scores from queries whose scores are constant.
    pub(super) fn clear(&self, dscores: Rows, queries: Range<usize>, keys: usize) {
        for (index, query) in queries.enumerate() {
            if self.is_blind(query) {
                // SAFETY: the tile is its worker's own and has as many rows and keys.
                unsafe { dscores.write(index, keys) }.fill(0.0);
            }
        }
    }
}
