//! Products against plain loops in double precision.

use super::*;
use crate::lanes::Level;

/// Values in -1..1 that repeat on every run.
pub(crate) fn noise(length: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12_345);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..length).map(|_| next()).collect()
}

/// Whether values differ from a reference by no more than rounding `terms` terms allows.
pub(crate) fn assert_close(values: &[f32], reference: &[f64], terms: usize, what: &str) {
    let tolerance = 1e-6 * (terms as f64).sqrt().max(1.0) * 4.0;
    for (index, (&value, &reference)) in values.iter().zip(reference).enumerate() {
        let error = (f64::from(value) - reference).abs();
        assert!(
            error <= tolerance * (1.0 + reference.abs()),
            "{what}: [{index}] is {value}, not {reference}"
        );
    }
}

fn reference(
    shape: &Gemm,
    a: &[f32],
    b: &[f32],
    bias: Option<&[f32]>,
    c: &[f32],
    accumulate: bool,
) -> Vec<f64> {
    let Gemm { m, n, k, .. } = *shape;
    let a = |i: usize, p: usize| f64::from(if shape.transpose_a { a[p * m + i] } else { a[i * k + p] });
    let b = |p: usize, j: usize| f64::from(if shape.transpose_b { b[j * k + p] } else { b[p * n + j] });
    let entry = |i: usize, j: usize| {
        let before = if accumulate { f64::from(c[i * n + j]) } else { 0.0 };
        let bias = bias.map_or(0.0, |bias| f64::from(bias[j]));
        before + bias + (0..k).map(|p| a(i, p) * b(p, j)).sum::<f64>()
    };
    (0..m * n).map(|at| entry(at / n, at % n)).collect()
}

fn check(threads: &[Threads], m: usize, n: usize, k: usize) {
    let (a, b, bias) = (noise(m * k, 1), noise(k * n, 2), noise(n, 3));
    for variant in 0..16 {
        let bit = |i: usize| variant >> i & 1 == 1;
        let shape = Gemm { m, n, k, transpose_a: bit(0), transpose_b: bit(1) };
        let (bias, accumulate) = (bit(2).then_some(&bias[..]), bit(3));
        let before = noise(m * n, 4);
        let reference = reference(&shape, &a, &b, bias, &before, accumulate);
        let results = threads.iter().map(|threads| {
            let mut c = before.clone();
            let mut workspace = vec![f32::NAN; workspace(&shape, threads.count())];
            gemm(threads, &shape, &a, &b, bias, &mut c, accumulate, &mut workspace);
            c
        });
        let results: Vec<_> = results.collect();
        assert_close(&results[0], &reference, k, &format!("{shape:?}"));
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert!(
            results.iter().all(|c| bits(c) == bits(&results[0])),
            "{shape:?}: bits depend on the threads"
        );
    }
}

/// Rows, columns and depth.
pub(crate) const SIZES: &[[usize; 3]] = &[
    [1, 1, 1],
    [1, 1, 0],
    [0, 20, 3000],
    [3, 0, 5],
    [3, 1, 5000],
    [3, 5, 0],
    [1, 33, 7],
    [7, 1, 300],
    [12, 32, 256],
    [13, 31, 257],
    [25, 16, 17],
    [6, 17, 64],
    [100, 90, 80],
    [250, 40, 30],
    [9, 700, 20],
    [5, 10, 3000],
    [20, 11, 5000],
    [33, 11, 5000],
    [11, 30, 1500],
    [8, 600, 9],
    [14, 500, 10],
    [31, 200, 32],
    [131, 197, 531],
    [300, 130, 260],
    [500, 10, 4],
    [4500, 10, 4],
    [4097, 3, 16],
    [4101, 24, 1],
];

#[test]
fn products_equal_plain_loops_on_every_level_with_any_number_of_threads() {
    for level in Level::available() {
        let threads = [1, 2, 5].map(|count| Threads::at(count, level).unwrap());
        SIZES.iter().for_each(|&[m, n, k]| check(&threads, m, n, k));
    }
}

#[test]
fn a_result_that_is_written_past_the_caches_is_the_same() {
    // The columns are no multiple of a vector, so that some rows begin beside the lines that such writes ask
    // for.
    let (m, k) = (3, 2);
    let shape = Gemm {
        m,
        n: few_rows::STREAMED / size_of::<f32>() / m + 5,
        k,
        transpose_a: false,
        transpose_b: true,
    };
    let (a, b) = (noise(m * k, 1), noise(k * shape.n, 2));
    let reference = reference(&shape, &a, &b, None, &[], false);
    for level in Level::available() {
        let threads = Threads::at(2, level).unwrap();
        let mut c = vec![f32::NAN; m * shape.n];
        let mut workspace = vec![f32::NAN; workspace(&shape, 2)];
        gemm(&threads, &shape, &a, &b, None, &mut c, false, &mut workspace);
        assert_close(&c, &reference, k, level.name());
    }
}

#[test]
fn a_large_result_of_several_threads_has_the_bits_of_one() {
    // 80 columns are whole lines; of 72 some rows begin beside one.
    for n in [80, 72] {
        let (k, m) = (5, driver::STREAMED / size_of::<f32>() / n + 7);
        let shape = Gemm { m, n, k, transpose_a: false, transpose_b: false };
        let (a, b, bias) = (noise(m * k, 1), noise(k * n, 2), noise(n, 3));
        for level in Level::available() {
            let [one, two] = [1, 2].map(|count| {
                let mut c = vec![f32::NAN; m * n];
                let mut workspace = vec![f32::NAN; workspace(&shape, count)];
                let threads = Threads::at(count, level).unwrap();
                gemm(&threads, &shape, &a, &b, Some(&bias), &mut c, false, &mut workspace);
                c.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            });
            assert!(one == two, "{n} columns, {}", level.name());
        }
    }
}

#[test]
fn a_right_operand_gives_the_same_bits_wherever_it_lies() {
    // At the beginning of a cache line it need not be packed for so few rows.
    for [m, n, k] in [[40, 96, 300], [96, 48, 1000], [7, 160, 20]] {
        let shape = Gemm { m, n, k, transpose_a: false, transpose_b: false };
        let (a, b) = (noise(m * k, 1), noise(k * n, 2));
        for level in Level::available() {
            let threads = Threads::at(2, level).unwrap();
            let [aligned, beside] = [0, 1].map(|place| {
                let mut room = vec![0.0; k * n + 2 * driver::LINE];
                let b_there = &mut driver::aligned(&mut room)[place..place + k * n];
                b_there.copy_from_slice(&b);
                let (mut c, mut workspace) = (vec![f32::NAN; m * n], vec![f32::NAN; workspace(&shape, 2)]);
                gemm(&threads, &shape, &a, b_there, None, &mut c, false, &mut workspace);
                c.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            });
            assert!(aligned == beside, "{shape:?}, {}", level.name());
        }
    }
}

#[test]
fn a_smaller_product_wants_no_more_workspace() {
    let sizes = [1, 2, 8, 9, 100, 1000, 2047, 2048, 10_000, 1_000_000];
    for n in [1, 10, 33, 513, 5000] {
        for pair in sizes.windows(2) {
            for other in sizes {
                let of = |m, k| {
                    let plain = Gemm { m, n, k, transpose_a: false, transpose_b: false };
                    let shapes =
                        [plain, Gemm { transpose_a: true, ..plain }, Gemm { transpose_b: true, ..plain }];
                    shapes.map(|shape| workspace(&shape, 2))
                };
                assert!(of(pair[0], other).iter().zip(of(pair[1], other)).all(|(less, more)| *less <= more));
                assert!(of(other, pair[0]).iter().zip(of(other, pair[1])).all(|(less, more)| *less <= more));
            }
        }
    }
}
