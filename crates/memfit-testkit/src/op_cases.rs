//! The op table: one row for each op checks its shape, its value against the f64 reference and its gradient
//! against finite differences.

use memfit_ir::{
    Binary, Chain, Conv2D, DType, Distance, Graph, Initializer, Interpolation, Kind, LayerId, Link, Loss,
    LossKind, Norm, Op, Pads, Pool2D, Reduction, Shape, TensorId, Unary, random,
};

use crate::harness::Values;

/// Rows of every case.
pub const ROWS: usize = 3;

/// One row of the table.
pub struct OpCase {
    /// A name that says what the row tests.
    pub name: String,
    /// The forward graph, with one output.
    pub forward: Graph,
    /// The loss put on the output.
    pub loss: Loss,
    /// Whether rows carry weights.
    pub sample_weights: bool,
}

/// All rows.
pub fn op_cases() -> Vec<OpCase> {
    let mut cases = Vec::new();
    let mut add = |name: &str, build: &dyn Fn(&mut Builder) -> TensorId| {
        cases.push(case(name, LossKind::MeanSquaredError, build));
    };
    add("dense", &|b| {
        let x = b.input([5]);
        b.dense(x, 4, true)
    });
    add("dense without bias on three axes", &|b| {
        let x = b.input([3, 5]);
        b.dense(x, 2, false)
    });
    for (name, conv) in convolutions() {
        add(&format!("conv2d {name}"), &move |b| {
            let x = b.input([6, 5, 4]);
            b.conv(x, conv.clone(), 6)
        });
    }
    for (name, conv) in convolutions().into_iter().filter(|(_, conv)| conv.groups == 1) {
        add(&format!("conv2d of three channels {name}"), &move |b| {
            let x = b.input([6, 11, 3]);
            b.conv(x, conv.clone(), 8)
        });
    }
    for (name, pool) in pools() {
        add(&format!("max_pool2d {name}"), &{
            let pool = pool.clone();
            move |b: &mut Builder| {
                let x = b.input([6, 5, 2]);
                b.op(Op::MaxPool2D(pool.clone()), &[x])
            }
        });
        add(&format!("average_pool2d {name}"), &move |b| {
            let x = b.input([6, 5, 2]);
            b.op(Op::AveragePool2D(pool.clone()), &[x])
        });
    }
    add("global_average_pool2d", &|b| {
        let x = b.input([4, 3, 2]);
        b.op(Op::GlobalAveragePool2D, &[x])
    });
    add("global_max_pool2d", &|b| {
        let x = b.input([4, 3, 2]);
        b.op(Op::GlobalMaxPool2D, &[x])
    });
    for (name, function) in unaries() {
        add(&format!("elementwise {name}"), &move |b| {
            let x = b.input([2, 9]);
            b.op(Op::Elementwise(Chain::unary(function)), &[x])
        });
    }
    add("relu kept as bits", &|b| {
        // Only the gradient of the relu reads its output.
        let x = b.input([4, 5, 3]);
        let dense = b.dense(x, 3, true);
        let relu = b.op(Op::Elementwise(Chain::unary(Unary::Relu)), &[dense]);
        b.op(Op::GlobalAveragePool2D, &[relu])
    });
    add_elementwise(&mut add);
    crate::norm_cases::add(&mut add);
    add_spatial(&mut add);
    add("softmax", &|b| {
        let x = b.input([2, 5]);
        b.op(Op::Softmax, &[x])
    });
    add("dropout", &|b| {
        let x = b.input([40]);
        b.op(Op::Dropout { rate: 0.3, seed: 9 }, &[x])
    });
    add("embedding", &|b| {
        let ids = b.ids([4], 7);
        let table = b.weight("table", &[7, 3]);
        b.op(Op::Embedding, &[ids, table])
    });
    add("reshape", &|b| {
        let x = b.input([4, 3]);
        let dense = b.dense(x, 2, false);
        b.op(Op::Reshape(vec![8]), &[dense])
    });
    add("a table read both ways", &|b| {
        let ids = b.ids([4], 7);
        let table = b.weight("table", &[7, 3]);
        let entries = b.op(Op::Embedding, &[ids, table]);
        b.op(Op::DenseGradInput, &[entries, table])
    });
    add("residual branches", &|b| {
        // Sums with a product forward, with gradients of products and with that of a normalisation backward.
        let x = b.input([3, 8]);
        let gamma = b.weight("gamma", &[8]);
        let norm = Norm { epsilon: 1e-3, scale: true, center: false };
        let normal = b.op(Op::LayerNorm(norm, 1), &[x, gamma]);
        let (left, right) = (b.dense(normal, 4, true), b.dense(normal, 4, false));
        let both = b.op(Op::Elementwise(Chain::binary(Binary::Add)), &[left, right]);
        let branch = b.dense(both, 8, true);
        let sum = b.op(Op::Elementwise(Chain::binary(Binary::Add)), &[x, branch]);
        // Gradients stay within the range of f16, also where they are scaled.
        b.op(Op::Elementwise(Chain::unary(Unary::Scale(0.1))), &[sum])
    });
    add("a shared layer", &|b| {
        let (x, y) = (b.input([5]), b.input([5]));
        let kernel = b.weight("kernel", &[5, 3]);
        let (left, right) = (b.op(Op::Dense, &[x, kernel]), b.op(Op::Dense, &[y, kernel]));
        b.op(Op::Elementwise(Chain::binary(Binary::Multiply)), &[left, right])
    });
    crate::attention_cases::add(&mut add);
    crate::operation_cases::add(&mut add);
    crate::pooled_cases::add(&mut add);
    crate::pooled_cases::add_dense(&mut add);
    crate::rectified_cases::add(&mut add);
    crate::recurrent_cases::add(&mut add);
    crate::spatial_cases::add(&mut add);
    crate::volume_cases::add(&mut add);
    cases.extend(losses());
    cases
}

/// Adds a row to the table.
pub(crate) type Add<'a> = &'a mut dyn FnMut(&str, &dyn Fn(&mut Builder) -> TensorId);

fn add_elementwise(add: Add<'_>) {
    for (name, function) in [
        ("add", Binary::Add),
        ("subtract", Binary::Subtract),
        ("multiply", Binary::Multiply),
        ("maximum", Binary::Maximum),
    ] {
        for inputs in [2, 3] {
            add(&format!("elementwise {name} of {inputs}"), &move |b| {
                let all: Vec<TensorId> = (0..inputs).map(|_| b.input([7])).collect();
                b.op(Op::Elementwise(Chain::fold(function, inputs)), &all)
            });
        }
    }
    add("elementwise affine", &|b| {
        let x = b.input([7]);
        b.op(Op::Elementwise(Chain::affine(0.5, -0.25)), &[x])
    });
    add("elementwise chain tanh(silu(a) · b) + a", &|b| {
        let (x, y) = (b.input([7]), b.input([7]));
        let links = vec![
            Link::Unary(Unary::Silu, 0),
            Link::Binary(Binary::Multiply, 2, 1),
            Link::Unary(Unary::Tanh, 3),
            Link::Binary(Binary::Add, 4, 0),
        ];
        b.op(Op::Elementwise(Chain { inputs: 2, links }), &[x, y])
    });
    add("elementwise square of one tensor", &|b| {
        let x = b.input([7]);
        b.op(Op::Elementwise(Chain::binary(Binary::Multiply)), &[x, x])
    });
}

fn add_spatial(add: Add<'_>) {
    let pads = Pads { top: 1, bottom: 2, left: 0, right: 3 };
    add("pad2d", &move |b| {
        let x = b.input([3, 4, 2]);
        b.op(Op::Pad2D(pads), &[x])
    });
    add("crop2d", &move |b| {
        let x = b.input([5, 6, 2]);
        b.op(Op::Crop2D(pads), &[x])
    });
    for how in [Interpolation::Nearest, Interpolation::Bilinear] {
        for size in [[2, 2], [2, 3]] {
            add(&format!("up_sample2d {how:?} {size:?}"), &move |b| {
                let x = b.input([3, 4, 2]);
                b.op(Op::UpSample2D(size, how), &[x])
            });
        }
    }
    for dims in [[1, 1, 2], [3, 1, 1], [1, 4, 2]] {
        add(&format!("broadcast {dims:?}"), &move |b| {
            let x = b.input(dims);
            b.op(Op::Broadcast(vec![3, 4, 2]), &[x])
        });
    }
    for axis in 0..3 {
        add(&format!("concat axis {axis}"), &move |b| {
            let mut dims = [2, 3, 2];
            let x = b.input(dims);
            dims[axis] = 4;
            let y = b.input(dims);
            let z = b.input(dims);
            b.op(Op::Concat(axis), &[x, y, z])
        });
    }
}

fn convolutions() -> Vec<(&'static str, Conv2D)> {
    let plain =
        Conv2D { kernel: [3, 3], strides: [1, 1], dilation: [1, 1], groups: 1, pads: Pads::default() };
    let around = Pads { top: 1, bottom: 1, left: 1, right: 1 };
    vec![
        ("valid", plain.clone()),
        ("same", Conv2D { pads: around, ..plain.clone() }),
        ("1 by 1", Conv2D { kernel: [1, 1], ..plain.clone() }),
        ("2 by 3", Conv2D { kernel: [2, 3], ..plain.clone() }),
        (
            "strides",
            Conv2D { strides: [2, 1], pads: Pads { top: 0, bottom: 1, left: 1, right: 1 }, ..plain.clone() },
        ),
        ("dilation", Conv2D { dilation: [2, 2], ..plain.clone() }),
        ("groups", Conv2D { groups: 2, pads: around, ..plain.clone() }),
        ("depthwise", Conv2D { groups: 4, ..plain.clone() }),
        ("depthwise strides", Conv2D { groups: 4, strides: [2, 2], pads: around, ..plain }),
    ]
}

fn pools() -> Vec<(&'static str, Pool2D)> {
    let pads = Pads::default();
    vec![
        ("2", Pool2D { window: [2, 2], strides: [2, 2], pads }),
        ("overlapping", Pool2D { window: [3, 2], strides: [1, 1], pads }),
        (
            "same",
            Pool2D { window: [3, 3], strides: [2, 2], pads: Pads { top: 0, bottom: 1, left: 1, right: 1 } },
        ),
    ]
}

fn unaries() -> Vec<(&'static str, Unary)> {
    let general =
        |negative_slope, max_value, threshold| Unary::ReluGeneral { negative_slope, max_value, threshold };
    vec![
        ("relu", Unary::Relu),
        ("relu with a roof", general(0.0, 0.5, 0.0)),
        ("relu with slope and threshold", general(0.1, f32::INFINITY, 0.2)),
        ("leaky_relu", Unary::LeakyRelu(0.2)),
        ("elu", Unary::Elu(0.7)),
        ("gelu", Unary::Gelu),
        ("silu", Unary::Silu),
        ("sigmoid", Unary::Sigmoid),
        ("tanh", Unary::Tanh),
        ("softplus", Unary::Softplus),
        ("scale", Unary::Scale(-1.5)),
        ("offset", Unary::Offset(0.3)),
    ]
}

fn losses() -> Vec<OpCase> {
    let kinds = [
        LossKind::MeanSquaredError,
        LossKind::MeanAbsoluteError,
        LossKind::Huber { delta: 0.3 },
        LossKind::BinaryCrossentropy { from_logits: true, label_smoothing: 0.0 },
        LossKind::BinaryCrossentropy { from_logits: true, label_smoothing: 0.2 },
        LossKind::BinaryCrossentropy { from_logits: false, label_smoothing: 0.1 },
        LossKind::CategoricalCrossentropy { from_logits: true, label_smoothing: 0.0 },
        LossKind::CategoricalCrossentropy { from_logits: true, label_smoothing: 0.2 },
        LossKind::CategoricalCrossentropy { from_logits: false, label_smoothing: 0.1 },
        LossKind::SparseCategoricalCrossentropy { from_logits: true },
        LossKind::SparseCategoricalCrossentropy { from_logits: false },
        LossKind::Distance(Distance::Poisson),
        LossKind::Distance(Distance::LogCosh),
        LossKind::Distance(Distance::Hinge),
        LossKind::Distance(Distance::SquaredHinge),
        LossKind::Distance(Distance::MeanSquaredLogarithmicError),
        LossKind::Distance(Distance::KlDivergence),
        LossKind::Distance(Distance::CategoricalHinge),
        LossKind::Distance(Distance::CosineSimilarity),
        LossKind::Distance(Distance::BinaryFocalCrossentropy {
            from_logits: true,
            label_smoothing: 0.1,
            alpha: Some(0.3),
            gamma: 2.5,
        }),
        LossKind::Distance(focal(true)),
        LossKind::Distance(focal(false)),
        LossKind::Distance(Distance::Dice { axes: 2 }),
        LossKind::Distance(Distance::Dice { axes: 0 }),
        LossKind::Distance(Distance::Tversky { alpha: 0.3, beta: 0.6, axes: 2 }),
        LossKind::Distance(Distance::Tversky { alpha: 0.3, beta: 0.6, axes: 0 }),
        LossKind::Reduced {
            kind: Box::new(LossKind::MeanSquaredError),
            reduction: Reduction::Sum,
            ignore_class: None,
        },
    ];
    let mut cases = Vec::new();
    for kind in kinds {
        for sample_weights in [false, true].into_iter().filter(|weights| !weights || !kind.mixes_rows()) {
            let name = format!("loss {kind:?} weights {sample_weights}");
            // A reshape after the sigmoid keeps its probabilities from being turned back into logits.
            let mut case = case(&name, kind.clone(), &|b| {
                let x = b.input([2, 4]);
                let sigmoid = b.op(Op::Elementwise(Chain::unary(Unary::Sigmoid)), &[x]);
                b.op(Op::Reshape(vec![2, 4]), &[sigmoid])
            });
            case.sample_weights = sample_weights;
            case.loss.weight = 0.5;
            cases.push(case);
        }
    }
    cases
}

fn focal(from_logits: bool) -> Distance {
    Distance::CategoricalFocalCrossentropy { from_logits, label_smoothing: 0.1, alpha: 0.4, gamma: 2.5 }
}

pub(crate) fn case(name: &str, kind: LossKind, build: &dyn Fn(&mut Builder) -> TensorId) -> OpCase {
    let mut graph = Graph::default();
    let layer = graph.layer("case");
    let mut builder = Builder { graph, layer };
    let output = build(&mut builder);
    builder.graph.outputs.push(output);
    OpCase {
        name: name.to_owned(),
        forward: builder.graph,
        loss: Loss { kind, weight: 1.0 },
        sample_weights: false,
    }
}

/// Builds a forward graph, one call for each op.
pub struct Builder {
    /// The graph so far.
    pub graph: Graph,
    /// The layer everything belongs to.
    pub layer: LayerId,
}

impl Builder {
    /// A float input.
    pub fn input(&mut self, dims: impl Into<Vec<usize>>) -> TensorId {
        let name = format!("x{}", self.graph.inputs.len());
        let id = self.graph.tensor(name, Shape::rows(dims), DType::F32, Kind::Input, self.layer);
        self.graph.inputs.push(id);
        id
    }

    /// Ids below a number of entries.
    pub fn ids(&mut self, dims: impl Into<Vec<usize>>, entries: usize) -> TensorId {
        let id = self.graph.tensor(
            format!("ids below {entries}"),
            Shape::rows(dims),
            DType::I32,
            Kind::Input,
            self.layer,
        );
        self.graph.inputs.push(id);
        id
    }

    /// A weight that trains.
    pub fn weight(&mut self, name: &str, dims: &[usize]) -> TensorId {
        let name = format!("{name}{}", self.graph.tensors.len());
        let kind = Kind::Weight { trainable: true };
        let id = self.graph.tensor(name, Shape::fixed(dims), DType::F32, kind, self.layer);
        self.graph.initial.push((id, Initializer::Constant(0.0)));
        id
    }

    /// A weight that is not trained.
    pub fn fixed(&mut self, name: &str, dims: &[usize]) -> TensorId {
        let kind = Kind::Weight { trainable: false };
        self.graph.tensor(name, Shape::fixed(dims), DType::F32, kind, self.layer)
    }

    /// The first operand of a normalisation and the weights it has.
    pub fn norm_operands(&mut self, x: TensorId, norm: &Norm, dims: &[usize]) -> Vec<TensorId> {
        let mut operands = vec![x];
        if norm.scale {
            operands.push(self.weight("gamma", dims));
        }
        if norm.center {
            operands.push(self.weight("beta", dims));
        }
        operands
    }

    /// A batch normalisation of the first operand by its own statistics.
    pub fn batch_norm(&mut self, norm: &Norm, mut operands: Vec<TensorId>) -> TensorId {
        let statistics = self.graph.push(Op::BatchNormStatistics, &operands[..1], self.layer);
        operands.extend(statistics.expect("the case is well shaped"));
        self.op(Op::BatchNorm(norm.clone()), &operands)
    }

    /// A dense layer.
    pub fn dense(&mut self, x: TensorId, units: usize, bias: bool) -> TensorId {
        let wide = self.graph.tensors[x.0].shape.last();
        let mut operands = vec![x, self.weight("kernel", &[wide, units])];
        if bias {
            operands.push(self.weight("bias", &[units]));
        }
        self.op(Op::Dense, &operands)
    }

    /// A convolution with bias.
    pub fn conv(&mut self, x: TensorId, conv: Conv2D, filters: usize) -> TensorId {
        let channels = self.graph.tensors[x.0].shape.last();
        let filters = filters.div_ceil(conv.groups) * conv.groups;
        let kernel =
            self.weight("kernel", &[conv.kernel[0], conv.kernel[1], channels / conv.groups, filters]);
        let bias = self.weight("bias", &[filters]);
        self.op(Op::Conv2D(conv), &[x, kernel, bias])
    }

    /// Any op; its first output.
    pub fn op(&mut self, op: Op, inputs: &[TensorId]) -> TensorId {
        self.graph.push(op, inputs, self.layer).expect("the case is well shaped")[0]
    }
}

/// Values for every input and weight of a training graph.
pub fn draw_values(graph: &Graph, rows: usize, seed: u64) -> Values {
    let mut values = Values::new();
    for (index, tensor) in graph.tensors.iter().enumerate() {
        let drawn = match tensor.kind {
            Kind::Input | Kind::Weight { .. } => true,
            Kind::Optimizer | Kind::Gradient | Kind::Flow | Kind::Activation | Kind::Statistic => false,
        };
        if !drawn {
            continue;
        }
        let count = tensor.shape.elements(rows) as u64;
        let seed = seed + index as u64;
        let classes = tensor.name.strip_prefix("ids below ").and_then(|text| text.parse().ok()).unwrap_or(3);
        let (low, high) = match tensor.name.as_str() {
            "moving_variance" | "sample_weight" => (0.5, 1.5),
            name if name.starts_with("gamma") => (0.5, 1.5),
            name if name.starts_with("target") => (0.0, 1.0),
            _ => (-1.0, 1.0),
        };
        let is_integer = tensor.dtype == DType::I32;
        let draw = |i: u64| {
            if is_integer {
                random::integer(seed, i, 0, classes) as f64
            } else {
                f64::from(random::uniform(seed, i, low, high))
            }
        };
        values.insert(TensorId(index), (0..count).map(draw).collect());
    }
    values
}
