//! The rows of the op table that are about attention, and its slow reference.

use memfit_ir::{Attention, AttentionDropout, Mask, Op, TensorId, random};

use crate::op_cases::{Add, Builder};

/// Sizes of one attention: queries, keys, heads, key heads, floats of a key, floats of a value.
type Sizes = [usize; 6];

pub(crate) fn add(add: Add<'_>) {
    for (name, sizes) in [
        ("of one head", [5, 5, 1, 1, 4, 4]),
        ("of several heads", [4, 4, 3, 3, 2, 2]),
        ("of one query", [1, 5, 2, 2, 3, 3]),
        ("over other keys", [3, 6, 2, 2, 3, 3]),
        ("with values of another width", [4, 3, 2, 2, 3, 5]),
        ("of grouped queries", [4, 4, 4, 2, 3, 2]),
        ("of more queries than a tile has", [27, 3, 1, 1, 2, 1]),
    ] {
        for causal in [false, true] {
            let kind = Attention { scale: 0.7, causal, ..Attention::default() };
            add(&format!("attention {name}, causal {causal}"), &move |b| attention(b, &kind, sizes));
        }
    }
    for (name, query_mask, key_mask, rate, causal) in [
        ("with a mask of keys", false, true, 0.0, false),
        ("with a mask of queries", true, false, 0.0, false),
        ("with both masks", true, true, 0.0, true),
        ("with dropout", false, false, 0.4, false),
        ("with dropout and a mask", false, true, 0.4, true),
    ] {
        for sizes in [[4, 4, 4, 2, 3, 2], [27, 3, 1, 1, 2, 1]] {
            let dropout = (0.0 < rate).then_some(AttentionDropout { rate, seed: 9 });
            let kind = Attention { scale: 0.7, causal, query_mask, key_mask, dropout };
            add(&format!("attention {name} of {} queries", sizes[0]), &move |b| attention(b, &kind, sizes));
        }
    }
    add("attention of a tensor on itself", &|b| {
        let x = b.input([4, 2, 3]);
        b.op(Op::Attention(Attention { scale: 0.7, causal: true, ..Attention::default() }), &[x, x, x])
    });
    add("dense with a kernel of several axes", &|b| {
        let x = b.input([3, 5]);
        let (kernel, bias) = (b.weight("kernel", &[5, 2, 3]), b.weight("bias", &[2, 3]));
        let heads = b.op(Op::Dense, &[x, kernel, bias]);
        let (kernel, bias) = (b.weight("kernel", &[2, 3, 4]), b.weight("bias", &[4]));
        b.op(Op::Dense, &[heads, kernel, bias])
    });
}

fn attention(b: &mut Builder, kind: &Attention, sizes: Sizes) -> TensorId {
    let [queries, keys, heads, key_heads, width, value_width] = sizes;
    let q = b.input([queries, heads, width]);
    let k = b.input([keys, key_heads, width]);
    let v = b.input([keys, key_heads, value_width]);
    let mut operands = vec![q, k, v];
    for (given, places) in [(kind.query_mask, queries), (kind.key_mask, keys)] {
        if given {
            let ids = b.ids([places], 2);
            operands.push(b.op(Op::Mask(Mask::NotZero), &[ids]));
        }
    }
    b.op(Op::Attention(kind.clone()), &operands)
}

/// A tensor of rows, positions, heads and floats.
pub(crate) struct Heads<'a> {
    pub values: &'a [f64],
    pub dims: [usize; 3],
}

impl Heads<'_> {
    fn of(&self, row: usize, position: usize, head: usize) -> &[f64] {
        let [positions, heads, width] = self.dims;
        &self.values[((row * positions + position) * heads + head) * width..][..width]
    }
}

/// What attention writes: weighted values, and the logarithm of each softmax's sum.
pub(crate) fn evaluate(
    kind: &Attention,
    rows: usize,
    [q, k, v]: [Heads<'_>; 3],
    [query_mask, key_mask]: [Option<&[f64]>; 2],
) -> Vec<Vec<f64>> {
    // The harness trains step 0 with seed 5.
    let draws = random::derive(random::derive(5, kind.dropout.map_or(0, |dropout| dropout.seed)), 0);
    let ([queries, heads, _], [keys, key_heads, _]) = (q.dims, k.dims);
    let (mut y, mut log_sums) = (Vec::new(), vec![0.0; rows * heads * queries]);
    for row in 0..rows {
        for query in 0..queries {
            for head in 0..heads {
                let key_head = head / (heads / key_heads);
                let sees = |key: usize| {
                    (!kind.causal || key <= query)
                        && query_mask.is_none_or(|mask| mask[row * queries + query] == 1.0)
                        && key_mask.is_none_or(|mask| mask[row * keys + key] == 1.0)
                };
                // A query that sees nothing takes the mean of everything.
                let is_blind = !(0..keys).any(sees);
                let kept = |key: usize| match kind.dropout {
                    None => 1.0,
                    Some(AttentionDropout { rate, .. }) => {
                        let place = ((row * heads + head) * queries + query) * keys + key;
                        let unit = random::unit(draws, place as u64);
                        if rate <= unit { 1.0 / (1.0 - f64::from(rate)) } else { 0.0 }
                    }
                };
                let score = |key: usize| {
                    let products = q.of(row, query, head).iter().zip(k.of(row, key, key_head));
                    f64::from(kind.scale) * products.map(|(q, k)| q * k).sum::<f64>()
                };
                let power = |key: usize| match (is_blind, sees(key)) {
                    (true, _) => 1.0,
                    (false, true) => score(key).exp(),
                    (false, false) => 0.0,
                };
                let powers: Vec<f64> = (0..keys).map(power).collect();
                let total: f64 = powers.iter().sum();
                log_sums[(row * heads + head) * queries + query] = total.ln();
                y.extend((0..v.dims[2]).map(|at| {
                    let weighted =
                        (0..keys).map(|key| powers[key] * kept(key) * v.of(row, key, key_head)[at]);
                    weighted.sum::<f64>() / total
                }));
            }
        }
    }
    vec![y, log_sums]
}
