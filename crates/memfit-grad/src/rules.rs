//! The gradient of every op: one table, [`Backward::rule`].

use memfit_ir::Operand::{
    A, Argmax, B, Beta, Bias, Gamma, K, Kernel, KeyMask, LogSumExp, Mask, Mean, MovingVariance, Offset, Q,
    QueryMask, Rstd, Scale, Table, V, Variance, X, Y,
};
use memfit_ir::{
    Binary, Chain, DType, Graph, Kind, LayerId, MatMul, Node, NodeId, Noise, NoiseKind, Op, Shape, TensorId,
    Winograd,
};

use crate::GradError;
use crate::chain::{InputGradient, Operand, gradient};

/// The walk from the losses back to the weights.
pub struct Backward {
    pub(crate) graph: Graph,
    /// The convolutions that the device computes by Winograd with a pool inside.
    pub(crate) winograd: Option<Winograd>,
    /// Whether each tensor depends on a weight or on a wanted tensor.
    pub(crate) needs: Vec<bool>,
    /// The gradient of each tensor, as far as it is known.
    gradients: Vec<Option<TensorId>>,
    /// Weights with the sum their gradients are added to, in the order of their first contribution.
    weights: Vec<(TensorId, TensorId)>,
}

/// Whether each tensor depends on a weight or on a wanted tensor.
pub fn needs(graph: &Graph, wanted: &[TensorId]) -> Vec<bool> {
    let mut needs: Vec<bool> =
        graph.tensors.iter().map(|tensor| tensor.kind == Kind::Weight { trainable: true }).collect();
    for tensor in wanted {
        needs[tensor.0] = true;
    }
    for node in &graph.nodes {
        if node.inputs.iter().any(|input| needs[input.0]) {
            for output in &node.outputs {
                needs[output.0] = true;
            }
        }
    }
    needs
}

impl Backward {
    /// Starts after a forward graph with its losses.
    pub fn new(graph: Graph, winograd: Option<Winograd>, wanted: &[TensorId]) -> Backward {
        let needs = needs(&graph, wanted);
        let gradients = vec![None; graph.tensors.len()];
        Backward { graph, winograd, needs, gradients, weights: Vec::new() }
    }

    /// The graph, the weights with their gradients, and the gradients of the wanted tensors.
    pub fn finish(self, wanted: &[TensorId]) -> (Graph, Vec<(TensorId, TensorId)>, Vec<TensorId>) {
        let kept = wanted.iter().filter_map(|tensor| self.gradients[tensor.0]).collect();
        (self.graph, self.weights, kept)
    }

    /// Adds a contribution to the gradient of a tensor. A second one is summed at once, so that neither is held longer.
    pub fn add(&mut self, tensor: TensorId, contribution: TensorId) {
        if !self.needs[tensor.0] {
            return;
        }
        self.gradients[tensor.0] = Some(match self.gradients[tensor.0] {
            None => contribution,
            Some(sum) => {
                let layer = self.graph.tensors[tensor.0].layer;
                self.flow(Op::Elementwise(Chain::binary(Binary::Add)), &[sum, contribution], layer)
            }
        });
    }

    /// Passes the gradient of a node's output on to its inputs.
    pub fn pull_back(&mut self, id: NodeId) -> Result<(), GradError> {
        let node = self.graph.nodes[id.0].clone();
        let Some(dy) = node.outputs.first().and_then(|output| self.gradients[output.0]) else {
            return Ok(());
        };
        if node.inputs.iter().any(|input| self.needs[input.0]) {
            self.rule(&node, dy)?;
        }
        Ok(())
    }

    fn rule(&mut self, node: &Node, dy: TensorId) -> Result<(), GradError> {
        // What an op is about stands first, whatever it is to the op.
        let (x, layer) = (node.inputs[0], node.layer);
        let image = self.image_size(x);
        // The gradient of the first input, by an op that reads these.
        let single: Option<(Op, Vec<TensorId>)> = match &node.op {
            Op::Dense => {
                self.kernel_and_bias(Op::DenseGradKernel, node, dy);
                Some((Op::DenseGradInput, vec![dy, node.input(Kernel)]))
            }
            // A product with the transposed kernel, whose own gradient is the plain one.
            Op::DenseGradInput => {
                self.weight(Op::DenseGradKernel, &[dy, x], node.input(Kernel), layer);
                Some((Op::Dense, vec![dy, node.input(Kernel)]))
            }
            Op::Conv2D(conv) => {
                self.kernel_and_bias(Op::Conv2DGradKernel(conv.clone()), node, dy);
                Some((Op::Conv2DGradInput(conv.clone(), image), vec![dy, node.input(Kernel)]))
            }
            Op::Fused(fused) => {
                self.pooled(fused, node, dy)?;
                None
            }
            Op::Conv3D(conv) => {
                self.kernel_and_bias(Op::Conv3DGradKernel(conv.clone()), node, dy);
                Some((Op::Conv3DGradInput(conv.clone(), self.volume_size(x)), vec![dy, node.input(Kernel)]))
            }
            Op::Conv3DGradInput(conv, _) => {
                self.weight(Op::Conv3DGradKernel(conv.clone()), &[dy, x], node.input(Kernel), layer);
                Some((Op::Conv3D(conv.clone()), vec![dy, node.input(Kernel)]))
            }
            Op::MaxPool2D(pool) | Op::MaxPool2DRelu(pool) => {
                Some((Op::MaxPool2DGrad(pool.clone(), image), vec![dy, node.output(Argmax)]))
            }
            Op::AveragePool2D(pool) => Some((Op::AveragePool2DGrad(pool.clone(), image), vec![dy])),
            Op::GlobalAveragePool2D => Some((Op::GlobalAveragePool2DGrad(image), vec![dy])),
            Op::GlobalMaxPool2D => Some((Op::GlobalMaxPool2DGrad(image), vec![dy, node.output(Argmax)])),
            Op::Elementwise(chain) => {
                self.elementwise(node, chain, dy);
                None
            }
            // The gradient of a mask is 0 everywhere.
            Op::Mask(_) | Op::BalanceWeights => None,
            Op::Softmax => Some((Op::SoftmaxGrad, vec![dy, node.output(Y)])),
            Op::Dropout { rate, seed } => Some((Op::Dropout { rate: *rate, seed: *seed }, vec![dy])),
            Op::Noise(noise) => self.noise(noise, x, dy),
            Op::Affine { .. } => {
                let scale = node.input_if_given(Scale);
                if let Some(scale) = scale {
                    self.weight(Op::AffineGradScale, &[x, dy], scale, layer);
                }
                if let Some(offset) = node.input_if_given(Offset) {
                    self.weight(Op::BiasGrad, &[dy], offset, layer);
                }
                if scale.is_none() {
                    self.add(x, dy);
                }
                scale.map(|scale| (Op::Affine { scale: true, center: false }, vec![dy, scale]))
            }
            Op::AffineConstant { scale, .. } => {
                let offset = vec![0.0; scale.len()];
                Some((Op::AffineConstant { scale: scale.clone(), offset }, vec![dy]))
            }
            // A convolution backwards is a layer too; its gradients are the convolution's own ops.
            Op::Conv2DGradInput(conv, _) => {
                self.weight(Op::Conv2DGradKernel(conv.clone()), &[dy, x], node.input(Kernel), layer);
                Some((Op::Conv2D(conv.clone()), vec![dy, node.input(Kernel)]))
            }
            Op::Resize2D(_, how) => Some((Op::Resize2DGrad(image, *how), vec![dy])),
            Op::Transpose(order) => {
                let back = |axis: usize| order.iter().position(|from| *from == axis);
                let back =
                    (0..order.len()).map(|axis| back(axis).expect("an order has every axis")).collect();
                Some((Op::Transpose(back), vec![dy]))
            }
            Op::BatchNorm(norm) => {
                let statistics = [Mean, Variance].map(|statistic| node.input(statistic));
                self.normalised(Op::BatchNormGrad(norm.clone()), node, dy, statistics);
                None
            }
            Op::LayerNorm(norm, axes) => {
                let statistics = [Mean, Rstd].map(|statistic| node.output(statistic));
                self.normalised(Op::LayerNormGrad(norm.clone(), *axes), node, dy, statistics);
                None
            }
            Op::BatchNormInference(norm) => {
                let gamma = node.input_if_given(Gamma);
                let reads = [dy].into_iter().chain(gamma).chain([node.input(MovingVariance)]);
                Some((Op::BatchNormInferenceGrad(norm.clone()), reads.collect()))
            }
            Op::Pad2D(pads) => Some((Op::Crop2D(*pads), vec![dy])),
            Op::Crop2D(pads) => Some((Op::Pad2D(*pads), vec![dy])),
            Op::UpSample2D(size, how) => Some((Op::UpSample2DGrad(*size, *how), vec![dy])),
            Op::Broadcast(_) => Some((Op::SumTo(self.dims(x)), vec![dy])),
            Op::SumTo(_) => Some((Op::Broadcast(self.dims(x)), vec![dy])),
            Op::Slice { axis, start, length } => {
                let after = self.dims(x)[*axis] - start - length;
                Some((Op::PadAxis { axis: *axis, before: *start, after }, vec![dy]))
            }
            Op::PadAxis { axis, before, .. } => {
                let length = self.dims(x)[*axis];
                Some((Op::Slice { axis: *axis, start: *before, length }, vec![dy]))
            }
            Op::MatMul(product) => {
                self.product(node, *product, dy);
                None
            }
            Op::Reshape(_) => Some((Op::Reshape(self.dims(x)), vec![dy])),
            Op::Cast(_) => Some((Op::Cast(self.graph.tensors[x.0].dtype), vec![dy])),
            Op::Attention(kind) => {
                let read = [Q, K, V].map(|operand| node.input(operand));
                let mut reads = [&[dy], &read[..], &[node.output(Y), node.output(LogSumExp)]].concat();
                reads.extend([QueryMask, KeyMask].into_iter().filter_map(|mask| node.input_if_given(mask)));
                let written = self.flows(Op::AttentionGrad(kind.clone()), &reads, layer);
                for (input, gradient) in read.into_iter().zip(written) {
                    self.add(input, gradient);
                }
                None
            }
            Op::Recurrent(kind) => {
                let kernel = node.input(Kernel);
                let mut reads = [&[dy], &node.outputs[..], &[kernel]].concat();
                reads.extend(node.input_if_given(Mask));
                let weights = [kernel].into_iter().chain(node.input_if_given(Bias));
                let updates: Vec<TensorId> = weights.map(|weight| self.weight_gradient(weight)).collect();
                let op = Op::RecurrentGrad(kind.clone());
                self.updating(op, &reads, &updates, node);
                None
            }
            Op::Concat(axis) => {
                self.concat(node, *axis, dy);
                None
            }
            Op::Embedding => {
                self.weight(Op::EmbeddingGrad, &[x, dy], node.input(Table), layer);
                None
            }
            Op::DenseGradKernel
            | Op::BiasGrad
            | Op::ArgmaxBiasGrad
            | Op::Conv2DGradKernel(_)
            | Op::Conv3DGradKernel(_)
            | Op::ActivityPenalty(_)
            | Op::MaxPool2DGrad(..)
            | Op::AveragePool2DGrad(..)
            | Op::GlobalAveragePool2DGrad(_)
            | Op::GlobalMaxPool2DGrad(_)
            | Op::SignBits { .. }
            | Op::MaskBits
            | Op::SoftmaxGrad
            | Op::Loss(_)
            | Op::Metric(_)
            | Op::BatchNormStatistics
            | Op::BatchNormGrad(_)
            | Op::BatchNormMoving { .. }
            | Op::BatchNormInferenceGrad(_)
            | Op::LayerNormGrad(..)
            | Op::AttentionGrad(_)
            | Op::Augment(_)
            | Op::RecurrentGrad(_)
            | Op::UpSample2DGrad(..)
            | Op::Resize2DGrad(..)
            | Op::AffineGradScale
            | Op::EmbeddingGrad
            | Op::TakeRows
            | Op::PutRows
            | Op::Zero
            | Op::AddZero
            | Op::SumSquares
            | Op::CheckFinite(_)
            | Op::Accumulate(_)
            | Op::AddAccumulated(_)
            | Op::KeepAccumulated
            | Op::CheckUpdate(_)
            | Op::CorrectSquares(_)
            | Op::Update(_)
            | Op::Penalty(_)
            | Op::Constrain(_) => return Err(self.no_rule(node)),
        };
        if let Some((op, reads)) = single
            && self.needs[x.0]
        {
            let dx = self.flow(op, &reads, layer);
            self.add(x, dx);
        }
        Ok(())
    }

    pub(crate) fn no_rule(&self, node: &Node) -> GradError {
        GradError::NoRule { layer: self.graph.layers[node.layer.0].clone(), op: node.op.name() }
    }

    /// The kernel's gradient comes before the input's: what it reads (the kept input) is then free when `dx` is written.
    pub(crate) fn kernel_and_bias(&mut self, op: Op, node: &Node, dy: TensorId) {
        self.weight(op, &[node.input(X), dy], node.input(Kernel), node.layer);
        if let Some(bias) = node.input_if_given(Bias) {
            self.weight(Op::BiasGrad, &[dy], bias, node.layer);
        }
    }

    /// The gradient through noise: the same draws again, or none where they only add.
    fn noise(&mut self, noise: &Noise, x: TensorId, dy: TensorId) -> Option<(Op, Vec<TensorId>)> {
        let kind = match noise.kind {
            NoiseKind::Add { .. } => {
                self.add(x, dy);
                return None;
            }
            NoiseKind::Alpha { rate } | NoiseKind::AlphaGrad { rate } => NoiseKind::AlphaGrad { rate },
            NoiseKind::Dropout { .. } | NoiseKind::Multiply { .. } => noise.kind,
        };
        Some((Op::Noise(Noise { kind, ..noise.clone() }), vec![dy]))
    }

    /// Both normalisations: one op passes the gradient to the values, gamma and beta, through the statistics.
    fn normalised(&mut self, op: Op, node: &Node, dy: TensorId, statistics: [TensorId; 2]) {
        let gamma = node.input_if_given(Gamma);
        let mut reads = vec![dy, node.input(X), statistics[0], statistics[1]];
        reads.extend(gamma);
        let weights = gamma.into_iter().chain(node.input_if_given(Beta));
        let updates: Vec<TensorId> = weights.map(|weight| self.weight_gradient(weight)).collect();
        self.updating(op, &reads, &updates, node);
    }

    /// An op that gives the gradient of a node's first input and adds to those of its weights.
    fn updating(&mut self, op: Op, reads: &[TensorId], updates: &[TensorId], node: &Node) {
        let dx = self
            .graph
            .push_updating(op, reads, updates, Kind::Flow, node.layer)
            .expect("operands come from a forward node that passed the shape rules");
        self.know_new_tensors();
        self.add(node.input(X), dx[0]);
    }

    fn elementwise(&mut self, node: &Node, chain: &Chain, dy: TensorId) {
        for (index, input) in node.inputs.iter().enumerate() {
            if !self.needs[input.0] {
                continue;
            }
            match gradient(chain, index) {
                InputGradient::Zero => {}
                InputGradient::Same => self.add(*input, dy),
                InputGradient::Chain(chain, operands) => {
                    let reads: Vec<TensorId> = operands
                        .iter()
                        .map(|operand| match operand {
                            Operand::Gradient => dy,
                            Operand::Input(input) => node.input((X, *input)),
                            Operand::Result => node.output(Y),
                        })
                        .collect();
                    let contribution = self.flow(Op::Elementwise(chain), &reads, node.layer);
                    self.add(*input, contribution);
                }
            }
        }
    }

    /// The gradients of a product are products.
    fn product(&mut self, node: &Node, product: MatMul, dy: TensorId) {
        let (a, b) = (node.input(A), node.input(B));
        let MatMul { transpose_a, transpose_b } = product;
        let multiply = |transpose_a, transpose_b| Op::MatMul(MatMul { transpose_a, transpose_b });
        if self.needs[a.0] {
            let da = match transpose_a {
                false => self.flow(multiply(false, !transpose_b), &[dy, b], node.layer),
                true => self.flow(multiply(transpose_b, true), &[b, dy], node.layer),
            };
            self.add(a, da);
        }
        if self.needs[b.0] {
            let db = match transpose_b {
                false => self.flow(multiply(!transpose_a, false), &[a, dy], node.layer),
                true => self.flow(multiply(true, transpose_a), &[dy, a], node.layer),
            };
            self.add(b, db);
        }
    }

    fn concat(&mut self, node: &Node, axis: usize, dy: TensorId) {
        let mut start = 0;
        for input in &node.inputs {
            let length = self.graph.tensors[input.0].shape.dims[axis];
            if self.needs[input.0] {
                let part = self.flow(Op::Slice { axis, start, length }, &[dy], node.layer);
                self.add(*input, part);
            }
            start += length;
        }
    }

    /// Adds a node that writes the gradient of an activation.
    pub(crate) fn flow(&mut self, op: Op, reads: &[TensorId], layer: LayerId) -> TensorId {
        self.flows(op, reads, layer)[0]
    }

    /// Adds a node that writes gradients of activations.
    fn flows(&mut self, op: Op, reads: &[TensorId], layer: LayerId) -> Vec<TensorId> {
        let written = self
            .graph
            .push_updating(op, reads, &[], Kind::Flow, layer)
            .expect("operands come from a forward node that passed the shape rules");
        self.know_new_tensors();
        written
    }

    /// Adds a node that adds to the gradient of a weight.
    pub(crate) fn weight(&mut self, op: Op, reads: &[TensorId], weight: TensorId, layer: LayerId) {
        if !self.needs[weight.0] {
            return;
        }
        let sum = self.weight_gradient(weight);
        self.graph
            .push_updating(op, reads, &[sum], Kind::Flow, layer)
            .expect("operands come from a forward node that passed the shape rules");
    }

    /// The sum a weight's gradient is added to. One that is not trainable gets a sum that no update reads.
    pub(crate) fn weight_gradient(&mut self, weight: TensorId) -> TensorId {
        if let Some(known) = self.gradients[weight.0] {
            return known;
        }
        let (name, shape, layer) = {
            let tensor = &self.graph.tensors[weight.0];
            (format!("d {}", tensor.name), tensor.shape.clone(), tensor.layer)
        };
        let sum = self.graph.tensor(name, shape, DType::F32, Kind::Gradient, layer);
        self.know_new_tensors();
        self.gradients[weight.0] = Some(sum);
        if self.graph.tensors[weight.0].kind == (Kind::Weight { trainable: true }) {
            self.weights.push((weight, sum));
        }
        sum
    }

    fn know_new_tensors(&mut self) {
        self.gradients.resize(self.graph.tensors.len(), None);
        self.needs.resize(self.graph.tensors.len(), false);
    }

    fn dims(&self, tensor: TensorId) -> Vec<usize> {
        self.graph.tensors[tensor.0].shape.dims.clone()
    }

    pub(crate) fn image_size(&self, tensor: TensorId) -> [usize; 2] {
        let Shape { dims, .. } = &self.graph.tensors[tensor.0].shape;
        match dims[..] {
            [height, width, _] => [height, width],
            _ => [0, 0],
        }
    }

    fn volume_size(&self, tensor: TensorId) -> [usize; 3] {
        let Shape { dims, .. } = &self.graph.tensors[tensor.0].shape;
        match dims[..] {
            [depth, height, width, _] => [depth, height, width],
            _ => [0, 0, 0],
        }
    }
}
