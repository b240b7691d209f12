//! Graphs at the edges: outputs that are inputs, models without trainable weights, weights that do not decay, and gradients like
//! TensorFlow's.

use memfit_grad::{ClipBy, GradError, Optimizer, Training, prediction_graph, training_graph};
use memfit_ir::{DType, Graph, Kind, Loss, LossKind, Op, Shape, TensorId, UpdateRule};

/// Ids, an embedding of them that is trainable or not, and a dense layer over both words.
fn words(trainable: bool) -> (Graph, TensorId, TensorId) {
    let mut graph = Graph::default();
    let layer = graph.layer("words");
    let weight = Kind::Weight { trainable };
    let ids = graph.tensor("ids", Shape::rows([2]), DType::I32, Kind::Input, layer);
    let table = graph.tensor("table", Shape::fixed([5, 3]), DType::F32, weight, layer);
    let kernel = graph.tensor("kernel", Shape::fixed([6, 2]), DType::F32, weight, layer);
    graph.inputs.push(ids);
    let entries = graph.push(Op::Embedding, &[ids, table], layer).expect("a table")[0];
    let flat = graph.push(Op::Reshape(vec![6]), &[entries], layer).expect("as many elements")[0];
    graph.outputs = graph.push(Op::Dense, &[flat, kernel], layer).expect("a kernel");
    (graph, table, kernel)
}

fn training(optimizer: Optimizer) -> Training {
    Training {
        losses: vec![Loss { kind: LossKind::MeanSquaredError, weight: 1.0 }],
        ..Training::new(optimizer)
    }
}

fn count(graph: &Graph, is_wanted: impl Fn(&Op) -> bool) -> usize {
    graph.nodes.iter().filter(|node| is_wanted(&node.op)).count()
}

#[test]
fn an_output_that_is_an_input_is_copied() {
    let mut forward = Graph::default();
    let layer = forward.layer("identity");
    let x = forward.tensor("x", Shape::rows([3]), DType::F32, Kind::Input, layer);
    forward.inputs.push(x);
    forward.outputs = vec![x, x];
    let graph = prediction_graph(&forward);
    assert_eq!(graph.nodes.len(), 2);
    assert!(graph.outputs.iter().all(|output| *output != x && graph.keep.contains(output)));
}

#[test]
fn a_model_without_trainable_weights_has_a_graph_without_updates() {
    let graph =
        training_graph(&words(false).0, &training(Optimizer::adam())).expect("nothing to train is no error");
    assert_eq!(count(&graph, |op| matches!(op, Op::Update(_))), 0);
    assert_eq!(count(&graph, |op| matches!(op, Op::Loss(_))), 1);
}

#[test]
fn trainable_weights_that_lead_to_no_loss_are_an_error() {
    let (mut forward, _, kernel) = words(false);
    let layer = forward.layer("apart");
    forward.tensor("apart/kernel", Shape::fixed([2]), DType::F32, Kind::Weight { trainable: true }, layer);
    assert_ne!(forward.tensors.len(), kernel.0 + 1);
    assert_eq!(training_graph(&forward, &training(Optimizer::adam())), Err(GradError::NothingToTrain));
}

#[test]
fn weights_that_are_excluded_do_not_decay() {
    let (forward, table, kernel) = words(true);
    let optimizer = Optimizer { weight_decay: 0.5, undecayed: vec![table], ..Optimizer::adam() };
    let graph = training_graph(&forward, &training(optimizer)).expect("a training graph");
    for (weight, decay) in [(table, 0.0), (kernel, 0.5)] {
        let update = graph.nodes.iter().find(|node| node.updates.first() == Some(&weight));
        let update = update.expect("every weight is updated");
        assert!(matches!(&update.op, Op::Update(update) if update.weight_decay == decay));
    }
}

/// How many states are corrected for an optimizer, or why it is refused.
fn corrected(optimizer: Optimizer) -> Result<usize, GradError> {
    let like_tensorflow = Training { like_tensorflow: true, ..training(optimizer) };
    let graph = training_graph(&words(true).0, &like_tensorflow)?;
    let squares = count(&graph, |op| matches!(op, Op::EmbeddingGrad)) - 1;
    let states = count(&graph, |op| matches!(op, Op::CorrectSquares(_)));
    assert_eq!(squares, states, "sums of squares are made where a state follows them");
    Ok(states)
}

#[test]
fn state_follows_sums_of_squares_like_tensorflow_s() {
    let adam = Optimizer::adam;
    let rule = |rule: UpdateRule| Optimizer::new(rule, 0.1);
    let adamax = UpdateRule::Adamax { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-7 };
    let adagrad = UpdateRule::Adagrad { initial_accumulator_value: 0.1, epsilon: 1e-7 };
    let table = [
        (adam(), Ok(1)),
        (rule(adagrad), Ok(1)),
        (Optimizer::sgd(0.1), Ok(0)),
        (Optimizer { accumulation_steps: 2, ..adam() }, Ok(0)),
        (rule(adamax), Err(GradError::UnlikeTensorflow("Adamax"))),
        (
            Optimizer { clip: ClipBy::Norm(1.0), ..adam() },
            Err(GradError::UnlikeTensorflow("clipped gradients")),
        ),
    ];
    for (optimizer, expected) in table {
        assert_eq!(corrected(optimizer.clone()), expected, "{optimizer:?}");
    }
}
