//! Random graphs under random budgets: refused with a bound, or equal to the unconstrained run.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on says where it stopped"
)]

use memfit_grad::{Optimizer, Training};
use memfit_ir::{Bytes, DType, Fold, Folding, Graph, Kind, Loss, LossKind, Problem, TensorId};
use memfit_plan::moves::reorder::as_written;
use memfit_run::Runner;
use memfit_testkit::halves::in_type;
use memfit_testkit::harness::{problem, runner, runner_of, step, write_weights};
use memfit_testkit::op_cases::draw_values;
use memfit_testkit::random_graphs::{Draws, random_graph, random_stack};

const BATCH: usize = 7;

#[test]
fn a_random_graph_is_refused_with_a_bound_or_equals_the_unconstrained_run() {
    let (mut refused, mut whole, mut split, mut recomputed, mut offloaded) = (0, 0, 0, 0, 0);
    let (mut in_slices, mut folded) = (0, 0);
    for seed in 0..120 {
        let mut problem = random_problem(seed, seed % 4 == 0);
        // Every third graph may copy values out to a file, and computes so slowly that it will.
        if seed % 3 == 0 {
            problem.budget.host = Bytes(1 << 30);
            problem.costs.iter_mut().for_each(|cost| cost.nanos_fixed *= 1000.0);
        }
        let reference = trained_weights(&problem, runner(&problem));
        let written = trained_weights(&problem, runner_of(&problem, as_written(&problem)));
        assert_eq!(written, reference, "seed {seed}: another order gives other bits");
        let mut draws = Draws { seed, next: 1000 };
        let smallest = memfit_plan::smallest_budget(&problem);
        let most = memfit_plan::plan(&problem).unwrap().bytes_peak;
        for _ in 0..6 {
            let low = smallest.0 - smallest.0 / 16;
            let span = (most.0 + (16 << 10)).saturating_sub(low);
            let total = Bytes(low + draws.below(span as usize) as u64);
            let tight = with_budget(&problem, total);
            match memfit_plan::plan(&tight) {
                Err(answer) => {
                    refused += 1;
                    assert_eq!(answer.smallest, smallest, "seed {seed}");
                    assert!(total < smallest, "seed {seed}: refused at {total} though {smallest} fits");
                }
                Ok(plan) => {
                    assert!(smallest <= total, "seed {seed}: planned below the smallest budget");
                    assert!(plan.bytes_bound <= plan.bytes_peak && plan.bytes_peak <= total);
                    let pieces = plan.micro_batches() * plan.region.map_or(1, |region| region.slices);
                    in_slices += usize::from(plan.region.is_some());
                    folded += usize::from(!plan.folds.is_empty() && pieces == 1);
                    offloaded += usize::from(plan.bytes_host > Bytes::ZERO && pieces == 1);
                    recomputed += usize::from(memfit_plan::nodes_recomputed(&plan) > 0 && pieces == 1);
                    let got = trained_weights(&tight, runner_of(&tight, plan));
                    if pieces == 1 {
                        whole += 1;
                        assert_eq!(got, reference, "seed {seed}: the same plan gives other bits");
                    } else {
                        split += 1;
                        compare(&got, &reference, tolerance(&problem), seed);
                    }
                }
            }
        }
    }
    let counts = format!(
        "{refused} refused, {whole} whole ({recomputed} recomputed, {offloaded} offloaded, {folded} folded), {split} split \
         ({in_slices} a region of them)"
    );
    assert!(
        refused > 10
            && whole > 10
            && split > 10
            && recomputed > 10
            && offloaded > 5
            && in_slices > 0
            && folded > 0,
        "{counts}"
    );
}

#[test]
fn folding_all_that_can_be_folded_changes_no_bit() {
    let mut folded = 0;
    for seed in 0..24 {
        let problem = trained(&random_stack(seed));
        let (graph, readers) = Folding::all(&problem.graph);
        assert!(readers.iter().all(|id| problem.costs_folded.contains_key(id)), "seed {seed}");
        let reference = trained_weights(&problem, runner(&problem));
        let plan = memfit_plan::plan(&Fold::applied(&problem, &graph.folds).unwrap()).unwrap();
        assert_eq!(plan.folds, graph.folds, "seed {seed}");
        assert_eq!(
            trained_weights(&problem, runner_of(&problem, plan)),
            reference,
            "seed {seed}: other bits"
        );
        folded += graph.folds.len();
    }
    assert!(folded > 40, "{folded} values folded");
}

#[test]
fn a_larger_budget_never_gives_a_slower_plan_or_a_refusal() {
    for seed in 100..112 {
        let problem = random_problem(seed, seed % 2 == 0);
        let smallest = memfit_plan::smallest_budget(&problem);
        let most = memfit_plan::plan(&problem).unwrap().bytes_peak + Bytes(4096);
        let mut before = f64::INFINITY;
        for index in 0..=40 {
            let total = Bytes(smallest.0 + (most.0.saturating_sub(smallest.0)) * index / 40);
            let plan = memfit_plan::plan(&with_budget(&problem, total)).unwrap();
            let seconds = memfit_plan::seconds(&problem, &plan);
            assert!(seconds <= before * (1.0 + 1e-9), "seed {seed}: {total} gives a slower plan");
            before = seconds;
        }
        assert!(memfit_plan::plan(&with_budget(&problem, Bytes(smallest.0 - 1))).is_err());
    }
}

fn random_problem(seed: u64, batch_norm: bool) -> Problem {
    // Every fifth graph computes in one of the half types.
    let forward = match seed % 10 {
        3 => in_type(&random_graph(seed, batch_norm), DType::F16),
        8 => in_type(&random_graph(seed, batch_norm), DType::BF16),
        _ => random_graph(seed, batch_norm),
    };
    trained(&forward)
}

fn trained(forward: &Graph) -> Problem {
    let kind = LossKind::CategoricalCrossentropy { from_logits: false, label_smoothing: 0.0 };
    let training =
        Training { losses: vec![Loss { kind, weight: 1.0 }], ..Training::new(Optimizer::sgd(0.1)) };
    problem(forward, &training, BATCH)
}

fn with_budget(problem: &Problem, total: Bytes) -> Problem {
    let mut tight = problem.clone();
    tight.budget.total = total;
    tight
}

fn trained_weights(problem: &Problem, mut runner: Runner) -> Vec<Vec<f32>> {
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

/// How far weights may be off when the batch was split: a sum in another order, and where values are halves, those of the
/// second step rounded to the other side.
fn tolerance(problem: &Problem) -> f32 {
    let holds = |dtype: DType| problem.graph.tensors.iter().any(|tensor| tensor.dtype == dtype);
    if holds(DType::BF16) {
        4e-3
    } else if holds(DType::F16) {
        5e-4
    } else {
        1e-5
    }
}

fn compare(got: &[Vec<f32>], wanted: &[Vec<f32>], tolerance: f32, seed: u64) {
    for (got, wanted) in got.iter().zip(wanted) {
        for (got, wanted) in got.iter().zip(wanted) {
            let near = (got - wanted).abs() <= tolerance * wanted.abs().max(1.0);
            assert!(near, "seed {seed}: {got} and {wanted}");
        }
    }
}
