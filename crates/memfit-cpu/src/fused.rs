//! Fused ops: which kernel runs each, what it costs, and how it takes f16 and bf16. No other file of this crate's tables names one.

use memfit_ir::Operand::{Dx, Dy, Dz, Filter, Kernel, X, Y};
use memfit_ir::{AddEpilogue, Conv2D, Fused, FusedUpdate, Graph, Node, Op, Operand, PooledConv2D};

use super::convolution::{self, pooled};
use super::cost::{self, Demand, Operation};
use super::operands::Operands;
use super::relu::relu_in_place;
use super::{add_epilogue, batch_norm, bits, conv2d, dense, fused_update, gemm, layer_norm, producer};

/// Operations that recomputing an element where it is read, with its way through the cache, is worth.
const FLOPS_MAKING: f64 = 20.0;

/// Runs the node of the operands, which is this op.
pub(crate) fn launch(operands: &Operands, fused: &Fused) {
    match fused {
        Fused::Plus(of) => {
            let written = match of {
                AddEpilogue::Dense => dense::forward(operands),
                AddEpilogue::DenseGradInput => dense::grad_input(operands),
                AddEpilogue::LayerNormGrad(norm, axes) => layer_norm::grad(operands, norm, *axes),
            };
            add_epilogue::add(operands, written);
        }
        Fused::Conv2DRelu(conv) => relu_in_place(operands.threads, conv2d::forward(operands, conv)),
        Fused::Conv2DGradKernelOf(producer, conv) => conv2d::grad_kernel_of(operands, producer, conv),
        Fused::Conv2DMaxPool(conv) => conv2d::max_pool(operands, conv),
        Fused::Conv2DMaxPoolGradKernel(conv) => conv2d::max_pool_grad_kernel(operands, conv),
        Fused::Conv2DMaxPoolGradInput(conv, _) => conv2d::max_pool_grad_input(operands, conv),
        Fused::Conv2DMaxPoolDense(conv) => conv2d::max_pool_dense(operands, conv),
        Fused::Conv2DMaxPoolDenseGrad(conv) => conv2d::max_pool_dense_grad(operands, conv),
        Fused::SignBitsOf(producer, below) => bits::sign_bits_of(operands, producer, *below),
        Fused::MaskBitsBiasGrad => dense::sum_masked_for_bias(operands, bits::mask_bits(operands)),
        Fused::MaskBitsOfSum => bits::mask_sum_into(operands, operands.output_floats(Dx)),
        Fused::BatchNormThen(norm, chain) => batch_norm::forward_then(operands, norm, chain),
        Fused::BatchNormReluGrad(norm, below) => batch_norm::relu_grad(operands, norm, *below),
        Fused::BatchNormGradOfSum(norm) => {
            let sum = operands.output_floats(Dz);
            bits::mask_sum_into(operands, sum);
            batch_norm::grad_of_sum(operands, norm, sum);
        }
        Fused::Applied(applied) => match pooled_gradient(applied) {
            Some(conv) => conv2d::max_pool_dense_apply(operands, conv, &applied.update),
            None => fused_update::launch(operands, applied),
        },
    }
}

/// The workspace of a node, which is this op, and its arithmetic. One whose kernel is that of a part asks for what that part does.
pub(crate) fn demand(of: &Operation<'_>, fused: &Fused, rows: usize) -> Demand {
    let threads = of.threads;
    match fused {
        Fused::Plus(term) => of.demand(&term.op(), rows),
        Fused::Conv2DRelu(conv) => of.demand(&Op::Conv2D(conv.clone()), rows),
        Fused::Conv2DGradKernelOf(producer, conv) => {
            let shape = conv2d::geometry(conv, of.shape(X), of.shape(Dy), rows);
            let own = producer::workspace(producer, of.shape(X));
            let demand =
                cost::convolution_of(&shape, own + convolution::grad_kernel_of_workspace(&shape, threads));
            let times = convolution::times_made(&shape) * of.shape(X).elements(rows);
            Demand { flops: demand.flops + FLOPS_MAKING * times as f64, ..demand }
        }
        Fused::Conv2DMaxPool(conv) => {
            let shape = conv2d::pooled_geometry(conv, of.shape(X), of.shape(Y).last(), rows);
            cost::convolution_of(&shape.conv, pooled::forward_workspace(&shape, threads))
        }
        Fused::Conv2DMaxPoolGradKernel(conv) => {
            let shape = conv2d::pooled_geometry(conv, of.shape(X), of.shape(Dy).last(), rows);
            let with_bias = of.node.updates.len() == 2;
            cost::convolution_of(&shape.conv, pooled::grad_kernel_workspace(&shape, with_bias, threads))
        }
        Fused::Conv2DMaxPoolGradInput(conv, _) => {
            let shape = conv2d::pooled_geometry(conv, of.shape(Dx), of.shape(Dy).last(), rows);
            cost::convolution_of(&shape.conv, pooled::grad_input_workspace(&shape, threads))
        }
        Fused::Conv2DMaxPoolDense(conv) => {
            let shapes = [X, Filter, Kernel].map(|operand| of.shape(operand));
            let shape = conv2d::pooled_dense_geometry(conv, shapes, rows);
            cost::pooled_dense_of(&shape, 1.0, pooled::dense::forward_workspace(&shape, threads))
        }
        Fused::Conv2DMaxPoolDenseGrad(conv) => pooled_dense_grad(of, conv, rows),
        Fused::SignBitsOf(producer, _) => {
            let flops = FLOPS_MAKING * of.shape(X).elements(rows) as f64 / 4.0;
            Demand { flops, ..cost::floats(producer::workspace(producer, of.shape(X))) }
        }
        Fused::MaskBitsBiasGrad => of.demand(&Op::BiasGrad, rows),
        Fused::MaskBitsOfSum => of.demand(&Op::MaskBits, rows),
        Fused::BatchNormThen(_, chain) => {
            let halves = of.is_half(X);
            cost::floats(batch_norm::then_workspace(of.shape(X), chain, halves, threads))
        }
        Fused::BatchNormReluGrad(..) => cost::mixed(batch_norm::grad_workspace(of.shape(Dy), true)),
        Fused::BatchNormGradOfSum(norm) => of.demand(&Op::BatchNormGrad(norm.clone()), rows),
        Fused::Applied(applied) => {
            if let Some(conv) = pooled_gradient(applied) {
                return pooled_dense_grad(of, conv, rows);
            }
            let product = fused_update::product([of.shape(X), of.shape(Dy)], rows);
            let workspace = fused_update::workspace(&product, threads);
            Demand { workspace: cost::floats(workspace).workspace, ..of.product(product) }
        }
    }
}

fn pooled_dense_grad(of: &Operation<'_>, conv: &PooledConv2D, rows: usize) -> Demand {
    let shapes = [X, Filter, Dy].map(|operand| of.shape(operand));
    let shape = conv2d::pooled_dense_geometry(conv, shapes, rows);
    cost::pooled_dense_of(&shape, 2.0, pooled::dense::grad_workspace(&shape, of.threads))
}

/// Whether the kernel of this op reads and writes f16 and bf16 itself, block by block.
pub(crate) fn has_half_types(fused: &Fused) -> bool {
    match fused {
        Fused::MaskBitsBiasGrad
        | Fused::MaskBitsOfSum
        | Fused::BatchNormThen(..)
        | Fused::BatchNormReluGrad(..)
        | Fused::BatchNormGradOfSum(_) => true,
        Fused::Plus(_)
        | Fused::Conv2DRelu(_)
        | Fused::Conv2DGradKernelOf(..)
        | Fused::Conv2DMaxPool(_)
        | Fused::Conv2DMaxPoolGradKernel(_)
        | Fused::Conv2DMaxPoolGradInput(..)
        | Fused::Conv2DMaxPoolDense(_)
        | Fused::Conv2DMaxPoolDenseGrad(_)
        | Fused::SignBitsOf(..)
        | Fused::Applied(_) => false,
    }
}

/// A convolution that goes over large images in bands, and a ReLU after it.
pub(crate) fn conv2d_relu(op: &Op) -> Option<&Conv2D> {
    if let Op::Fused(Fused::Conv2DRelu(conv)) = op { Some(conv) } else { None }
}

/// Whether a gradient that a node applies has the same bits as one that is made whole.
pub(crate) fn applies_exactly(graph: &Graph, node: &Node) -> bool {
    let Op::Fused(Fused::Applied(applied)) = &node.op else { return false };
    let shape = |operand: Operand| &graph.tensors[node.input(operand).0].shape;
    // After a pool, the whole gradient is computed block by block as well.
    pooled_gradient(applied).is_some() || gemm::is_by_rows(fused_update::product([shape(X), shape(Dy)], 1).m)
}

/// The convolution and its pool, where an update is fused with the gradient of a dense layer over them.
fn pooled_gradient(applied: &FusedUpdate) -> Option<&PooledConv2D> {
    if let Op::Fused(Fused::Conv2DMaxPoolDenseGrad(conv)) = &*applied.gradient { Some(conv) } else { None }
}
