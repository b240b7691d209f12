//! Metrics over several batches against what Keras computed, with any split into micro-batches.

use memfit::parse_metric;
use memfit_grad::{Optimizer, OutputMetric, Training, evaluation_graph};
use memfit_ir::{Budget, Bytes, DType, Graph, Kind, Loss, LossKind, Op, Problem, Shape, Transfers};
use memfit_testkit::harness::{UNLIMITED, Values, runner_of, step};
use memfit_testkit::specs::{draw, numbers, references};
use serde_json::{Value, json};

#[test]
fn every_metric_is_that_of_keras_after_every_batch() {
    let cases = references("metrics.json");
    assert!(80 <= cases.len(), "the reference file has its cases");
    let mut failures = Vec::new();
    for case in &cases {
        for key in ["plain", "weighted"] {
            if case.get(key).is_none() {
                continue;
            }
            for piece in [9, 4, 1] {
                if let Err(error) = check(case, key, piece) {
                    failures.push(format!("{} {key} in pieces of {piece}: {error}", case["name"]));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

fn check(case: &Value, key: &str, piece: usize) -> Result<(), String> {
    let weighted = key == "weighted";
    let batch = case["prediction"]["shape"][0].as_u64().unwrap() as usize;
    let problem = problem(case, weighted, batch)?;
    let mut runner = runner_of(&problem, memfit_plan::moves::split::pieces_of(&problem, piece));
    // The results of an earlier epoch are reset.
    for _ in 0..2 {
        runner.begin_epoch();
        let batches = case["batches"].as_array().unwrap();
        for (number, (rows, wanted)) in (0..).zip(batches.iter().zip(case[key].as_array().unwrap())) {
            let rows = rows.as_u64().unwrap();
            let mut values = Values::new();
            let specs = ["prediction", "target", "sample_weights"].map(|key| case[key].clone());
            for (input, mut spec) in problem.graph.inputs.iter().zip(specs) {
                spec["shape"][0] = json!(rows);
                values.insert(*input, draw(&spec, number));
            }
            step(&mut runner, number, rows as usize, 0.0, &values);
            let got = runner.epoch().values;
            let wanted = if wanted.is_array() { numbers(wanted) } else { vec![wanted.as_f64().unwrap()] };
            let gap = |got: f64, wanted: f64| (got - wanted).abs() / wanted.abs().max(1.0);
            let is_far =
                |(got, wanted): (&f64, &f64)| gap(*got, *wanted).is_nan() || 2e-6 < gap(*got, *wanted);
            if got.len() != wanted.len() || got.iter().zip(&wanted).any(is_far) {
                return Err(format!("{got:?} after batch {number}, and Keras has {wanted:?}"));
            }
        }
    }
    Ok(())
}

/// A model that predicts what it is given.
fn problem(case: &Value, weighted: bool, batch: usize) -> Result<Problem, String> {
    let dims = |key: &str| -> Vec<usize> {
        let shape = numbers(&case[key]["shape"]);
        shape[1..].iter().map(|size| *size as usize).collect()
    };
    let (given, target) = (dims("prediction"), dims("target"));
    let mut forward = Graph::default();
    let layer = forward.layer("out");
    let x = forward.tensor("x", Shape::rows(given.clone()), DType::F32, Kind::Input, layer);
    forward.inputs.push(x);
    let y = forward.push(Op::Reshape(given.clone()), &[x], layer).unwrap()[0];
    forward.outputs.push(y);
    let sparse = target != given;
    let kind = match sparse {
        true => LossKind::SparseCategoricalCrossentropy { from_logits: true },
        false => LossKind::MeanSquaredError,
    };
    let metric =
        parse_metric(&case["metric"], &forward.tensors[y.0], sparse).map_err(|error| error.to_string())?;
    let training = Training {
        losses: vec![Loss { kind, weight: 1.0 }],
        metrics: vec![OutputMetric { output: 0, metric, weighted }],
        sample_weights: usize::from(weighted),
        weights_of_samples: vec![weighted && 1 < numbers(&case["sample_weights"]["shape"]).len()],
        ..Training::new(Optimizer::adam())
    };
    let graph = evaluation_graph(&forward, &training).map_err(|error| error.to_string())?;
    let setup = memfit_cpu::open(Some(2)).unwrap();
    let budget = Budget {
        total: UNLIMITED,
        runtime: Bytes::ZERO,
        granule: setup.capabilities().granule,
        host: Bytes::ZERO,
    };
    Ok(Problem {
        costs: setup.costs(&graph),
        graph,
        budget,
        batch,
        costs_rewritten: Default::default(),
        allow_batchnorm_split: false,
        transfers: Transfers::default(),
        pinned: memfit_ir::Pinned::default(),
    })
}

#[test]
fn what_is_no_metric_here_is_refused_by_name() {
    let mut graph = Graph::default();
    let layer = graph.layer("out");
    let tensor = graph.tensor("y", Shape::rows([4]), DType::F32, Kind::Activation, layer);
    let prediction = &graph.tensors[tensor.0];
    for (metric, sparse, said) in [
        (json!("r2_score"), false, "unknown metric `r2_score`"),
        (
            json!({"class_name": "AUC", "config": {"label_weights": [1.0, 2.0]}}),
            false,
            "`label_weights = [1.0,2.0]`",
        ),
        (
            json!({"class_name": "Precision", "config": {"thresholds": [0.2, 0.1]}}),
            false,
            "numbers that rise",
        ),
        (json!({"class_name": "F1Score", "config": {"average": "mean"}}), false, "\"macro\""),
        (json!({"class_name": "Recall", "config": {"topk": 3}}), false, "no argument `topk`"),
        (json!({"class_name": "MeanIoU", "config": {"num_classes": 4}}), true, "sparse_y_pred=False"),
        (json!("precision"), true, "`precision` wants targets of the prediction's shape"),
        (json!("sparse_categorical_accuracy"), false, "wants class numbers"),
    ] {
        let error = parse_metric(&metric, prediction, sparse).unwrap_err().to_string();
        assert!(error.contains(said), "{metric}: {error}");
    }
}
