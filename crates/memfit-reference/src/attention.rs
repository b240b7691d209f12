//! Attention: every query looks at every key.

use memfit_ir::{Attention, random};

use super::call::{Call, image};
use super::noise::seed;

/// `y = softmax(scale · q kᵀ) v`, and the logarithm of each softmax's sum.
pub(crate) fn forward(call: &Call, kind: &Attention) -> Vec<Vec<f64>> {
    let heads = Heads::new(call, kind, 0, 3);
    let [q, k, v] = [0, 1, 2].map(|index| call.input(index));
    let mut y = vec![0.0; call.rows() * heads.queries * heads.heads * heads.value_width];
    let mut sums = vec![0.0; call.rows() * heads.heads * heads.queries];
    heads.for_each_query(call.rows(), |at| {
        let scores: Vec<f64> = (0..heads.keys).map(|key| heads.score(at, key, q, k)).collect();
        let sum = super::softmax::log_sum(&scores);
        sums[heads.sum(at)] = sum;
        for (key, score) in scores.iter().enumerate() {
            let weight = (score - sum).exp() * heads.kept(at, key);
            let (query, value) = (heads.query(at, heads.value_width), heads.key(at, key, heads.value_width));
            for feature in 0..heads.value_width {
                y[query + feature] += weight * v[value + feature];
            }
        }
    });
    vec![y, sums]
}

/// With `p` the weights of values and `ds` the gradients of scores: `dv = pᵀ dy`, `dp = dy vᵀ`, `ds = p (dp − Σ dp p)`,
/// `dq = scale · ds k` and `dk = scale · dsᵀ q`. `Σ dp p` is `dy · y`.
pub(crate) fn grad(call: &Call, kind: &Attention) -> Vec<Vec<f64>> {
    let heads = Heads::new(call, kind, 1, 6);
    let [dy, q, k, v, y, sums] = [0, 1, 2, 3, 4, 5].map(|index| call.input(index));
    let (width, value_width, scale) = (heads.width, heads.value_width, f64::from(kind.scale));
    let [mut dq, mut dk, mut dv] = [q, k, v].map(|values| vec![0.0; values.len()]);
    heads.for_each_query(call.rows(), |at| {
        let (query, of_y) = (heads.query(at, width), heads.query(at, value_width));
        let common: f64 = (0..value_width).map(|feature| dy[of_y + feature] * y[of_y + feature]).sum();
        for place in (0..heads.keys).filter(|key| heads.weighs(at, *key)) {
            let (key, value) = (heads.key(at, place, width), heads.key(at, place, value_width));
            let weight = (heads.score(at, place, q, k) - sums[heads.sum(at)]).exp();
            let kept = heads.kept(at, place);
            let dp: f64 = (0..value_width).map(|feature| dy[of_y + feature] * v[value + feature]).sum();
            for feature in 0..value_width {
                dv[value + feature] += weight * kept * dy[of_y + feature];
            }
            if heads.is_blind(at) {
                // Scores that are constant have no gradient.
                continue;
            }
            let ds = weight * (kept * dp - common);
            for feature in 0..width {
                dq[query + feature] += scale * ds * k[key + feature];
                dk[key + feature] += scale * ds * q[query + feature];
            }
        }
    });
    vec![dq, dk, dv]
}

/// Which query: row, place and head.
#[derive(Clone, Copy)]
struct At {
    row: usize,
    query: usize,
    head: usize,
}

/// The sizes of an attention, and what hides keys from queries.
struct Heads<'a> {
    kind: &'a Attention,
    queries: usize,
    heads: usize,
    width: usize,
    keys: usize,
    key_heads: usize,
    value_width: usize,
    query_mask: Option<&'a [f64]>,
    key_mask: Option<&'a [f64]>,
    seed: u64,
    row_start: usize,
}

impl<'a> Heads<'a> {
    /// Queries, keys and values stand from operand `first` on, masks from operand `masks` on.
    fn new(call: &Call<'a>, kind: &'a Attention, first: usize, masks: usize) -> Heads<'a> {
        let [q, k, v] = [0, 1, 2].map(|index| image(call.dims(first + index)));
        Heads {
            kind,
            queries: q[0],
            heads: q[1],
            width: q[2],
            keys: k[0],
            key_heads: k[1],
            value_width: v[2],
            query_mask: call.input_if(kind.query_mask, masks),
            key_mask: call.input_if(kind.key_mask, masks + usize::from(kind.query_mask)),
            seed: seed(call, kind.dropout.map_or(0, |dropout| dropout.seed)),
            row_start: call.context.row_start,
        }
    }

    fn for_each_query(&self, rows: usize, mut each: impl FnMut(At)) {
        for [row, query, head] in super::call::indices([rows, self.queries, self.heads]) {
            each(At { row, query, head });
        }
    }

    /// Where the features of a query begin, of this many.
    fn query(&self, at: At, width: usize) -> usize {
        ((at.row * self.queries + at.query) * self.heads + at.head) * width
    }

    /// Where the features of a key begin. Neighbouring heads share a head of keys.
    fn key(&self, at: At, key: usize, width: usize) -> usize {
        let head = at.head / (self.heads / self.key_heads);
        ((at.row * self.keys + key) * self.key_heads + head) * width
    }

    /// Where the logarithm of a query's sum stands.
    fn sum(&self, at: At) -> usize {
        (at.row * self.heads + at.head) * self.queries + at.query
    }

    fn sees(&self, at: At, key: usize) -> bool {
        (!self.kind.causal || key <= at.query)
            && self.query_mask.is_none_or(|mask| mask[at.row * self.queries + at.query] != 0.0)
            && self.key_mask.is_none_or(|mask| mask[at.row * self.keys + key] != 0.0)
    }

    /// Whether a query sees no key: it takes the mean of all values.
    fn is_blind(&self, at: At) -> bool {
        !(0..self.keys).any(|key| self.sees(at, key))
    }

    /// Whether a key has a weight for a query.
    fn weighs(&self, at: At, key: usize) -> bool {
        self.sees(at, key) || self.is_blind(at)
    }

    fn score(&self, at: At, key: usize, q: &[f64], k: &[f64]) -> f64 {
        let (query, place) = (self.query(at, self.width), self.key(at, key, self.width));
        if self.is_blind(at) {
            0.0
        } else if self.sees(at, key) {
            let product: f64 = (0..self.width).map(|i| q[query + i] * k[place + i]).sum();
            f64::from(self.kind.scale) * product
        } else {
            f64::NEG_INFINITY
        }
    }

    /// What dropout makes of a weight of 1.
    fn kept(&self, at: At, key: usize) -> f64 {
        let Some(dropout) = self.kind.dropout else { return 1.0 };
        let row = self.row_start + at.row;
        let place = ((row * self.heads + at.head) * self.queries + at.query) * self.keys + key;
        if dropout.rate <= random::unit(self.seed, place as u64) {
            1.0 / (1.0 - f64::from(dropout.rate))
        } else {
            0.0
        }
    }
}
