//! A slow f64 interpreter of forward graphs: loops a reader can check by eye, sharing no code with the kernels.

use memfit_ir::{
    Binary, Chain, Conv2D, Fused, Graph, Interpolation, Link, LossKind, Node, Norm, Op, Pool2D, Reduction,
    TensorId, Unary, random,
};

use crate::attention_cases::{self, Heads};
use crate::distances::sample_distance;
use crate::harness::Values;
use crate::op_cases::ROWS;
use crate::operation_cases;
use crate::recurrent_cases;
use crate::spatial_cases;
use crate::volume_cases;

/// Computes every tensor of a forward graph (losses give their value as a single number) from inputs and weights.
pub fn evaluate(graph: &Graph, rows: usize, given: &Values) -> Values {
    let mut values = given.clone();
    for node in &graph.nodes {
        let computed = Evaluation { graph, rows, values: &values, node }.outputs();
        for (tensor, value) in node.outputs.iter().zip(computed) {
            values.insert(*tensor, value);
        }
    }
    values
}

/// What is negative becomes 0.
fn rectified(values: Vec<f64>) -> Vec<f64> {
    values.into_iter().map(|value| value.max(0.0)).collect()
}

struct Evaluation<'a> {
    graph: &'a Graph,
    rows: usize,
    values: &'a Values,
    node: &'a Node,
}

impl Evaluation<'_> {
    /// What the parts of a fused op give, one after the other.
    fn parts(&self, fused: &Fused) -> Vec<Vec<f64>> {
        let (graph, node) = (self.graph, self.node);
        let inputs: Vec<_> = node.inputs.iter().map(|id| &graph.tensors[id.0]).collect();
        let parts = fused.decompose(&inputs, node.updates.len()).expect("the node's shapes fit");
        let small = parts.graph(graph, node).expect("the node's shapes fit");
        let given =
            node.inputs.iter().enumerate().map(|(place, id)| (TensorId(place), self.values[id].clone()));
        let mut values = evaluate(&small, self.rows, &given.collect());
        let outputs = node.inputs.len()..node.inputs.len() + node.outputs.len();
        outputs.map(|place| values.remove(&TensorId(place)).expect("the parts write it")).collect()
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a forward op that is missing here fails its row of the op table"
    )]
    fn outputs(&self) -> Vec<Vec<f64>> {
        match &self.node.op {
            Op::Dense => vec![self.dense()],
            Op::DenseGradInput => vec![self.dense_transposed()],
            Op::Conv2D(conv) => vec![self.conv(conv, self.image(self.node.outputs[0]))],
            Op::Conv3D(conv) => {
                let [from, to] = [self.node.inputs[0], self.node.outputs[0]].map(|id| self.volume(id));
                let bias = self.node.inputs.get(2).map(|_| self.input(2));
                vec![volume_cases::conv(conv, self.input(0), self.input(1), bias, from, to)]
            }
            Op::Conv3DGradInput(conv, _) => {
                let [from, to] = [self.node.inputs[0], self.node.outputs[0]].map(|id| self.volume(id));
                vec![volume_cases::conv_backwards(conv, self.input(0), self.input(1), from, to)]
            }
            Op::Mask(mask) => {
                let features = self.dims(self.node.inputs[0]).last().copied().unwrap_or(1);
                vec![volume_cases::mask(*mask, self.input(0), features)]
            }
            Op::MaxPool2D(pool) | Op::MaxPool2DRelu(pool) => {
                let y = self.pool(pool, |window| window.iter().copied().fold(f64::NEG_INFINITY, f64::max));
                let relu = matches!(self.node.op, Op::MaxPool2DRelu(_));
                let y = if relu { rectified(y) } else { y };
                let count = y.len();
                vec![y, vec![0.0; count]]
            }
            Op::AveragePool2D(pool) => {
                vec![self.pool(pool, |window| window.iter().sum::<f64>() / window.len() as f64)]
            }
            Op::GlobalAveragePool2D => vec![self.global(|all| all.iter().sum::<f64>() / all.len() as f64)],
            Op::GlobalMaxPool2D => {
                let y = self.global(|all| all.iter().copied().fold(f64::NEG_INFINITY, f64::max));
                let count = y.len();
                vec![y, vec![0.0; count]]
            }
            Op::Fused(fused) => self.parts(fused),
            Op::Elementwise(chain) => vec![self.elementwise(chain)],
            Op::Softmax => vec![self.softmax()],
            Op::Dropout { rate, seed } => vec![self.dropout(f64::from(*rate), *seed)],
            Op::BatchNormStatistics => self.batch_norm_statistics(),
            Op::BatchNorm(norm) | Op::BatchNormInference(norm) => vec![self.batch_norm(norm)],
            Op::LayerNorm(norm, axes) => self.layer_norm(norm, *axes),
            Op::Attention(kind) => {
                let query_mask = kind.query_mask.then(|| self.input(3));
                let key_mask = kind.key_mask.then(|| self.input(self.node.inputs.len() - 1));
                let heads = [0, 1, 2].map(|i| self.heads(i));
                attention_cases::evaluate(kind, self.rows, heads, [query_mask, key_mask])
            }
            Op::Pad2D(pads) => {
                vec![self.remap(|[y, x, c]| Some([y.checked_sub(pads.top)?, x.checked_sub(pads.left)?, c]))]
            }
            Op::Crop2D(pads) => vec![self.remap(|[y, x, c]| Some([y + pads.top, x + pads.left, c]))],
            Op::UpSample2D(size, how) => vec![self.up_sample(*size, *how)],
            Op::Noise(noise) => {
                vec![spatial_cases::noise(noise, self.dims(self.node.inputs[0]), self.input(0))]
            }
            Op::Affine { scale, center } => {
                let offset = center.then(|| self.input(1 + usize::from(*scale)));
                vec![spatial_cases::affine(self.input(0), scale.then(|| self.input(1)), offset)]
            }
            Op::AffineConstant { scale, offset } => {
                let [scale, offset] = [scale, offset]
                    .map(|numbers| numbers.iter().map(|number| f64::from(*number)).collect::<Vec<_>>());
                vec![spatial_cases::affine(self.input(0), Some(&scale), Some(&offset))]
            }
            Op::Transpose(order) => {
                vec![spatial_cases::transpose(order, self.dims(self.node.inputs[0]), self.input(0))]
            }
            Op::Resize2D(_, how) => {
                let [from, to] = [self.node.inputs[0], self.node.outputs[0]].map(|id| self.image(id));
                vec![spatial_cases::resize(self.input(0), from, to, *how)]
            }
            Op::Conv2DGradInput(conv, _) => {
                let [from, to] = [self.node.inputs[0], self.node.outputs[0]].map(|id| self.image(id));
                vec![spatial_cases::conv_backwards(conv, self.input(0), self.input(1), from, to)]
            }
            Op::Broadcast(_) => vec![self.broadcast()],
            Op::Concat(axis) => vec![self.concat(*axis)],
            Op::Recurrent(kind) => {
                let others = self.node.inputs.len() - usize::from(kind.masked);
                let bias = (others == 3).then(|| self.input(2));
                let mask = kind.masked.then(|| self.input(others));
                let steps = self.dims(self.node.inputs[0])[0] - kind.rows_after_input();
                recurrent_cases::evaluate(kind, steps, self.input(0), self.input(1), bias, mask)
            }
            Op::MatMul(product) => {
                let shape = |index: usize| &self.graph.tensors[self.node.inputs[index].0].shape;
                let sizes = product.sizes(shape(0), shape(1)).expect("the shape rules looked at it");
                let sizes = [sizes.m, sizes.n, sizes.k];
                vec![operation_cases::products(*product, self.input(0), self.input(1), sizes)]
            }
            Op::PadAxis { axis, before, after } => {
                let dims = self.dims(self.node.inputs[0]);
                let one: usize = dims[axis + 1..].iter().product();
                vec![operation_cases::padded(self.input(0), one * dims[*axis], one * before, one * after)]
            }
            Op::Slice { axis, start, length } => {
                let dims = self.dims(self.node.inputs[0]);
                let one: usize = dims[axis + 1..].iter().product();
                let parts = self.input(0).chunks(one * dims[*axis]);
                vec![parts.flat_map(|part| part[one * start..one * (start + length)].to_vec()).collect()]
            }
            Op::SumTo(dims) => {
                let from = self.dims(self.node.inputs[0]);
                vec![operation_cases::sum_to(self.input(0), self.rows, from, dims)]
            }
            Op::Embedding => vec![self.embedding()],
            // Numbers here have no type to be rounded to.
            Op::Reshape(_) | Op::Cast(_) => vec![self.input(0).to_vec()],
            other => panic!("{} is not a forward op of this reference", other.name()),
        }
    }

    fn input(&self, index: usize) -> &[f64] {
        &self.values[&self.node.inputs[index]]
    }

    fn dims(&self, id: TensorId) -> &[usize] {
        &self.graph.tensors[id.0].shape.dims
    }

    fn volume(&self, id: TensorId) -> [usize; 4] {
        self.dims(id).try_into().expect("a volume has four axes")
    }

    fn image(&self, id: TensorId) -> [usize; 3] {
        self.dims(id).try_into().expect("an image has three axes")
    }

    fn heads(&self, index: usize) -> Heads<'_> {
        Heads { values: self.input(index), dims: self.image(self.node.inputs[index]) }
    }

    fn dense(&self) -> Vec<f64> {
        let (x, kernel) = (self.input(0), self.input(1));
        let wide = *self.dims(self.node.inputs[0]).last().expect("an axis to sum over");
        let units = kernel.len() / wide;
        let bias = self.node.inputs.get(2).map(|_| self.input(2));
        x.chunks(wide)
            .flat_map(|row| {
                (0..units).map(move |unit| {
                    let sum: f64 = (0..wide).map(|i| row[i] * kernel[i * units + unit]).sum();
                    sum + bias.map_or(0.0, |bias| bias[unit])
                })
            })
            .collect()
    }

    fn dense_transposed(&self) -> Vec<f64> {
        let (x, kernel) = (self.input(0), self.input(1));
        let wide = *self.dims(self.node.inputs[0]).last().expect("an axis to sum over");
        let sum = |row: &[f64], line: &[f64]| row.iter().zip(line).map(|(a, b)| a * b).sum::<f64>();
        x.chunks(wide).flat_map(|row| kernel.chunks(wide).map(move |line| sum(row, line))).collect()
    }

    fn conv(&self, conv: &Conv2D, [out_height, out_width, filters]: [usize; 3]) -> Vec<f64> {
        let (x, kernel) = (self.input(0), self.input(1));
        let bias = self.node.inputs.get(2).map(|_| self.input(2));
        let [height, width, channels] = self.image(self.node.inputs[0]);
        let (group_in, group_out) = (channels / conv.groups, filters / conv.groups);
        let mut y = Vec::new();
        for row in 0..self.rows {
            for (oy, ox, filter) in indices([out_height, out_width, filters]) {
                let first = filter / group_out * group_in;
                let mut sum = bias.map_or(0.0, |bias| bias[filter]);
                for (ky, kx, c) in indices([conv.kernel[0], conv.kernel[1], group_in]) {
                    let iy = (oy * conv.strides[0] + ky * conv.dilation[0]).wrapping_sub(conv.pads.top);
                    let ix = (ox * conv.strides[1] + kx * conv.dilation[1]).wrapping_sub(conv.pads.left);
                    if iy < height && ix < width {
                        let at = ((row * height + iy) * width + ix) * channels + first + c;
                        sum += x[at] * kernel[((ky * conv.kernel[1] + kx) * group_in + c) * filters + filter];
                    }
                }
                y.push(sum);
            }
        }
        y
    }

    fn pool(&self, pool: &Pool2D, reduce: impl Fn(&[f64]) -> f64) -> Vec<f64> {
        let x = self.input(0);
        let [height, width, channels] = self.image(self.node.inputs[0]);
        let out = self.image(self.node.outputs[0]);
        let mut y = Vec::new();
        for row in 0..self.rows {
            for (oy, ox, c) in indices(out) {
                let mut window = Vec::new();
                for (ky, kx, _) in indices([pool.window[0], pool.window[1], 1]) {
                    let iy = (oy * pool.strides[0] + ky).wrapping_sub(pool.pads.top);
                    let ix = (ox * pool.strides[1] + kx).wrapping_sub(pool.pads.left);
                    if iy < height && ix < width {
                        window.push(x[((row * height + iy) * width + ix) * channels + c]);
                    }
                }
                y.push(reduce(&window));
            }
        }
        y
    }

    fn global(&self, reduce: impl Fn(&[f64]) -> f64) -> Vec<f64> {
        let [height, width, channels] = self.image(self.node.inputs[0]);
        self.input(0)
            .chunks(height * width * channels)
            .flat_map(|image| {
                (0..channels)
                    .map(|c| reduce(&image.iter().skip(c).step_by(channels).copied().collect::<Vec<f64>>()))
                    .collect::<Vec<f64>>()
            })
            .collect()
    }

    fn elementwise(&self, chain: &Chain) -> Vec<f64> {
        (0..self.input(0).len())
            .map(|index| {
                let mut known: Vec<f64> = (0..chain.inputs).map(|input| self.input(input)[index]).collect();
                for link in &chain.links {
                    known.push(match *link {
                        Link::Unary(function, a) => unary(function, known[a]),
                        Link::Binary(function, a, b) => binary(function, known[a], known[b]),
                    });
                }
                known[known.len() - 1]
            })
            .collect()
    }

    fn softmax(&self) -> Vec<f64> {
        let wide = *self.dims(self.node.inputs[0]).last().expect("a softmax has a last axis");
        self.input(0).chunks(wide).flat_map(softmax).collect()
    }

    fn dropout(&self, rate: f64, seed: u64) -> Vec<f64> {
        // The harness trains step 0 with seed 5.
        let draws = random::derive(random::derive(5, seed), 0);
        self.input(0)
            .iter()
            .zip(0u64..)
            .map(|(x, index)| {
                let kept = f64::from(random::unit(draws, index)) >= f64::from(rate as f32);
                if kept { x / (1.0 - rate) } else { 0.0 }
            })
            .collect()
    }

    fn batch_norm_statistics(&self) -> Vec<Vec<f64>> {
        let x = self.input(0);
        let channels = *self.dims(self.node.inputs[0]).last().expect("an axis of channels");
        let count = (x.len() / channels) as f64;
        let column = |c: usize| x.iter().skip(c).step_by(channels);
        let mean: Vec<f64> = (0..channels).map(|c| column(c).sum::<f64>() / count).collect();
        let variance = (0..channels)
            .map(|c| column(c).map(|value| (value - mean[c]).powi(2)).sum::<f64>() / count)
            .collect();
        vec![mean, variance]
    }

    fn batch_norm(&self, norm: &Norm) -> Vec<f64> {
        let count = self.node.inputs.len();
        let (mean, variance) = (self.input(count - 2), self.input(count - 1));
        let channels = mean.len();
        let epsilon = f64::from(norm.epsilon);
        let normal = |(i, value): (usize, &f64)| {
            let c = i % channels;
            self.scaled(norm, (value - mean[c]) / (variance[c] + epsilon).sqrt(), c)
        };
        self.input(0).iter().enumerate().map(normal).collect()
    }

    fn layer_norm(&self, norm: &Norm, axes: usize) -> Vec<Vec<f64>> {
        let dims = self.dims(self.node.inputs[0]);
        let wide: usize = dims[dims.len() - axes..].iter().product();
        let (mut y, mut means, mut spreads) = (Vec::new(), Vec::new(), Vec::new());
        for row in self.input(0).chunks(wide) {
            let mean = row.iter().sum::<f64>() / wide as f64;
            let variance = row.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / wide as f64;
            let spread = 1.0 / (variance + f64::from(norm.epsilon)).sqrt();
            y.extend(row.iter().enumerate().map(|(i, value)| self.scaled(norm, (value - mean) * spread, i)));
            means.push(mean);
            spreads.push(spread);
        }
        vec![y, means, spreads]
    }

    fn scaled(&self, norm: &Norm, normal: f64, channel: usize) -> f64 {
        let gamma = if norm.scale { self.input(1)[channel] } else { 1.0 };
        let beta = if norm.center { self.input(1 + usize::from(norm.scale))[channel] } else { 0.0 };
        gamma * normal + beta
    }

    /// Each output pixel is an input pixel, or 0 where that lies outside.
    fn remap(&self, from: impl Fn([usize; 3]) -> Option<[usize; 3]>) -> Vec<f64> {
        let [height, width, channels] = self.image(self.node.inputs[0]);
        let out = self.image(self.node.outputs[0]);
        let x = self.input(0);
        let mut y = Vec::new();
        for row in 0..self.rows {
            for (oy, ox, c) in indices(out) {
                y.push(match from([oy, ox, c]) {
                    Some([iy, ix, c]) if iy < height && ix < width => {
                        x[((row * height + iy) * width + ix) * channels + c]
                    }
                    _ => 0.0,
                });
            }
        }
        y
    }

    fn up_sample(&self, size: [usize; 2], how: Interpolation) -> Vec<f64> {
        match how {
            Interpolation::Nearest => self.remap(|[y, x, c]| Some([y / size[0], x / size[1], c])),
            Interpolation::Bilinear => {
                let [height, width, channels] = self.image(self.node.inputs[0]);
                let x = self.input(0);
                let mut y = Vec::new();
                for row in 0..self.rows {
                    for (oy, ox, c) in indices(self.image(self.node.outputs[0])) {
                        let (vertical, horizontal) = (taps(oy, size[0], height), taps(ox, size[1], width));
                        let mut sum = 0.0;
                        for (iy, weight_y) in vertical {
                            for (ix, weight_x) in horizontal {
                                let at = ((row * height + iy) * width + ix) * channels + c;
                                sum += weight_y * weight_x * x[at];
                            }
                        }
                        y.push(sum);
                    }
                }
                y
            }
        }
    }

    fn broadcast(&self) -> Vec<f64> {
        let from = self.dims(self.node.inputs[0]);
        let to = self.dims(self.node.outputs[0]);
        let (per_row_from, per_row_to): (usize, usize) = (from.iter().product(), to.iter().product());
        let mut y = Vec::new();
        for row in 0..self.rows {
            for index in 0..per_row_to {
                let (mut rest, mut stride, mut at) = (index, 1, 0);
                for axis in (0..to.len()).rev() {
                    let place = rest % to[axis];
                    rest /= to[axis];
                    at += if from[axis] == 1 { 0 } else { place * stride };
                    stride *= from[axis];
                }
                y.push(self.input(0)[row * per_row_from + at]);
            }
        }
        y
    }

    fn concat(&self, axis: usize) -> Vec<f64> {
        let outer: usize = self.rows * self.dims(self.node.inputs[0])[..axis].iter().product::<usize>();
        let mut y = Vec::new();
        for block in 0..outer {
            for (index, id) in self.node.inputs.iter().enumerate() {
                let wide: usize = self.dims(*id)[axis..].iter().product();
                y.extend(&self.input(index)[block * wide..(block + 1) * wide]);
            }
        }
        y
    }

    fn embedding(&self) -> Vec<f64> {
        let wide = *self.dims(self.node.inputs[1]).last().expect("a table has two axes");
        let table = self.input(1);
        self.input(0).iter().flat_map(|id| table[*id as usize * wide..][..wide].to_vec()).collect()
    }
}

/// The two source pixels of an output pixel, with half-pixel centres, and their weights.
fn taps(out: usize, factor: usize, size: usize) -> [(usize, f64); 2] {
    let centre = (out as f64 + 0.5) / factor as f64 - 0.5;
    let low = centre.floor();
    let share = centre - low;
    let clamp = |place: f64| place.clamp(0.0, size as f64 - 1.0) as usize;
    [(clamp(low), 1.0 - share), (clamp(low + 1.0), share)]
}

fn indices([a, b, c]: [usize; 3]) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..a * b * c).map(move |i| (i / (b * c), i / c % b, i % c))
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = row.iter().map(|value| (value - most).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

fn unary(function: Unary, x: f64) -> f64 {
    let f = f64::from;
    match function {
        Unary::Relu => x.max(0.0),
        Unary::ReluGeneral { negative_slope, max_value, threshold } => {
            if x > f(threshold) {
                x.min(f(max_value))
            } else {
                f(negative_slope) * (x - f(threshold))
            }
        }
        Unary::LeakyRelu(negative_slope) => {
            if x > 0.0 {
                x
            } else {
                f(negative_slope) * x
            }
        }
        Unary::Elu(alpha) => {
            if x > 0.0 {
                x
            } else {
                f(alpha) * x.exp_m1()
            }
        }
        Unary::Gelu => 0.5 * x * (1.0 + error_function(x / std::f64::consts::SQRT_2)),
        Unary::Silu => x / (1.0 + (-x).exp()),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Tanh => x.tanh(),
        Unary::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Reciprocal => 1.0 / x,
        Unary::Square => x * x,
        Unary::Abs => x.abs(),
        Unary::Power(power) => x.powf(f(power)),
        Unary::Clip { low, high } => x.clamp(f(low), f(high)),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Scale(factor) => f(factor) * x,
        Unary::Offset(term) => x + f(term),
    }
}

fn binary(function: Binary, a: f64, b: f64) -> f64 {
    match function {
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Multiply => a * b,
        Binary::Divide => a / b,
        Binary::Maximum => a.max(b),
        Binary::Minimum => a.min(b),
        Binary::GreaterEqual => f64::from(u8::from(a >= b)),
        Binary::Derivative(_) => panic!("a derivative is not a forward function"),
    }
}

/// The error function by its Taylor series; exact to 1e-14 for the small arguments of tests.
fn error_function(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / n as f64;
        sum += term / (2 * n + 1) as f64;
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

/// A loss over a batch, weighted rows included.
pub fn loss(
    kind: &LossKind,
    classes: usize,
    prediction: &[f64],
    target: &[f64],
    weights: Option<&[f64]>,
) -> f64 {
    if let LossKind::Reduced { kind, reduction: Reduction::Sum, .. } = kind {
        let samples = (prediction.len() / classes) as f64;
        return samples * loss(kind, classes, prediction, target, weights);
    }
    // Of the whole batch, or of whole rows.
    let overlapped = if let LossKind::Distance(distance) = kind { distance.axes_overlapped() } else { None };
    let classes = match overlapped {
        None => classes,
        Some(0) => prediction.len(),
        Some(_) => prediction.len() / ROWS,
    };
    let samples = prediction.len() / classes;
    let per_sample = |index: usize| {
        let p = &prediction[index * classes..(index + 1) * classes];
        let t: Vec<f64> = if kind.is_sparse() {
            (0..classes).map(|c| f64::from(u8::from(c == target[index] as usize))).collect()
        } else {
            target[index * classes..(index + 1) * classes].to_vec()
        };
        sample_loss(kind, p, &t)
    };
    let weight = |index: usize| weights.map_or(1.0, |weights| weights[index * weights.len() / samples]);
    (0..samples).map(|index| weight(index) * per_sample(index)).sum::<f64>() / samples as f64
}

fn sample_loss(kind: &LossKind, p: &[f64], t: &[f64]) -> f64 {
    let count = p.len() as f64;
    let mean =
        |each: &dyn Fn(f64, f64) -> f64| p.iter().zip(t).map(|(p, t)| each(*p, *t)).sum::<f64>() / count;
    let clip = |p: f64| p.clamp(1e-7, 1.0 - 1e-7);
    match *kind {
        LossKind::MeanSquaredError => mean(&|p, t| (p - t).powi(2)),
        LossKind::MeanAbsoluteError => mean(&|p, t| (p - t).abs()),
        LossKind::Huber { delta } => {
            let delta = f64::from(delta);
            mean(&|p, t| {
                let gap = (p - t).abs();
                if gap <= delta { 0.5 * gap * gap } else { delta * gap - 0.5 * delta * delta }
            })
        }
        LossKind::BinaryCrossentropy { from_logits, label_smoothing } => {
            let smooth = f64::from(label_smoothing);
            mean(&|p, t| {
                let t = t * (1.0 - smooth) + 0.5 * smooth;
                if from_logits {
                    p.max(0.0) - p * t + (-p.abs()).exp().ln_1p()
                } else {
                    -(t * clip(p).ln() + (1.0 - t) * (1.0 - clip(p)).ln())
                }
            })
        }
        LossKind::UnitCategoricalCrossentropy { label_smoothing } => {
            let kind = LossKind::CategoricalCrossentropy { from_logits: true, label_smoothing };
            sample_loss(&kind, p, t)
        }
        LossKind::CategoricalCrossentropy { from_logits, label_smoothing } => {
            let smooth = f64::from(label_smoothing);
            let sum: f64 = p.iter().sum();
            let q: Vec<f64> =
                if from_logits { softmax(p) } else { p.iter().map(|p| clip(p / sum)).collect() };
            -t.iter().zip(&q).map(|(t, q)| (t * (1.0 - smooth) + smooth / count) * q.ln()).sum::<f64>()
        }
        LossKind::Distance(distance) => sample_distance(distance, p, t),
        LossKind::Reduced { ref kind, .. } => sample_loss(kind, p, t),
        LossKind::SparseCategoricalCrossentropy { from_logits } => {
            let q: Vec<f64> = if from_logits {
                softmax(p)
            } else {
                let clipped: Vec<f64> = p.iter().map(|p| clip(*p)).collect();
                let sum: f64 = clipped.iter().sum();
                clipped.iter().map(|p| p / sum).collect()
            };
            -t.iter().zip(&q).map(|(t, q)| t * q.ln()).sum::<f64>()
        }
    }
}
