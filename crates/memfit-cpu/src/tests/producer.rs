//! Values that are recomputed in their consumers: the bits are those of values that are stored and then read.

use memfit_ir::{Conv2D, Fused, Norm, Op, Pads, Producer, Shape, Unary};

use super::{Case, noise, positive_noise};

/// Every kind of producer.
fn producers() -> Vec<Producer> {
    let norm = |scale: bool, center: bool| Some(Norm { epsilon: 1e-3, scale, center });
    let capped = Unary::ReluGeneral { negative_slope: 0.0, max_value: 1.5, threshold: 0.0 };
    vec![
        Producer { norm: norm(true, true), function: None },
        Producer { norm: norm(true, true), function: Some(Unary::Relu) },
        Producer { norm: norm(false, true), function: Some(capped) },
        Producer { norm: norm(true, false), function: Some(Unary::Gelu) },
        Producer { norm: None, function: Some(Unary::Silu) },
    ]
}

/// What a producer reads, for values of a shape.
fn given(producer: &Producer, shape: &Shape, rows: usize) -> Vec<(Shape, Vec<f32>)> {
    let channels = shape.last();
    let mut all = vec![(shape.clone(), noise(shape.elements(rows), 1))];
    if let Some(norm) = &producer.norm {
        let present = [norm.scale, norm.center, true];
        let weights = present.into_iter().enumerate().filter(|(_, present)| *present);
        all.extend(weights.map(|(at, _)| (Shape::fixed([channels]), noise(channels, 2 + at as u64))));
        all.push((Shape::fixed([channels]), positive_noise(channels, 9)));
    }
    all
}

fn with(case: Case, inputs: &[(Shape, Vec<f32>)]) -> Case {
    inputs.iter().fold(case, |case, (shape, values)| case.input(shape.clone(), values.clone()))
}

fn check_grad_kernel(producer: &Producer, conv: Conv2D, [input, output]: [[usize; 3]; 2], rows: usize) {
    let (images, outputs) = (Shape::rows(input), Shape::rows(output));
    let inputs = given(producer, &images, rows);
    let made = with(Case::new(producer.op().unwrap(), rows), &inputs).run();
    let filters = Shape::fixed([conv.kernel[0], conv.kernel[1], input[2] / conv.groups, output[2]]);
    let (dy, before) = (noise(outputs.elements(rows), 5), noise(filters.elements(rows), 6));
    let stored = Case::new(Op::Conv2DGradKernel(conv.clone()), rows)
        .input(images, made.floats(0))
        .input(outputs.clone(), dy.clone())
        .update(filters.clone(), before.clone());
    let of =
        with(Case::new(Op::Fused(Fused::Conv2DGradKernelOf(producer.clone(), conv.clone())), rows), &inputs)
            .input(outputs, dy)
            .update(filters, before);
    assert_eq!(of.run().bits(), stored.run().bits(), "{conv:?} of {producer:?}");
    assert_eq!(
        of.run_overwriting().bits(),
        stored.run_overwriting().bits(),
        "{conv:?} of {producer:?}, overwrite"
    );
}

#[test]
fn a_kernel_gradient_has_the_bits_of_images_that_are_stored() {
    let conv = |kernel: usize, strides: usize, dilation: usize, groups: usize, pad: usize| Conv2D {
        kernel: [kernel, kernel],
        strides: [strides, strides],
        dilation: [dilation, dilation],
        groups,
        pads: Pads { top: pad, bottom: pad, left: pad, right: pad },
    };
    for producer in producers() {
        // Matrices, pixels between strides, windows of many shapes, and groups.
        check_grad_kernel(&producer, conv(1, 1, 1, 1, 0), [[9, 7, 70], [9, 7, 90]], 3);
        check_grad_kernel(&producer, conv(1, 2, 1, 1, 0), [[9, 7, 20], [5, 4, 6]], 3);
        check_grad_kernel(&producer, conv(3, 1, 1, 1, 1), [[9, 30, 5], [9, 30, 6]], 3);
        check_grad_kernel(&producer, conv(3, 2, 1, 2, 1), [[9, 7, 6], [5, 4, 4]], 2);
        check_grad_kernel(&producer, conv(3, 1, 2, 1, 2), [[9, 7, 6], [9, 7, 4]], 2);
        // Channels by themselves.
        check_grad_kernel(&producer, conv(3, 1, 1, 19, 1), [[9, 7, 19], [9, 7, 19]], 3);
        check_grad_kernel(&producer, conv(3, 2, 1, 8, 1), [[9, 7, 8], [5, 4, 8]], 3);
        check_grad_kernel(&producer, conv(5, 1, 2, 8, 4), [[9, 7, 8], [9, 7, 8]], 2);
        // Winograd.
        check_grad_kernel(&producer, conv(3, 1, 1, 1, 1), [[5, 14, 100], [5, 14, 70]], 4);
        check_grad_kernel(&producer, conv(5, 1, 1, 1, 0), [[10, 20, 17], [6, 16, 18]], 3);
    }
}

#[test]
fn sign_bits_are_those_of_values_that_are_stored() {
    for producer in producers() {
        for (dims, rows) in [([1, 1, 701], 3), ([5, 7, 3], 2), ([40, 20, 24], 2)] {
            let shape = Shape::rows(dims);
            let inputs = given(&producer, &shape, rows);
            let made = with(Case::new(producer.op().unwrap(), rows), &inputs).run();
            let stored = Case::new(Op::SignBits { below: 1.5 }, rows).input(shape, made.floats(0));
            let of = with(Case::new(Op::Fused(Fused::SignBitsOf(producer.clone(), 1.5)), rows), &inputs);
            assert_eq!(of.run().bits(), stored.run().bits(), "{dims:?} of {producer:?}");
        }
    }
}
