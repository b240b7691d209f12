//! Graphs of one metric each, on which two devices are compared: with and without weights of rows and of
//! samples, in single and half precision.

use memfit_ir::{
    Chain, ClassAverage, ClassOf, Counts, DType, Distance, FBeta, Graph, Iou, Kind, LayerId, LossKind,
    Metric, Op, Rate, RowValue, Shape, TensorId, Thresholds, Unary,
};

/// Samples of a row, and classes of a sample.
const SAMPLES: usize = 5;
const CLASSES: usize = 37;

/// All graphs, with their names.
pub(crate) fn metric_cases() -> Vec<(String, Graph)> {
    let mut graphs = Vec::new();
    for (metric, targets) in metrics() {
        for (weights, dtype) in [
            (Weights::None, DType::F32),
            (Weights::OfRows, DType::F32),
            (Weights::OfRows, DType::BF16),
            (Weights::OfSamples, DType::F32),
        ] {
            // Rows that are samples have weights of rows alone.
            if weights != Weights::OfSamples || !is_of_rows(&metric) {
                let name = format!("metric {metric:?} weights {weights:?} of {dtype}");
                graphs.push((name, graph(&metric, targets, weights, dtype)));
            }
        }
    }
    graphs
}

/// What has a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Weights {
    None,
    OfRows,
    OfSamples,
}

/// What targets are like.
#[derive(Clone, Copy, PartialEq)]
enum Targets {
    /// From 0 to 1.
    Shares,
    /// About half of them 0, the others above.
    SomeZero,
    /// Numbers of classes, as floats.
    Numbers,
    /// Numbers of classes.
    Integers,
}

fn metrics() -> Vec<(Metric, Targets)> {
    use Targets::{Integers, Numbers, Shares, SomeZero};
    let mean = |value: RowValue, targets: Targets| (Metric::Mean(value), targets);
    let loss = |kind: LossKind| mean(RowValue::Loss(kind), Shares);
    let distance = |distance: Distance| loss(LossKind::Distance(distance));
    let mut metrics = vec![
        mean(RowValue::SparseCategoricalAccuracy, Integers),
        mean(RowValue::SparseTopKCategoricalAccuracy { k: 5 }, Integers),
        mean(RowValue::BinaryAccuracy { threshold: 0.25 }, SomeZero),
        mean(RowValue::Accuracy, SomeZero),
        mean(RowValue::CategoricalAccuracy, Shares),
        mean(RowValue::TopKCategoricalAccuracy { k: 3 }, Shares),
        mean(RowValue::CosineSimilarity, Shares),
        (Metric::RootMeanSquaredError, Shares),
        loss(LossKind::MeanAbsoluteError),
        loss(LossKind::MeanSquaredError),
        loss(LossKind::BinaryCrossentropy { from_logits: true, label_smoothing: 0.1 }),
        loss(LossKind::CategoricalCrossentropy { from_logits: true, label_smoothing: 0.0 }),
        loss(LossKind::CategoricalCrossentropy { from_logits: false, label_smoothing: 0.1 }),
        distance(Distance::Poisson),
        distance(Distance::KlDivergence),
        distance(Distance::CategoricalHinge),
        distance(Distance::CategoricalFocalCrossentropy {
            from_logits: false,
            label_smoothing: 0.1,
            alpha: 0.4,
            gamma: 2.0,
        }),
    ];
    for from_logits in [true, false] {
        let kind = LossKind::SparseCategoricalCrossentropy { from_logits };
        metrics.push(mean(RowValue::Loss(kind), Integers));
    }
    metrics.extend(counts().into_iter().map(|counts| (Metric::Counts(counts), SomeZero)));
    let iou = |prediction: ClassOf, one_hot: bool, ignored: Option<i64>| {
        let classes = if prediction == ClassOf::Largest { CLASSES } else { 3 };
        Metric::Iou(Iou { classes, wanted: vec![0, 1], one_hot, prediction, ignored })
    };
    metrics.extend([
        (iou(ClassOf::Largest, false, None), Integers),
        (iou(ClassOf::Largest, false, Some(1)), Integers),
        (iou(ClassOf::Largest, true, None), Shares),
        (iou(ClassOf::Number, false, Some(2)), Numbers),
        (iou(ClassOf::AtLeast(0.4), false, None), Numbers),
    ]);
    for threshold in [None, Some(0.4)] {
        metrics.push((Metric::FBeta(FBeta { beta: 1.0, threshold, average: ClassAverage::Macro }), SomeZero));
    }
    metrics
}

fn counts() -> Vec<Counts> {
    let plain = Counts {
        thresholds: Thresholds::At(vec![0.5]),
        class: None,
        top_k: None,
        from_logits: false,
        labels: None,
        of: Rate::Precision,
    };
    let even = |count: usize, open: bool| Thresholds::Even { count, open };
    vec![
        plain.clone(),
        Counts { thresholds: Thresholds::At(vec![0.1, 0.4, 0.7]), from_logits: true, ..plain.clone() },
        Counts { thresholds: even(200, true), ..plain.clone() },
        Counts { thresholds: even(11, false), class: Some(4), ..plain.clone() },
        Counts { top_k: Some(3), ..plain.clone() },
        Counts { thresholds: even(7, true), labels: Some(vec![1.0; CLASSES]), ..plain.clone() },
        // More sums than a block keeps for itself.
        Counts { thresholds: even(60, true), labels: Some(vec![1.0; CLASSES]), ..plain },
    ]
}

fn graph(metric: &Metric, targets: Targets, weights: Weights, dtype: DType) -> Graph {
    let mut graph = Graph::default();
    let layer = graph.layer("metric");
    let dims = if is_of_rows(metric) { vec![CLASSES] } else { vec![SAMPLES, CLASSES] };
    let x = graph.tensor("x", Shape::rows(dims.clone()), DType::F32, Kind::Input, layer);
    let mut prediction = then(&mut graph, Unary::Sigmoid, x, layer);
    if matches!(metric, Metric::Iou(Iou { prediction: ClassOf::Number, .. })) {
        prediction = then(&mut graph, Unary::Scale(4.0), prediction, layer);
    }
    if dtype != DType::F32 {
        prediction = graph.push(Op::Cast(dtype), &[prediction], layer).expect("floats can be cast")[0];
    }
    let target = if targets == Targets::Integers {
        let name = format!("ids below {CLASSES}");
        graph.tensor(name, Shape::rows([SAMPLES]), DType::I32, Kind::Input, layer)
    } else {
        let shape = Shape::rows(dims);
        match targets {
            Targets::Shares | Targets::Integers => {
                graph.tensor("target", shape, DType::F32, Kind::Input, layer)
            }
            Targets::SomeZero => {
                let values = graph.tensor("t", shape, DType::F32, Kind::Input, layer);
                then(&mut graph, Unary::Relu, values, layer)
            }
            Targets::Numbers => {
                let values = graph.tensor("target", shape, DType::F32, Kind::Input, layer);
                then(&mut graph, Unary::Scale(3.0), values, layer)
            }
        }
    };
    let mut inputs = vec![prediction, target];
    let of_weights = match weights {
        Weights::None => None,
        Weights::OfRows => Some(Shape::rows([])),
        Weights::OfSamples => Some(Shape::rows([SAMPLES])),
    };
    if let Some(shape) = of_weights {
        inputs.push(graph.tensor("sample_weight", shape, DType::F32, Kind::Input, layer));
    }
    let count = metric.sums(&graph.tensors[prediction.0].shape);
    let sums = graph.tensor("sums", Shape::fixed([count]), DType::F32, Kind::Statistic, layer);
    graph
        .push_updating(Op::Metric(metric.clone()), &inputs, &[sums], Kind::Flow, layer)
        .expect("the metric takes what it is given");
    graph
}

/// Whether rows are the metric's samples: labels and scores of classes are of rows.
fn is_of_rows(metric: &Metric) -> bool {
    matches!(metric, Metric::FBeta(_) | Metric::Counts(Counts { labels: Some(_), .. }))
}

fn then(graph: &mut Graph, function: Unary, x: TensorId, layer: LayerId) -> TensorId {
    graph.push(Op::Elementwise(Chain::unary(function)), &[x], layer).expect("any shape will do")[0]
}
