//! f16 and bf16: every kernel gives what it gives in single precision, rounded once.

use memfit_ir::{
    Binary, Chain, Conv2D, DType, Interpolation, Link, Loss, LossKind, Metric, Norm, Op, Pads, Pool2D,
    RowValue, Shape, Unary,
};

use super::{Case, Values, noise};
use crate::Half;

/// An operand: values that are f16 or bf16 in one run and the same numbers in single precision in the other,
/// or a weight.
enum Operand {
    Value(Shape),
    Weight(Shape, Values),
}

fn value(dims: impl Into<Vec<usize>>) -> Operand {
    Operand::Value(Shape::rows(dims))
}

fn weight(dims: impl Into<Vec<usize>>) -> Operand {
    let shape = Shape::fixed(dims);
    let values = noise(shape.elements_per_row(), 99);
    Operand::Weight(shape, values.into())
}

fn rounded(half: Half, values: &[f32]) -> Vec<u16> {
    let mut bits = vec![0; values.len()];
    half.narrow(values, &mut bits);
    bits
}

/// Runs an op both ways. Outputs are the same bits once rounded; sums may be taken in another order.
fn check(op: Op, rows: usize, inputs: &[Operand], updates: &[Shape]) {
    for dtype in [DType::F16, DType::BF16] {
        let half = Half::of(dtype).unwrap();
        let (mut single, mut halved) = (Case::new(op.clone(), rows), Case::new(op.clone(), rows));
        for (index, input) in inputs.iter().enumerate() {
            match input {
                Operand::Value(shape) => {
                    let bits = rounded(half, &noise(shape.elements(rows), index as u64 + 1));
                    let mut wide = vec![0.0; bits.len()];
                    half.widen(&bits, &mut wide);
                    single = single.input(shape.clone(), wide);
                    halved = halved.input(shape.clone(), Values::Half(dtype, bits));
                }
                Operand::Weight(shape, values) => {
                    single = single.input(shape.clone(), values.clone());
                    halved = halved.input(shape.clone(), values.clone());
                }
            }
        }
        for shape in updates {
            let values = noise(shape.elements_per_row(), 7);
            (single, halved) =
                (single.update(shape.clone(), values.clone()), halved.update(shape.clone(), values));
        }
        let (single, halved) = (single.run(), halved.run());
        for (index, (single, halved)) in single.outputs.iter().zip(&halved.outputs).enumerate() {
            let wanted = match (single, halved) {
                (Values::F32(values), Values::Half(..)) => Values::Half(dtype, rounded(half, values)),
                (single, _) => single.clone(),
            };
            assert!(wanted == *halved, "{dtype} {}: output {index} is not the rounded one", op.name());
        }
        for (single, halved) in single.updates.iter().zip(&halved.updates) {
            let max = single.floats().iter().fold(1.0f32, |most, value| most.max(value.abs()));
            for (single, halved) in single.floats().iter().zip(halved.floats()) {
                let near = (single - halved).abs() <= 1e-5 * max;
                assert!(near, "{dtype} {}: {halved}, not {single}", op.name());
            }
        }
    }
}

#[test]
fn products_and_sums_round_once() {
    check(Op::Dense, 3, &[value([7]), weight([7, 5]), weight([5])], &[]);
    check(Op::DenseGradInput, 3, &[value([5]), weight([7, 5])], &[]);
    check(Op::DenseGradKernel, 3, &[value([7]), value([5])], &[Shape::fixed([7, 5])]);
    check(Op::BiasGrad, 3, &[value([5])], &[Shape::fixed([5])]);
    let pads = Pads { top: 1, bottom: 1, left: 1, right: 1 };
    let conv = Conv2D { kernel: [3, 3], strides: [1, 1], dilation: [1, 1], groups: 1, pads };
    check(Op::Conv2D(conv.clone()), 2, &[value([5, 6, 3]), weight([3, 3, 3, 4]), weight([4])], &[]);
    check(Op::Conv2DGradInput(conv.clone(), [5, 6]), 2, &[value([5, 6, 4]), weight([3, 3, 3, 4])], &[]);
    let kernel = Shape::fixed([3, 3, 3, 4]);
    check(Op::Conv2DGradKernel(conv), 2, &[value([5, 6, 3]), value([5, 6, 4])], &[kernel]);
}

#[test]
fn elementwise_work_rounds_once_at_the_end_of_its_chain() {
    let links = vec![
        Link::Unary(Unary::Silu, 0),
        Link::Binary(Binary::Multiply, 2, 1),
        Link::Unary(Unary::Tanh, 3),
        Link::Binary(Binary::Add, 4, 0),
    ];
    check(Op::Elementwise(Chain { inputs: 2, links }), 3, &[value([700]), value([700])], &[]);
    check(Op::Elementwise(Chain::fold(Binary::Add, 6)), 2, &[0; 6].map(|_| value([9])), &[]);
    check(Op::Dropout { rate: 0.3, seed: 4 }, 3, &[value([700])], &[]);
    check(Op::SignBits { below: f32::INFINITY }, 3, &[value([701])], &[]);
    let bits = Operand::Weight(Shape::rows([88]), vec![0b1010_0110u8; 3 * 88].into());
    check(Op::MaskBits, 3, &[value([701]), bits], &[]);
    check(Op::Softmax, 3, &[value([11])], &[]);
    check(Op::SoftmaxGrad, 3, &[value([11]), value([11])], &[]);
}

#[test]
fn normalisation_pools_and_moves_round_once() {
    let norm = Norm { epsilon: 1e-3, scale: true, center: true };
    let variance = || Operand::Weight(Shape::fixed([4]), vec![0.5, 1.0, 1.5, 2.0f32].into());
    check(Op::BatchNormStatistics, 3, &[value([5, 4])], &[]);
    check(
        Op::BatchNorm(norm.clone()),
        3,
        &[value([5, 4]), weight([4]), weight([4]), weight([4]), variance()],
        &[],
    );
    let gradients = [Shape::fixed([4]), Shape::fixed([4])];
    let operands = [value([300, 4]), value([300, 4]), weight([4]), variance(), weight([4])];
    check(Op::BatchNormGrad(norm.clone()), 3, &operands, &gradients);
    check(Op::LayerNorm(norm, 1), 3, &[value([5, 4]), weight([4]), weight([4])], &[]);
    let pool = Pool2D { window: [2, 2], strides: [2, 2], pads: Pads::default() };
    check(Op::MaxPool2D(pool.clone()), 3, &[value([4, 6, 3])], &[]);
    check(Op::AveragePool2D(pool), 3, &[value([4, 6, 3])], &[]);
    check(Op::GlobalMaxPool2D, 3, &[value([4, 6, 3])], &[]);
    check(Op::UpSample2D([2, 2], Interpolation::Bilinear), 2, &[value([3, 3, 2])], &[]);
    let pads = Pads { top: 1, bottom: 0, left: 2, right: 1 };
    check(Op::Pad2D(pads), 2, &[value([3, 3, 2])], &[]);
    check(Op::Crop2D(pads), 2, &[value([3, 4, 2])], &[]);
    check(Op::Concat(1), 2, &[value([3, 3]), value([3, 1])], &[]);
    check(Op::Slice { axis: 0, start: 1, length: 2 }, 2, &[value([4, 3])], &[]);
    check(Op::Broadcast(vec![3, 4]), 2, &[value([1, 4])], &[]);
    check(Op::SumTo(vec![1, 4]), 2, &[value([3, 4])], &[]);
    check(Op::Cast(DType::F32), 3, &[value([1000])], &[]);
}

#[test]
fn more_rows_than_are_widened_at_once_give_the_same() {
    check(Op::Softmax, 5, &[value([3, 100_000])], &[]);
    let targets = Operand::Weight(Shape::rows([400_000]), noise(5 * 400_000, 3).into());
    let loss = Loss { kind: LossKind::MeanSquaredError, weight: 1.0 };
    check(Op::Loss(loss), 5, &[value([400_000]), targets], &[Shape::fixed([1])]);
    let targets = Operand::Weight(Shape::rows([400_000]), noise(5 * 400_000, 3).into());
    let metric = Metric::Mean(RowValue::Loss(LossKind::MeanSquaredError));
    check(Op::Metric(metric), 5, &[value([400_000]), targets], &[Shape::fixed([2])]);
    check(Op::BiasGrad, 5, &[value([300_000, 2])], &[Shape::fixed([2])]);
}

#[test]
fn large_images_go_in_bands_and_give_the_same() {
    let plain =
        Conv2D { kernel: [3, 3], strides: [1, 1], dilation: [1, 1], groups: 1, pads: Pads::default() };
    let around = Pads { top: 1, bottom: 1, left: 1, right: 1 };
    let depthwise = Conv2D { groups: 16, pads: around, ..plain.clone() };
    for (conv, output, deep) in [
        (plain.clone(), [101, 126], 16),
        (Conv2D { pads: around, ..plain.clone() }, [103, 128], 16),
        (Conv2D { kernel: [5, 5], pads: around, ..plain.clone() }, [101, 126], 16),
        (Conv2D { strides: [2, 2], pads: around, ..plain.clone() }, [52, 64], 16),
        (Conv2D { kernel: [5, 1], strides: [3, 1], pads: around, ..plain.clone() }, [34, 130], 16),
        (Conv2D { dilation: [4, 2], ..plain.clone() }, [95, 124], 16),
        (Conv2D { kernel: [1, 1], ..plain }, [103, 128], 16),
        (depthwise, [103, 128], 1),
    ] {
        let [height, width] = output;
        let filters = if deep == 1 { 16 } else { 20 };
        let kernel = [conv.kernel[0], conv.kernel[1], deep, filters];
        let (x, y) = ([103, 128, 16], [height, width, filters]);
        check(Op::Conv2D(conv.clone()), 2, &[value(x), weight(kernel), weight([filters])], &[]);
        check(Op::Conv2DGradInput(conv.clone(), [103, 128]), 2, &[value(y), weight(kernel)], &[]);
        check(Op::Conv2DGradKernel(conv), 2, &[value(x), value(y)], &[Shape::fixed(kernel)]);
    }
    let pads = Pads { top: 1, bottom: 0, left: 0, right: 1 };
    for (pool, output) in [
        (Pool2D { window: [2, 2], strides: [2, 2], pads: Pads::default() }, [51, 64]),
        (Pool2D { window: [3, 3], strides: [2, 2], pads }, [51, 64]),
        (Pool2D { window: [7, 2], strides: [7, 2], pads: Pads::default() }, [14, 64]),
    ] {
        let x = [103, 128, 32];
        let y = [output[0], output[1], 32];
        let (size, count) = ([x[0], x[1]], 2 * y.iter().product::<usize>());
        check(Op::MaxPool2D(pool.clone()), 2, &[value(x)], &[]);
        check(Op::AveragePool2D(pool.clone()), 2, &[value(x)], &[]);
        let places = (pool.window[0] * pool.window[1]) as u64;
        let argmax = (0..count as u64).map(|i| (i * 7919 % places) as u8).collect::<Vec<u8>>();
        let argmax = Operand::Weight(Shape::rows(y), argmax.into());
        check(Op::MaxPool2DGrad(pool.clone(), size), 2, &[value(y), argmax], &[]);
        check(Op::AveragePool2DGrad(pool, size), 2, &[value(y)], &[]);
    }
}

#[test]
fn a_scaled_loss_scales_its_gradients_and_an_update_unscales_them() {
    let loss = Op::Loss(Loss { kind: LossKind::MeanSquaredError, weight: 1.0 });
    let run = |scale: f32| {
        Case::new(loss.clone(), 2)
            .input(Shape::rows([3]), noise(6, 1))
            .input(Shape::rows([3]), noise(6, 2))
            .update(Shape::fixed([1]), vec![0.0f32])
            .context(|context| context.loss_scale = scale)
            .run()
    };
    let (plain, scaled) = (run(1.0), run(1024.0));
    assert_eq!(plain.updated(0), scaled.updated(0));
    let expected: Vec<f32> = plain.floats(0).iter().map(|dy| dy * 1024.0).collect();
    assert_eq!(scaled.floats(0), expected);
}
