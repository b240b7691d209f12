//! A dense layer that takes the pool before it inside, as the layers apart: a GPU has its own kernels for
//! these, and is not given the joined op by the training graph.

use memfit_ir::Operand::{Argmax, Kernel};
use memfit_ir::{DType, Fused, Op, PooledConv2D, Shape, Tensor};

use super::composed::{Parts, composed};
use crate::call::Call;
use crate::work::Lowered;

/// What the pool gives, and the same as a row of floats.
fn between(call: &Call<'_>, argmax: &Tensor) -> [Tensor; 2] {
    let image = Tensor { dtype: DType::F32, ..argmax.clone() };
    let floats = image.shape.elements_per_row();
    let row = Tensor { shape: Shape::rows([floats]), ..image.clone() };
    debug_assert_eq!(call.input(Kernel).dims()[0], floats, "the shape rules ask for a kernel over these");
    [image, row]
}

/// The product of a dense layer with what a convolution and its pool give.
pub(super) fn forward(call: &Call<'_>, conv: &PooledConv2D) -> Lowered {
    let [image, row] = between(call, call.output(Argmax).tensor);
    let (given, flat) = (7, 8);
    let nodes = vec![
        (Op::Fused(Fused::Conv2DMaxPool(conv.clone())), [vec![0, 1, 2], vec![given, 6], vec![]]),
        (Op::Dense, [vec![flat, 3, 4], vec![5], vec![]]),
    ];
    composed(call, Parts { made: vec![(image, 0), (row, 0)], nodes })
}

/// The gradients of the kernel, the filter and its bias: the pool's output is recomputed, and its gradient
/// overwrites it.
pub(super) fn grad(call: &Call<'_>, conv: &PooledConv2D) -> Lowered {
    let argmax = call.input(Argmax).tensor;
    let [image, row] = between(call, argmax);
    let (dkernel, dfilter, dbias) = (6, 7, 8);
    let (given, flat, again) = (9, 10, 11);
    let nodes = vec![
        (Op::Fused(Fused::Conv2DMaxPool(conv.clone())), [vec![0, 1, 2], vec![given, again], vec![]]),
        (Op::DenseGradKernel, [vec![flat, 5], vec![], vec![dkernel]]),
        (Op::DenseGradInput, [vec![5, 3], vec![flat], vec![]]),
        (
            Op::Fused(Fused::Conv2DMaxPoolGradKernel(conv.clone())),
            [vec![0, given, 4], vec![], vec![dfilter, dbias]],
        ),
    ];
    composed(call, Parts { made: vec![(image, 0), (row, 0), (argmax.clone(), 2)], nodes })
}
