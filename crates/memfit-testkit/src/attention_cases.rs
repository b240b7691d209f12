//! The rows of the op table that are about attention.

use memfit_ir::{Attention, AttentionDropout, Mask, Op, TensorId};

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
