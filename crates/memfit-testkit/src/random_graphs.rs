//! Random forward graphs for property tests: small images through drawn layers, with branches that rejoin.

use memfit_ir::{
    Attention, Binary, Chain, Conv2D, Graph, Interpolation, Norm, Op, Pads, Pool2D, TensorId, Unary, random,
};

use crate::op_cases::Builder;

/// A forward graph drawn from a seed. Its rows are independent unless `batch_norm`.
pub fn random_graph(seed: u64, batch_norm: bool) -> Graph {
    let mut graph = Graph::default();
    let layer = graph.layer("random");
    let mut builder = Builder { graph, layer };
    let mut draws = Draws { seed, next: 0 };
    let mut values: Vec<TensorId> = vec![builder.input([8, 8, 3])];
    for index in 0..draws.below(8) + 3 {
        builder.layer = builder.graph.layer(&format!("layer{index}"));
        let from = values[values.len() - 1 - draws.below(values.len().min(3))];
        let made = random_layer(&mut builder, &mut draws, from, &values, batch_norm);
        values.push(made);
    }
    let last = values[values.len() - 1];
    with_head(builder, last)
}

/// Drawn layers with independent rows, then a batch normalisation of the last of them.
pub fn random_prefix(seed: u64) -> Graph {
    let mut graph = Graph::default();
    let layer = graph.layer("random");
    let mut builder = Builder { graph, layer };
    let mut draws = Draws { seed, next: 0 };
    let mut values: Vec<TensorId> = vec![builder.input([8, 8, 3])];
    for index in 0..draws.below(6) + 2 {
        builder.layer = builder.graph.layer(&format!("layer{index}"));
        let from = values[values.len() - 1 - draws.below(values.len().min(2))];
        let made = match (index, seed % 2) {
            (1, 0) => builder.op(Op::Dropout { rate: 0.2, seed }, &[from]),
            _ => random_layer(&mut builder, &mut draws, from, &values, false),
        };
        values.push(made);
    }
    builder.layer = builder.graph.layer("normalisation");
    let last = values[values.len() - 1];
    let channels = image(&builder, last)[2];
    let norm = Norm { epsilon: 1e-3, scale: true, center: true };
    let operands = vec![last, builder.weight("gamma", &[channels]), builder.weight("beta", &[channels])];
    let normal = builder.batch_norm(&norm, operands);
    let active = builder.op(Op::Elementwise(Chain::unary(Unary::Relu)), &[normal]);
    with_head(builder, active)
}

/// Convolutions of drawn kinds, each followed by a batch normalisation and mostly by an activation.
pub fn random_stack(seed: u64) -> Graph {
    let mut graph = Graph::default();
    let layer = graph.layer("random");
    let mut builder = Builder { graph, layer };
    let mut draws = Draws { seed, next: 0 };
    let mut last = builder.input([6, 15, 4]);
    for index in 0..draws.below(4) + 3 {
        builder.layer = builder.graph.layer(&format!("layer{index}"));
        let channels = image(&builder, last)[2];
        let (kernel, by_channel) = [(1, false), (3, false), (3, true)][draws.below(3)];
        let (groups, filters) = match by_channel {
            true => (channels, channels),
            false => (1, [5, 24, 70][draws.below(3)]),
        };
        let pad = kernel / 2;
        let pads = Pads { top: pad, bottom: pad, left: pad, right: pad };
        let conv = Conv2D { kernel: [kernel; 2], strides: [1, 1], dilation: [1, 1], groups, pads };
        let z = builder.conv(last, conv, filters);
        let operands = vec![z, builder.weight("gamma", &[filters]), builder.weight("beta", &[filters])];
        let norm = Norm { epsilon: 1e-3, scale: true, center: true };
        last = builder.batch_norm(&norm, operands);
        let capped = Unary::ReluGeneral { negative_slope: 0.0, max_value: 2.0, threshold: 0.0 };
        let functions = [Some(Unary::Relu), Some(capped), Some(Unary::Gelu), None];
        if let Some(function) = functions[draws.below(functions.len())] {
            last = builder.op(Op::Elementwise(Chain::unary(function)), &[last]);
        }
    }
    with_head(builder, last)
}

fn with_head(mut builder: Builder, last: TensorId) -> Graph {
    builder.layer = builder.graph.layer("head");
    let pooled = builder.op(Op::GlobalAveragePool2D, &[last]);
    let logits = builder.dense(pooled, 3, true);
    let output = builder.op(Op::Softmax, &[logits]);
    builder.graph.outputs.push(output);
    builder.graph
}

fn random_layer(
    builder: &mut Builder,
    draws: &mut Draws,
    from: TensorId,
    values: &[TensorId],
    batch_norm: bool,
) -> TensorId {
    let [height, width, channels] = image(builder, from);
    match draws.below(13) {
        0..=2 => {
            let conv = Conv2D {
                kernel: [3, 3],
                strides: [1, 1],
                dilation: [1, 1],
                groups: 1,
                pads: Pads { top: 1, bottom: 1, left: 1, right: 1 },
            };
            builder.conv(from, conv, draws.below(5) + 1)
        }
        3 => builder.dense(from, draws.below(6) + 1, true),
        4 if height > 3 && width > 3 => {
            let pool = Pool2D { window: [2, 2], strides: [2, 2], pads: Pads::default() };
            let op = if draws.below(2) == 0 { Op::MaxPool2D(pool) } else { Op::AveragePool2D(pool) };
            builder.op(op, &[from])
        }
        5 => {
            let functions = [Unary::Gelu, Unary::Tanh, Unary::Sigmoid, Unary::Silu, Unary::Elu(1.0)];
            let function = functions[draws.below(functions.len())];
            builder.op(Op::Elementwise(Chain::unary(function)), &[from])
        }
        6 | 7 => builder.op(Op::Elementwise(Chain::unary(Unary::Relu)), &[from]),
        8 => {
            // A branch that joins one of the same shape, or itself if there is no other.
            let shape = &builder.graph.tensors[from.0].shape;
            let twins: Vec<TensorId> =
                values.iter().copied().filter(|id| builder.graph.tensors[id.0].shape == *shape).collect();
            let twin = twins[draws.below(twins.len())];
            let function = [Binary::Add, Binary::Multiply, Binary::Maximum][draws.below(3)];
            builder.op(Op::Elementwise(Chain::binary(function)), &[from, twin])
        }
        9 => {
            let norm = Norm { epsilon: 1e-3, scale: true, center: true };
            let operands =
                vec![from, builder.weight("gamma", &[channels]), builder.weight("beta", &[channels])];
            if batch_norm {
                builder.batch_norm(&norm, operands)
            } else {
                builder.op(Op::LayerNorm(norm, 1), &operands)
            }
        }
        10 if height < 9 => builder.op(Op::UpSample2D([2, 2], Interpolation::Nearest), &[from]),
        11 => {
            let fits = |id: &&TensorId| image(builder, **id)[..2] == [height, width];
            let twin = *values.iter().rfind(fits).expect("the layer's own input has its size");
            builder.op(Op::Concat(2), &[from, twin])
        }
        12 => {
            // Rows of pixels look at each other, each column a head; sometimes one tensor is two operands.
            let width = draws.below(4) + 1;
            let q = builder.dense(from, width, true);
            let k = if draws.below(3) == 0 { q } else { builder.dense(from, width, true) };
            let v = if draws.below(3) == 0 { k } else { builder.dense(from, width, false) };
            let kind = Attention { scale: 0.5, causal: draws.below(2) == 0, ..Attention::default() };
            builder.op(Op::Attention(kind), &[q, k, v])
        }
        _ => builder.op(Op::Dropout { rate: 0.2, seed: draws.next }, &[from]),
    }
}

fn image(builder: &Builder, id: TensorId) -> [usize; 3] {
    builder.graph.tensors[id.0].shape.dims[..].try_into().expect("everything before the head is an image")
}

/// A stream of small numbers.
pub struct Draws {
    /// The stream's seed.
    pub seed: u64,
    /// How many were drawn.
    pub next: u64,
}

impl Draws {
    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.next += 1;
        random::integer(self.seed, self.next, 0, limit as i64) as usize
    }
}
