//! Training graphs on which two devices are compared and that the op table does not have: every optimizer
//! with all its options, and sizes at which a device with many threads divides its work differently.

use memfit_grad::{ClipBy, Optimizer, Training, training_graph};
use memfit_ir::{
    Average, Chain, Constraint, Conv2D, DType, Distance, Graph, Loss, LossKind, Norm, Op, Orthogonal, Pads,
    Pool2D, Reduction, Regularizer, TensorId, Unary, UpdateRule,
};

use crate::halves::in_type;
use crate::harness::training;
use crate::metric_cases::metric_cases;
use crate::op_cases::{Builder, OpCase, case};
use crate::unreached_cases::unreached_cases;

/// All graphs, with their names.
pub fn device_cases() -> Vec<(String, Graph)> {
    let mut graphs = optimizer_cases();
    graphs.extend(weight_rule_cases());
    graphs.extend(weighted_loss_cases());
    graphs.extend(metric_cases());
    graphs.extend(unreached_cases());
    graphs
}

/// Forward graphs with sizes that the op table does not reach.
pub fn size_cases() -> Vec<OpCase> {
    let mut cases = Vec::new();
    let mut add = |name: &str, build: &dyn Fn(&mut Builder) -> TensorId| {
        cases.push(case(name, LossKind::MeanSquaredError, build));
    };
    crate::rectified_cases::add_sizes(&mut add);
    let norm = Norm { epsilon: 1e-3, scale: true, center: true };
    // A warp, a warp with a remainder, two warps, four, eight, and rows that are read again.
    for width in [768, 129, 1030, 2052, 4104, 8200] {
        add(&format!("layer_norm of {width}"), &|b| {
            let x = b.input([7, width]);
            let operands = b.norm_operands(x, &norm, &[width]);
            b.op(Op::LayerNorm(norm.clone(), 1), &operands)
        });
    }
    for channels in [64, 24, 7, 2080] {
        add(&format!("batch_norm of {channels}"), &|b| {
            let x = b.input([9, 11, channels]);
            let operands = b.norm_operands(x, &norm, &[channels]);
            b.batch_norm(&norm, operands)
        });
        add(&format!("batch_norm and relu of {channels}"), &|b| {
            let x = b.input([9, 11, channels]);
            let operands = b.norm_operands(x, &norm, &[channels]);
            let normal = b.batch_norm(&norm, operands);
            b.op(Op::Elementwise(Chain::unary(Unary::Relu)), &[normal])
        });
        add(&format!("dense to {channels} at many positions"), &|b| {
            let x = b.input([333, 5]);
            b.dense(x, channels, true)
        });
    }
    // Ids that repeat within a chunk and over many, and a table of more entries than a digit has.
    for (entries, width, positions) in [(3, 8, 700), (700, 36, 90), (70_000, 5, 40), (200, 1030, 300)] {
        add(&format!("embedding of {positions} in {entries} entries"), &|b| {
            let ids = b.ids([positions], entries);
            let table = b.weight("table", &[entries, width]);
            b.op(Op::Embedding, &[ids, table])
        });
    }
    // Of many channels, and of few with filters by the dozen: side, channels, filters, the filter's side and its step.
    for (side, channels, filters, size, stride) in
        [(6, 128, 128, 3, 1), (11, 3, 64, 3, 1), (17, 3, 128, 7, 2)]
    {
        add(&format!("conv2d of {channels} to {filters}, {size}x{size}"), &|b| {
            let x = b.input([side, side + 1, channels]);
            let pads = Pads { top: size / 2, bottom: size / 2, left: size / 2, right: size / 2 };
            let (kernel, strides) = ([size; 2], [stride; 2]);
            b.conv(x, Conv2D { kernel, strides, dilation: [1, 1], groups: 1, pads }, filters)
        });
    }
    add("softmax of 5000", &|b| {
        let x = b.input([2, 5000]);
        b.op(Op::Softmax, &[x])
    });
    add("global_average_pool2d of 72 channels", &|b| {
        let x = b.input([14, 13, 72]);
        b.op(Op::GlobalAveragePool2D, &[x])
    });
    let logits = [
        LossKind::SparseCategoricalCrossentropy { from_logits: true },
        LossKind::CategoricalCrossentropy { from_logits: true, label_smoothing: 0.1 },
    ];
    for kind in logits {
        cases.push(case(&format!("{kind:?} of 5003 classes"), kind, &|b| {
            let x = b.input([4]);
            b.dense(x, 5003, true)
        }));
    }
    cases
}

/// What a step of well-known networks moves besides its convolutions and products: a name, a training graph in its type, and rows.
pub fn speed_cases() -> Vec<(String, Graph, usize)> {
    let norm = Norm { epsilon: 1e-3, scale: true, center: true };
    let pool = |size: usize, stride: usize, pad: usize| Pool2D {
        window: [size; 2],
        strides: [stride; 2],
        pads: Pads { top: pad, bottom: pad, left: pad, right: pad },
    };
    let mut graphs = Vec::new();
    let mut add = |name: String, rows, dtype, kind, build: &dyn Fn(&mut Builder) -> TensorId| {
        let forward = case(&name, kind, build);
        let loss = forward.loss.clone();
        let forward = if dtype == DType::F32 { forward.forward } else { in_type(&forward.forward, dtype) };
        let training = Training { losses: vec![loss], ..training(Optimizer::adam()) };
        let graph = training_graph(&forward, &training).expect("the case trains");
        graphs.push((format!("{dtype} {rows} x {name}"), graph, rows));
    };
    let squares = LossKind::MeanSquaredError;
    for (side, channels) in [(112, 64), (56, 64), (56, 256), (14, 1024), (7, 2048)] {
        add(format!("batch norm {side}x{side}x{channels}"), 256, DType::BF16, squares.clone(), &|b| {
            let x = b.input([side, side, channels]);
            let operands = b.norm_operands(x, &norm, &[channels]);
            b.batch_norm(&norm, operands)
        });
    }
    for (rows, side, channels, dtype, pool) in
        [(256, 112, 64, DType::BF16, pool(3, 2, 1)), (16, 1022, 32, DType::F32, pool(2, 2, 0))]
    {
        add(format!("max pool {side}x{side}x{channels}"), rows, dtype, squares.clone(), &|b| {
            let x = b.input([side, side, 3]);
            let wide = b.dense(x, channels, true);
            b.op(Op::MaxPool2D(pool.clone()), &[wide])
        });
    }
    add("global average 7x7x2048".to_owned(), 256, DType::BF16, squares.clone(), &|b| {
        let x = b.input([7, 7, 2048]);
        let gamma = b.norm_operands(x, &norm, &[2048]);
        let normal = b.batch_norm(&norm, gamma);
        b.op(Op::GlobalAveragePool2D, &[normal])
    });
    add("layer norm 1024x768".to_owned(), 16, DType::BF16, squares.clone(), &|b| {
        let x = b.input([1024, 768]);
        let operands = b.norm_operands(x, &norm, &[768]);
        b.op(Op::LayerNorm(norm.clone(), 1), &operands)
    });
    add("embedding of 1024 in 50257x768".to_owned(), 16, DType::F32, squares, &|b| {
        let ids = b.ids([1024], 50_257);
        let table = b.weight("table", &[50_257, 768]);
        b.op(Op::Embedding, &[ids, table])
    });
    let logits = LossKind::SparseCategoricalCrossentropy { from_logits: true };
    add("logits 1024x50257".to_owned(), 16, DType::BF16, logits, &|b| {
        let x = b.input([1024, 8]);
        b.dense(x, 50_257, false)
    });
    graphs
}

fn optimizer_cases() -> Vec<(String, Graph)> {
    let [beta_1, beta_2, epsilon, rho] = [0.9, 0.99, 1e-3, 0.9];
    let rules = [
        UpdateRule::Sgd { momentum: 0.0, nesterov: false },
        UpdateRule::Sgd { momentum: 0.9, nesterov: false },
        UpdateRule::Sgd { momentum: 0.9, nesterov: true },
        UpdateRule::Adam { beta_1, beta_2, epsilon, amsgrad: false },
        UpdateRule::Adam { beta_1, beta_2, epsilon, amsgrad: true },
        UpdateRule::Rmsprop { rho, momentum: 0.0, epsilon, centered: false },
        // The mean is not that of the squares: only this much keeps what is under the root above 0.
        UpdateRule::Rmsprop { rho, momentum: 0.9, epsilon: 4.0, centered: true },
        UpdateRule::Adagrad { initial_accumulator_value: 0.1, epsilon },
        UpdateRule::Adadelta { rho, epsilon },
        UpdateRule::Adamax { beta_1, beta_2, epsilon },
        UpdateRule::Nadam { beta_1, beta_2, epsilon },
        UpdateRule::Ftrl {
            learning_rate_power: -0.5,
            initial_accumulator_value: 0.1,
            l1: 0.01,
            l2: 0.1,
            l2_shrinkage: 0.1,
            beta: 0.1,
        },
        UpdateRule::Lion { beta_1, beta_2 },
        UpdateRule::Adafactor {
            beta_2_decay: -0.8,
            epsilon_1: 1e-30,
            epsilon_2: 1e-3,
            clip_threshold: 1.0,
            relative_step: true,
        },
        UpdateRule::Lamb { beta_1, beta_2, epsilon },
    ];
    let mut graphs = Vec::new();
    for rule in rules {
        let plain = Optimizer::new(rule, 0.01);
        let with_all = Optimizer {
            weight_decay: 0.1,
            clip: ClipBy::GlobalNorm(0.01),
            average: Some(Average { momentum: 0.9, overwrite_every: Some(2) }),
            ..plain.clone()
        };
        let summed = Optimizer { accumulation_steps: 2, clip: ClipBy::Value(1e-3), ..plain.clone() };
        let not_due = Optimizer { accumulation_steps: 3, average: with_all.average, ..plain.clone() };
        let each = [("", plain), (" with all", with_all), (" summed", summed), (" not due", not_due)];
        for (what, optimizer) in each {
            let name = format!("optimizer {:?}{what}", optimizer.rule);
            let guarded = Training { guard: true, ..training(optimizer.clone()) };
            graphs.push((format!("{name} guarded"), trained(guarded, |_| {})));
            graphs.push((name, trained(training(optimizer), |_| {})));
        }
    }
    // The root of a negative number: every check of an update finds it, and nothing is written.
    let bad = UpdateRule::Adagrad { initial_accumulator_value: 0.1, epsilon: -1e30 };
    let guarded = Training { guard: true, ..training(Optimizer::new(bad, 0.01)) };
    graphs.push(("optimizer that writes nothing guarded".to_owned(), trained(guarded, |_| {})));
    graphs
}

fn weight_rule_cases() -> Vec<(String, Graph)> {
    let axes = [0, 1];
    let constraints = [
        Constraint::NonNeg,
        Constraint::MaxNorm { max_value: 0.5, axes },
        Constraint::UnitNorm { axes: [1, 2] },
        Constraint::MinMaxNorm { min_value: 0.5, max_value: 1.0, rate: 0.7, axes },
        Constraint::UnitNorm { axes: [0, 2] },
    ];
    let with = |constraint: Constraint| {
        let change = |graph: &mut Graph| {
            let kernel = graph.nodes[0].inputs[1];
            graph.penalties.push((kernel, Regularizer { l1: 0.01, l2: 0.02, orthogonal: None }));
            graph.constraints.push((kernel, constraint));
        };
        (format!("weight kept by {constraint:?}"), trained(training(Optimizer::sgd(0.1)), change))
    };
    let mut graphs: Vec<(String, Graph)> = constraints.into_iter().map(with).collect();
    for by_rows in [true, false] {
        let change = |graph: &mut Graph| {
            let kernel = graph.nodes[0].inputs[1];
            let orthogonal = Some(Orthogonal { factor: 0.3, by_rows });
            graph.penalties.push((kernel, Regularizer { l1: 0.01, l2: 0.0, orthogonal }));
            graph.activities.push((graph.outputs[0], Regularizer { l1: 0.01, l2: 0.02, orthogonal: None }));
        };
        let name = format!("weight whose lines are orthogonal, by rows {by_rows}");
        graphs.push((name, trained(training(Optimizer::sgd(0.1)), change)));
    }
    graphs
}

/// Losses whose samples have weights of their own: places that do not count, and means by weights.
fn weighted_loss_cases() -> Vec<(String, Graph)> {
    let reduced = |kind: LossKind, reduction: Reduction, ignore_class: Option<i32>| LossKind::Reduced {
        kind: Box::new(kind),
        reduction,
        ignore_class,
    };
    let sparse = |from_logits| LossKind::SparseCategoricalCrossentropy { from_logits };
    let kinds = [
        reduced(sparse(true), Reduction::Mean, Some(1)),
        reduced(sparse(false), Reduction::Mean, Some(2)),
        // A class that there is not: such samples must not count.
        reduced(sparse(true), Reduction::Sum, Some(-1)),
        reduced(LossKind::MeanSquaredError, Reduction::MeanOfWeights, None),
        reduced(LossKind::Distance(Distance::CosineSimilarity), Reduction::MeanOfWeights, None),
    ];
    let with = |kind: LossKind| {
        let forward = case("", kind.clone(), &|b| {
            let x = b.input([4, 6]);
            let logits = b.dense(x, 11, true);
            let probabilities = b.op(Op::Elementwise(Chain::unary(Unary::Sigmoid)), &[logits]);
            b.op(Op::Reshape(vec![4, 11]), &[probabilities])
        })
        .forward;
        let losses = vec![Loss { kind: kind.clone(), weight: 0.5 }];
        let training = Training { losses, sample_weights: 1, ..training(Optimizer::sgd(0.1)) };
        (format!("loss {kind:?}"), training_graph(&forward, &training).expect("the case trains"))
    };
    kinds.into_iter().map(with).collect()
}

/// A dense layer of a size that takes several blocks, trained.
fn trained(training: Training, change: impl Fn(&mut Graph)) -> Graph {
    let mut forward = case("dense", LossKind::MeanSquaredError, &|b| {
        let x = b.input([65]);
        b.dense(x, 83, true)
    })
    .forward;
    change(&mut forward);
    let losses = match training.losses.is_empty() {
        true => vec![Loss { kind: LossKind::MeanSquaredError, weight: 1.0 }],
        false => training.losses,
    };
    training_graph(&forward, &Training { losses, ..training }).expect("the case trains")
}
