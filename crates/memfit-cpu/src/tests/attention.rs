//! Attention against loops over all pairs of queries and keys.

use memfit_ir::{Attention, AttentionDropout, Op, Shape};

use super::{Case, assert_near, doubles, noise};

/// Sizes: rows, queries, keys, heads, key heads, floats of a key, floats of a value.
type Sizes = [usize; 7];

const SIZES: [Sizes; 9] = [
    [2, 5, 5, 2, 2, 4, 4],
    [1, 1, 1, 1, 1, 1, 1],
    [3, 1, 7, 2, 1, 3, 5],
    [1, 33, 47, 1, 1, 16, 16],
    [2, 40, 19, 6, 2, 7, 9],
    [1, 130, 129, 2, 2, 20, 33],
    [1, 300, 290, 2, 1, 8, 8],
    [1, 260, 530, 1, 1, 5, 4],
    [2, 64, 64, 3, 3, 64, 64],
];

/// `y`, log sums, `dq`, `dk` and `dv` by the formulas.
fn reference(kind: &Attention, sizes: Sizes, [q, k, v, dy]: [&[f64]; 4]) -> [Vec<f64>; 5] {
    let [rows, queries, keys, heads, key_heads, width, value_width] = sizes;
    let (mut y, mut logsumexp) = (vec![0.0; dy.len()], vec![0.0; rows * heads * queries]);
    let (mut dq, mut dk, mut dv) = (vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]);
    let scale = f64::from(kind.scale);
    for (at, sum) in logsumexp.iter_mut().enumerate() {
        let (row, head, query) = (at / queries / heads, at / queries % heads, at % queries);
        let key_head = head / (heads / key_heads);
        let place = |position: usize, all: usize, head: usize, heads: usize, width: usize| {
            let start = ((row * all + position) * heads + head) * width;
            start..start + width
        };
        let of_q = place(query, queries, head, heads, width);
        let of_y = place(query, queries, head, heads, value_width);
        let of_k = |key: usize| place(key, keys, key_head, key_heads, width);
        let of_v = |key: usize| place(key, keys, key_head, key_heads, value_width);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let count = if kind.causal { keys.min(query + 1) } else { keys };
        let scores: Vec<f64> = (0..count).map(|key| scale * dot(&q[of_q.clone()], &k[of_k(key)])).collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = scores.iter().map(|score| (score - most).exp()).sum();
        *sum = most + total.ln();
        let probabilities: Vec<f64> = scores.iter().map(|score| (score - *sum).exp()).collect();
        for (key, probability) in probabilities.iter().enumerate() {
            for (y, v) in y[of_y.clone()].iter_mut().zip(&v[of_v(key)]) {
                *y += probability * v;
            }
            for (dv, dy) in dv[of_v(key)].iter_mut().zip(&dy[of_y.clone()]) {
                *dv += probability * dy;
            }
        }
        let delta = dot(&dy[of_y.clone()], &y[of_y.clone()]);
        for (key, probability) in probabilities.iter().enumerate() {
            let dscore = scale * probability * (dot(&dy[of_y.clone()], &v[of_v(key)]) - delta);
            for (at_q, at_k) in of_q.clone().zip(of_k(key)) {
                dq[at_q] += dscore * k[at_k];
                dk[at_k] += dscore * q[at_q];
            }
        }
    }
    [y, logsumexp, dq, dk, dv]
}

fn check(kind: &Attention, sizes: Sizes, tolerance: f64) {
    let [rows, queries, keys, heads, key_heads, width, value_width] = sizes;
    let shapes = [[queries, heads, width], [keys, key_heads, width], [keys, key_heads, value_width]];
    let [q, k, v] =
        [0, 1, 2].map(|index| noise(rows * shapes[index].iter().product::<usize>(), 1 + index as u64));
    let shape_y = [queries, heads, value_width];
    let dy = noise(rows * shape_y.iter().product::<usize>(), 9);
    let all = [&q, &k, &v, &dy].map(|values| doubles(values));
    let expected = reference(kind, sizes, [0, 1, 2, 3].map(|index| all[index].as_slice()));

    let forward = [&q, &k, &v]
        .iter()
        .zip(shapes)
        .fold(Case::new(Op::Attention(kind.clone()), rows), |case, (values, shape)| {
            case.input(Shape::rows(shape), values.as_slice())
        });
    let results = forward.run();
    let what = |name: &str| format!("{name} of {sizes:?}, causal {}", kind.causal);
    assert_near(results.floats(0), &expected[0], tolerance, &what("y"));
    assert_near(results.floats(1), &expected[1], tolerance, &what("log sums"));

    let mut grad = Case::new(Op::AttentionGrad(kind.clone()), rows).input(Shape::rows(shape_y), dy.clone());
    for (values, shape) in [&q, &k, &v].iter().zip(shapes) {
        grad = grad.input(Shape::rows(shape), values.as_slice());
    }
    let grad = grad
        .input(Shape::rows(shape_y), results.floats(0))
        .input(Shape::rows([heads, queries]), results.floats(1));
    let results = grad.run();
    for (index, name) in ["dq", "dk", "dv"].iter().enumerate() {
        assert_near(results.floats(index), &expected[2 + index], 3.0 * tolerance, &what(name));
    }
}

#[test]
fn attention_is_a_softmax_over_all_keys() {
    for sizes in SIZES {
        check(&Attention { scale: 0.3, causal: false, ..Attention::default() }, sizes, 1e-5);
    }
}

#[test]
fn causal_attention_sees_no_key_after_the_query() {
    for sizes in SIZES {
        check(&Attention { scale: 0.3, causal: true, ..Attention::default() }, sizes, 1e-5);
    }
}

#[test]
fn a_value_that_is_no_number_reaches_the_result() {
    let kind = Attention { scale: 1.0, causal: false, ..Attention::default() };
    let shape = Shape::rows([4, 1, 3]);
    for spoilt in 0..3 {
        let mut operands = [1, 2, 3].map(|seed| noise(12, seed));
        operands[spoilt][5] = f32::NAN;
        let case = operands.into_iter().fold(Case::new(Op::Attention(kind.clone()), 1), |case, values| {
            case.input(shape.clone(), values)
        });
        assert!(case.run().floats(0).iter().any(|value| value.is_nan()), "operand {spoilt}");
    }
}

#[test]
fn large_scores_do_not_overflow() {
    // Scores of several hundred have few digits after the point, and so have their powers.
    check(&Attention { scale: 50.0, causal: false, ..Attention::default() }, [1, 30, 300, 1, 1, 4, 4], 1e-3);
}

#[test]
fn dropout_keeps_its_share_of_weights_and_their_mean_for_any_micro_batches() {
    let (rows, queries, keys, rate) = (3, 40, 200, 0.3);
    let dropout = Some(AttentionDropout { rate, seed: 7 });
    let kind = Attention { scale: 1.0, dropout, ..Attention::default() };
    let run = |rows: usize, row_start: usize| {
        let ones = |count: usize| vec![1.0; count];
        let case = Case::new(Op::Attention(kind.clone()), rows)
            .input(Shape::rows([queries, 2, 1]), vec![0.0; rows * queries * 2])
            .input(Shape::rows([keys, 2, 1]), ones(rows * keys * 2))
            .input(Shape::rows([keys, 2, 1]), ones(rows * keys * 2));
        case.context(|context| context.row_start = row_start).run().floats(0).to_vec()
    };
    let whole = run(rows, 0);
    // Every weight is 1 / keys, so that a result is the share of weights that are kept, scaled up to
    // compensate.
    let count = whole.len() as f64;
    let mean = whole.iter().map(|y| f64::from(*y)).sum::<f64>() / count;
    let variance = whole.iter().map(|y| (f64::from(*y) - mean).powi(2)).sum::<f64>() / count;
    let expected = f64::from(rate) / (1.0 - f64::from(rate)) / keys as f64;
    assert!((mean - 1.0).abs() < 0.01, "{mean}");
    assert!((variance / expected - 1.0).abs() < 0.3, "{variance}, not {expected}");
    assert_eq!(run(1, 1), whole[queries * 2..2 * queries * 2], "draws belong to places in the batch");
}
