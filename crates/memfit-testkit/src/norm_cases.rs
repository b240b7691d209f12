//! Rows of the op table for normalisations, alone and with what runs in the same node.

use memfit_ir::{Binary, Chain, Conv2D, Norm, Op, Pads, Pool2D, TensorId, Unary};

use crate::op_cases::{Add, Builder};

pub(crate) fn add(add: Add<'_>) {
    for (scale, center) in [(true, true), (true, false), (false, true), (false, false)] {
        let norm = Norm { epsilon: 1e-3, scale, center };
        let tail = format!("scale {scale} center {center}");
        add(&format!("batch_norm {tail}"), &{
            let norm = norm.clone();
            move |b: &mut Builder| {
                let x = b.input([3, 2, 4]);
                let operands = b.norm_operands(x, &norm, &[4]);
                b.batch_norm(&norm, operands)
            }
        });
        add(&format!("batch_norm_inference {tail}"), &{
            let norm = norm.clone();
            move |b: &mut Builder| {
                let x = b.input([3, 4]);
                // Only a frozen layer normalises by its moving statistics while the rest trains.
                let mut operands = vec![x];
                operands.extend(norm.scale.then(|| b.fixed("gamma", &[4])));
                operands.extend(norm.center.then(|| b.fixed("beta", &[4])));
                operands.push(b.fixed("moving_mean", &[4]));
                operands.push(b.fixed("moving_variance", &[4]));
                b.op(Op::BatchNormInference(norm.clone()), &operands)
            }
        });
        for (axes, dims) in [(1, &[4][..]), (2, &[2, 4][..])] {
            let norm = norm.clone();
            add(&format!("layer_norm over {axes} {tail}"), &move |b| {
                let x = b.input([3, 2, 4]);
                let operands = b.norm_operands(x, &norm, dims);
                b.op(Op::LayerNorm(norm.clone(), axes), &operands)
            });
        }
    }
    for (name, function) in [("relu", Unary::Relu), ("bounded relu", BOUNDED)] {
        for (scale, center, channels) in
            [(true, true, 8), (false, true, 5), (true, false, 7), (false, false, 3)]
        {
            let norm = Norm { epsilon: 1e-3, scale, center };
            add(&format!("batch_norm and {name}, scale {scale} center {center}"), &move |b| {
                let x = b.input([3, 2, 4]);
                let normal = normalised(b, &norm, x, channels);
                b.op(Op::Elementwise(Chain::unary(function)), &[normal])
            });
        }
    }
    for (channels, normalises) in [(4, true), (5, true), (4, false), (5, false)] {
        let norm = Norm { epsilon: 1e-3, scale: true, center: true };
        let kind = if normalises { "normalised " } else { "" };
        add(&format!("two {kind}blocks with shortcuts of {channels}"), &move |b| {
            let mut x = b.input([3, 2, channels]);
            for _ in 0..2 {
                // A convolution: what is added to a dense product is added inside it.
                let pads = Pads::default();
                let conv = Conv2D { kernel: [1, 1], strides: [1, 1], dilation: [1, 1], groups: 1, pads };
                let mut made = b.conv(x, conv, channels);
                if normalises {
                    let operands = b.norm_operands(made, &norm, &[channels]);
                    made = b.batch_norm(&norm, operands);
                }
                let sum = b.op(Op::Elementwise(Chain::binary(Binary::Add)), &[made, x]);
                x = b.op(Op::Elementwise(Chain::unary(Unary::Relu)), &[sum]);
            }
            b.dense(x, 2, true)
        });
    }
    for (window, stride, pad) in [(3, 2, 1), (2, 2, 1), (3, 1, 2)] {
        let norm = Norm { epsilon: 1e-3, scale: true, center: true };
        let pads = Pads { top: pad, bottom: pad, left: pad, right: 0 };
        let pool = Pool2D { window: [window; 2], strides: [stride; 2], pads: Pads::default() };
        add(&format!("batch_norm, relu, margins and max_pool2d of {window} by {stride}"), &move |b| {
            let x = b.input([5, 6, 3]);
            let normal = normalised(b, &norm, x, 4);
            let relu = b.op(Op::Elementwise(Chain::unary(Unary::Relu)), &[normal]);
            let padded = b.op(Op::Pad2D(pads), &[relu]);
            b.op(Op::MaxPool2D(pool.clone()), &[padded])
        });
    }
}

/// A ReLU with a max value that many values reach.
const BOUNDED: Unary = Unary::ReluGeneral { negative_slope: 0.0, max_value: 0.5, threshold: 0.0 };

/// A dense layer, whose bias learns nothing, and its normalisation.
fn normalised(b: &mut Builder, norm: &Norm, x: TensorId, channels: usize) -> TensorId {
    let dense = b.dense(x, channels, true);
    let operands = b.norm_operands(dense, norm, &[channels]);
    b.batch_norm(norm, operands)
}
