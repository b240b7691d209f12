//! Random graphs that are trained for two steps, on any device and under any plan, and how near two trainings must be.

use memfit::DeviceChoice as Choice;
use memfit_grad::{Optimizer, Training};
use memfit_ir::{Bytes, DType, Graph, Kind, Loss, LossKind, Problem, TensorId};
use memfit_run::Runner;

use crate::halves::in_type;
use crate::harness::{problem_on, step, write_weights};
use crate::op_cases::draw_values;
use crate::random_graphs::random_graph;

/// Rows of a step.
pub const BATCH: usize = 7;

/// The training of a random graph.
pub fn random_problem(choice: Choice, seed: u64, batch_norm: bool) -> Problem {
    // Every fifth graph computes in one of the half types.
    let forward = match seed % 10 {
        3 => in_type(&random_graph(seed, batch_norm), DType::F16),
        8 => in_type(&random_graph(seed, batch_norm), DType::BF16),
        _ => random_graph(seed, batch_norm),
    };
    trained(choice, &forward)
}

/// The training of a graph.
pub fn trained(choice: Choice, forward: &Graph) -> Problem {
    let kind = LossKind::CategoricalCrossentropy { from_logits: false, label_smoothing: 0.0 };
    let training =
        Training { losses: vec![Loss { kind, weight: 1.0 }], ..Training::new(Optimizer::sgd(0.1)) };
    problem_on(choice, forward, &training, BATCH)
}

/// The same under a budget.
pub fn with_budget(problem: &Problem, total: Bytes) -> Problem {
    let mut tight = problem.clone();
    tight.budget.total = total;
    tight
}

/// The weights after two steps.
pub fn trained_weights(problem: &Problem, mut runner: Runner) -> Vec<Vec<f32>> {
    let values = draw_values(&problem.graph, BATCH, 3);
    write_weights(&mut runner, &values);
    for number in 0..2 {
        step(&mut runner, number, BATCH, 0.1, &values);
    }
    (0..problem.graph.tensors.len())
        .map(TensorId)
        .filter(|id| problem.graph.tensors[id.0].kind == Kind::Weight { trainable: true })
        .map(|id| runner.floats(id).to_vec())
        .collect()
}

/// How far weights may differ when the batch was split: sums run in another order, and values of the second
/// step may round to the other side in f16 or bf16.
pub fn tolerance(problem: &Problem) -> f32 {
    let holds = |dtype: DType| problem.graph.tensors.iter().any(|tensor| tensor.dtype == dtype);
    if holds(DType::BF16) {
        4e-3
    } else if holds(DType::F16) {
        5e-4
    } else {
        1e-5
    }
}

/// Fails where two trainings are further apart than a tolerance.
pub fn compare(got: &[Vec<f32>], wanted: &[Vec<f32>], tolerance: f32, seed: u64) {
    for (got, wanted) in got.iter().zip(wanted) {
        for (got, wanted) in got.iter().zip(wanted) {
            let near = (got - wanted).abs() <= tolerance * wanted.abs().max(1.0);
            assert!(near, "seed {seed}: {got} and {wanted}");
        }
    }
}
