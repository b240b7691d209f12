//! What a node costs on this CPU: the workspace its kernel asks for, and its time, roughly.

use memfit_device::workspace::line_above;
use memfit_ir::Operand::{A, B, DScale, Dx, Dy, K, Kernel, Prediction, Q, V, Weight, X, Y};
use memfit_ir::{ALIGNMENT, Bytes, Conv3D, Cost, Graph, LOW_WORKSPACE, Node, Op, Operand, Shape, Tensor};

use super::bands::Bands;
use super::convolution::pooled::dense::PooledDense;
use super::convolution::{self, Convolution};
use super::gemm::{self, Gemm};
use super::half::Half;
use super::{
    activity, affine, attention, batch_norm, conv2d, conv3d, dense, elementwise, fused, layer_norm, loss,
    mask, matmul, metric, optimizer, recurrent, widen,
};

/// Rough figures of one thread, and of the memory that all share: plans need ratios between nodes, not truth.
const FLOPS_PER_NANO: f64 = 30.0;
const BYTES_PER_NANO: f64 = 8.0;
const LAUNCH_NANOS: f64 = 2000.0;

/// A batch of ordinary size: workspace is bounded most tightly there.
const ROWS_ORDINARY: usize = 256;
/// More rows than any batch has.
const ROWS_MOST: usize = 1 << 22;

/// What a node costs with `threads` threads. The time is an estimate: arithmetic at a rate for each thread,
/// bytes at a rate for all threads together, and a constant for the launch.
pub(crate) fn cost(graph: &Graph, node: &Node, threads: usize) -> Cost {
    let operation = Operation { graph, node, threads };
    let nanos = |rows: usize| {
        operation.demand(&node.op, rows).flops / (FLOPS_PER_NANO * threads as f64)
            + operation.bytes(rows) / BYTES_PER_NANO
    };
    let (workspace_fixed, workspace_per_row) =
        line_above(|rows| operation.workspace(rows).0, ROWS_ORDINARY, ROWS_MOST);
    Cost {
        workspace_fixed: Bytes(workspace_fixed),
        workspace_per_row: Bytes(workspace_per_row),
        nanos_fixed: LAUNCH_NANOS + nanos(0),
        nanos_per_row: nanos(1) - nanos(0),
        measured: None,
        leaner: [None; LOW_WORKSPACE],
    }
}

/// A node and where it runs.
pub(crate) struct Operation<'a> {
    graph: &'a Graph,
    pub(crate) node: &'a Node,
    pub(crate) threads: usize,
}

impl Operation<'_> {
    /// The workspace of a launch: the kernel's, and that of f16 and bf16 operands that it reads or writes in
    /// single precision.
    fn workspace(&self, rows: usize) -> Bytes {
        match widen::Widening::of(self.graph, self.node) {
            None => self.demand(&self.node.op, rows).workspace,
            Some(_) if let Some(bands) = Bands::of(self.graph, self.node) => {
                self.demand(&self.node.op, rows.min(1)).workspace.align_up(ALIGNMENT) + bands.bytes()
            }
            Some(widening) => {
                let rows = widening.rows_at_once(rows);
                self.demand(&self.node.op, rows).workspace.align_up(ALIGNMENT) + widening.bytes(rows)
            }
        }
    }

    /// The workspace that the kernel of the node's op, or of a part of it, needs for `rows` rows, and its arithmetic where that
    /// outweighs the bytes.
    pub(crate) fn demand(&self, op: &Op, rows: usize) -> Demand {
        let threads = self.threads;
        match op {
            Op::Fused(of) => fused::demand(self, of, rows),
            Op::Dense => self.product(dense::forward_product(self.shape(X), self.shape(Kernel), rows)),
            Op::DenseGradInput => {
                self.product(dense::grad_input_product(self.shape(Dy), self.shape(Kernel), rows))
            }
            Op::DenseGradKernel => {
                self.product(dense::grad_kernel_product(self.shape(X), self.shape(Dy), rows))
            }
            Op::MatMul(product) => {
                let (flops, workspace) =
                    matmul::demand(*product, [self.shape(A), self.shape(B)], rows, threads);
                Demand { flops, ..floats(workspace) }
            }
            Op::Conv2D(conv) => {
                let shape = conv2d::geometry(conv, self.shape(X), self.shape(Y), rows);
                convolution_of(&shape, convolution::forward_workspace(&shape, threads))
            }
            Op::Conv2DGradInput(conv, _) => {
                let shape = conv2d::geometry(conv, self.shape(Dx), self.shape(Dy), rows);
                convolution_of(&shape, convolution::grad_input_workspace(&shape, threads))
            }
            Op::Conv2DGradKernel(conv) => {
                let shape = conv2d::geometry(conv, self.shape(X), self.shape(Dy), rows);
                convolution_of(&shape, convolution::grad_kernel_workspace(&shape, threads))
            }
            Op::Conv3D(conv) => self.volume(conv, [self.shape(X), self.shape(Y)], rows),
            Op::Conv3DGradInput(conv, _) => self.volume(conv, [self.shape(Dx), self.shape(Dy)], rows),
            Op::Conv3DGradKernel(conv) => self.volume(conv, [self.shape(X), self.shape(Dy)], rows),
            Op::Attention(kind) => {
                let sizes = attention::Sizes::new([Q, K, V].map(|operand| self.shape(operand)), rows);
                let flops = sizes.scores(kind) * 2.0 * (sizes.width + sizes.value_width) as f64;
                Demand { flops, ..floats(attention::forward_workspace(&sizes, threads)) }
            }
            Op::AttentionGrad(kind) => {
                let sizes = attention::Sizes::new([Q, K, V].map(|operand| self.shape(operand)), rows);
                let flops = sizes.scores(kind) * 2.0 * (3 * sizes.width + 2 * sizes.value_width) as f64;
                Demand { flops, ..floats(attention::grad_workspace(&sizes, threads)) }
            }
            Op::Recurrent(kind) => {
                let sizes = recurrent::Sizes::new(kind, self.shape(Y), rows);
                Demand { flops: sizes.flops(), ..floats(recurrent::forward_workspace(&sizes, threads)) }
            }
            Op::RecurrentGrad(kind) => {
                let sizes = recurrent::Sizes::new(kind, self.shape(Y), rows);
                let workspace = recurrent::grad_workspace(&kind.cell, &sizes, threads);
                Demand { flops: 2.0 * sizes.flops(), ..mixed(workspace) }
            }
            Op::AffineGradScale => {
                doubles(affine::grad_scale_workspace(self.shape(DScale).elements_per_row()))
            }
            Op::BiasGrad | Op::ArgmaxBiasGrad => doubles(dense::bias_grad_workspace(self.shape(Dy))),
            Op::Elementwise(chain) => {
                let halves = self.is_half(X);
                floats(elementwise::workspace(chain, halves, threads))
            }
            Op::ActivityPenalty(_) => doubles(activity::WORKSPACE),
            Op::BalanceWeights => doubles(mask::BALANCE_WORKSPACE),
            Op::Loss(_) => doubles(loss::WORKSPACE),
            Op::Metric(metric) => doubles(metric::workspace(metric, self.shape(Prediction))),
            Op::BatchNormStatistics => mixed(batch_norm::statistics_workspace(self.shape(X))),
            Op::BatchNorm(_) | Op::BatchNormInference(_) => {
                floats(batch_norm::forward_workspace(self.shape(X)))
            }
            Op::BatchNormGrad(_) => mixed(batch_norm::grad_workspace(self.shape(Dy), false)),
            Op::BatchNormInferenceGrad(_) => floats(batch_norm::inference_grad_workspace(self.shape(Dy))),
            Op::LayerNormGrad(_, axes) => doubles(layer_norm::grad_workspace(self.shape(Dy), *axes)),
            Op::SumSquares => doubles(optimizer::SUM_SQUARES_WORKSPACE),
            Op::CheckFinite(_) => doubles(optimizer::CHECK_FINITE_WORKSPACE),
            Op::Update(update) => {
                doubles(optimizer::update_workspace(&update.rule, &self.shape(Weight).dims))
            }
            Op::CheckUpdate(check) => {
                let dims = &self.shape(Weight).dims;
                doubles(optimizer::check_workspace(&check.update.rule, dims))
            }
            Op::Penalty(_) => doubles(optimizer::weight_rules::PENALTY_WORKSPACE),
            Op::MaxPool2D(_)
            | Op::MaxPool2DRelu(_)
            | Op::MaxPool2DGrad(..)
            | Op::AveragePool2D(_)
            | Op::AveragePool2DGrad(..)
            | Op::GlobalAveragePool2D
            | Op::GlobalAveragePool2DGrad(_)
            | Op::GlobalMaxPool2D
            | Op::GlobalMaxPool2DGrad(_)
            | Op::SignBits { .. }
            | Op::Mask(_)
            | Op::MaskBits
            | Op::Softmax
            | Op::SoftmaxGrad
            | Op::Dropout { .. }
            | Op::Noise(_)
            | Op::Affine { .. }
            | Op::AffineConstant { .. }
            | Op::BatchNormMoving { .. }
            | Op::LayerNorm(..)
            | Op::Pad2D(_)
            | Op::Crop2D(_)
            | Op::UpSample2D(..)
            | Op::UpSample2DGrad(..)
            | Op::Resize2D(..)
            | Op::Resize2DGrad(..)
            | Op::Transpose(_)
            | Op::Broadcast(_)
            | Op::SumTo(_)
            | Op::Concat(_)
            | Op::Slice { .. }
            | Op::PadAxis { .. }
            | Op::Augment(_)
            | Op::Embedding
            | Op::EmbeddingGrad
            | Op::Reshape(_)
            | Op::Cast(_)
            | Op::TakeRows
            | Op::PutRows
            | Op::Zero
            | Op::AddZero
            | Op::Accumulate(_)
            | Op::AddAccumulated(_)
            | Op::KeepAccumulated
            | Op::CorrectSquares(_)
            | Op::Constrain(_) => floats(0),
        }
    }

    fn volume(&self, conv: &Conv3D, [input, output]: [&Shape; 2], rows: usize) -> Demand {
        let sizes = conv3d::Sizes::new(conv, input, output, rows);
        Demand { flops: sizes.flops(), ..floats(sizes.workspace(self.threads)) }
    }

    pub(crate) fn product(&self, product: Gemm) -> Demand {
        let flops = 2.0 * product.m as f64 * product.n as f64 * product.k as f64;
        Demand { flops, ..floats(gemm::workspace(&product, self.threads)) }
    }

    /// Bytes that are read and written. A view moves none.
    fn bytes(&self, rows: usize) -> f64 {
        if self.node.op.is_view() {
            return 0.0;
        }
        let Node { inputs, outputs, updates, .. } = self.node;
        let operands = inputs.iter().chain(outputs).chain(updates).chain(updates);
        let tensors = operands.map(|id| &self.graph.tensors[id.0]);
        let moved: f64 = tensors.map(|tensor| tensor.shape.bytes(tensor.dtype, rows).0 as f64).sum();
        // What is widened is written and read once more, at twice the size.
        moved
            + 2.0
                * widen::Widening::of(self.graph, self.node)
                    .map_or(0.0, |widening| widening.bytes(rows).0 as f64)
    }

    pub(crate) fn shape(&self, operand: Operand) -> &Shape {
        &self.tensor(operand).shape
    }

    pub(crate) fn is_half(&self, operand: Operand) -> bool {
        Half::of(self.tensor(operand).dtype).is_some()
    }

    fn tensor(&self, operand: Operand) -> &Tensor {
        &self.graph.tensors[self.node.tensor(operand).0]
    }
}

/// What workspace a kernel needs, and how much it calculates.
pub(crate) struct Demand {
    pub(crate) workspace: Bytes,
    pub(crate) flops: f64,
}

pub(crate) fn convolution_of(shape: &Convolution, workspace: usize) -> Demand {
    let taps = shape.kernel[0] * shape.kernel[1] * shape.input[2] / shape.groups;
    let outputs = shape.rows * shape.output.iter().product::<usize>();
    Demand { flops: 2.0 * taps as f64 * outputs as f64, ..floats(workspace) }
}

/// A convolution, and the products of a dense layer after its pool.
pub(crate) fn pooled_dense_of(shape: &PooledDense, products: f64, workspace: usize) -> Demand {
    let demand = convolution_of(&shape.pooled.conv, workspace);
    let floats = shape.pooled.conv.rows * shape.pooled.output().iter().product::<usize>();
    Demand { flops: demand.flops + products * 2.0 * floats as f64 * shape.units as f64, ..demand }
}

pub(crate) fn floats(count: usize) -> Demand {
    mixed((0, count))
}

fn doubles(count: usize) -> Demand {
    mixed((count, 0))
}

pub(crate) fn mixed((doubles, floats): (usize, usize)) -> Demand {
    Demand { workspace: Bytes::of::<f64>(doubles) + Bytes::of::<f32>(floats), flops: 0.0 }
}
