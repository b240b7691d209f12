//! A prefix of the network in slices, or its tail, trains as the whole batch does.

use memfit_grad::{Optimizer, Training};
use memfit_ir::{Bytes, Cut, Graph, Kind, Loss, LossKind, Op, Plan, Problem, Region, Tail, TensorId};
use memfit_plan::moves::split::pieces_of;
use memfit_testkit::harness::{problem, runner_of, step, write_weights};
use memfit_testkit::op_cases::draw_values;
use memfit_testkit::random_graphs::random_prefix;

const BATCH: usize = 7;

/// Every cut that a random graph has, in slices that divide the batch or do not, up to one row each.
#[test]
fn every_region_of_a_random_graph_trains_as_the_whole_batch_does() {
    let (mut regions, mut with_dropout) = (0, 0);
    for seed in 0..60 {
        let problem = problem_of(&random_prefix(seed));
        let whole = pieces_of(&problem, BATCH);
        let wanted = trained_weights(&problem, whole);
        let dropout = problem.graph.nodes.iter().position(|node| matches!(node.op, Op::Dropout { .. }));
        let cuts = (0..problem.graph.tensors.len()).filter_map(|id| Cut::at(&problem.graph, TensorId(id)));
        for (index, cut) in cuts.enumerate() {
            let (slices, keeps) = ([2, 3, BATCH][index % 3], index % 2 == 0);
            let region = Region { boundary: cut.boundary, slices, keeps };
            let plan = pieces_of(&region.applied(&problem).unwrap(), BATCH);
            assert_eq!(plan.region(), Some(region));
            let got = trained_weights(&problem, plan);
            regions += 1;
            with_dropout += usize::from(cut.forward.iter().any(|node| Some(node.0) == dropout));
            compare(&got, &wanted, &format!("seed {seed}, {region:?}"));
        }
    }
    assert!(100 < regions && 10 < with_dropout, "{regions} regions, {with_dropout} with dropout");
}

/// The last layer, its loss and its gradients in slices, also where a batch has fewer rows than there are slices.
#[test]
fn every_tail_of_a_random_graph_trains_as_the_whole_batch_does() {
    let mut tails = 0;
    for seed in 0..60 {
        let problem = problem_of(&random_prefix(seed));
        let wanted = trained_weights(&problem, pieces_of(&problem, BATCH));
        for tail in Tail::all(&problem.graph) {
            let region =
                Region { boundary: tail.boundary, slices: [2, 3, BATCH][seed as usize % 3], keeps: true };
            assert!(region.is_tail(&problem.graph));
            let plan = pieces_of(&region.applied(&problem).unwrap(), BATCH);
            assert_eq!(plan.region(), Some(region));
            tails += 1;
            compare(&trained_weights(&problem, plan), &wanted, &format!("seed {seed}, {region:?}"));
        }
    }
    assert!(30 < tails, "{tails} tails");
}

#[test]
fn below_what_the_whole_batch_needs_a_region_is_planned_and_trains_the_same() {
    let mut planned = 0;
    for seed in 0..20 {
        let mut problem = problem_of(&random_prefix(seed));
        let wanted = trained_weights(&problem, memfit_plan::plan(&problem).unwrap());
        let curve = memfit_plan::curve(&problem);
        assert!(curve.windows(2).all(|two| two[1].bytes_peak < two[0].bytes_peak));
        let Some(sliced) = curve.iter().find(|plan| plan.region().is_some()) else { continue };
        problem.budget.total = problem.budget.smallest(sliced.bytes_peak);
        let plan = memfit_plan::plan(&problem).unwrap();
        planned += 1;
        compare(&trained_weights(&problem, plan), &wanted, &format!("seed {seed}"));
        let smallest = memfit_plan::smallest_budget(&problem);
        problem.budget.total = smallest;
        assert!(memfit_plan::plan(&problem).is_ok());
        problem.budget.total = Bytes(smallest.0 - 1);
        assert_eq!(memfit_plan::plan(&problem).unwrap_err().smallest, smallest);
    }
    assert!(5 < planned, "{planned} of 20 graphs were planned with a region");
}

#[test]
fn no_region_holds_rows_that_meet() {
    for seed in 0..20 {
        let graph = problem_of(&random_prefix(seed)).graph;
        let mixing = graph.nodes.iter().position(|node| node.op.mixes_rows()).unwrap();
        for node in &graph.nodes[mixing..] {
            let cut = node.outputs.first().and_then(|id| Cut::at(&graph, *id));
            assert!(cut.is_none_or(|cut| cut.forward.iter().all(|id| id.0 < mixing)), "seed {seed}");
        }
    }
}

fn problem_of(forward: &Graph) -> Problem {
    let kind = LossKind::CategoricalCrossentropy { from_logits: false, label_smoothing: 0.0 };
    let training =
        Training { losses: vec![Loss { kind, weight: 1.0 }], ..Training::new(Optimizer::sgd(0.1)) };
    problem(forward, &training, BATCH)
}

/// Weights after a full batch, one with fewer rows than there are slices, and another full one; and the losses of the three.
fn trained_weights(problem: &Problem, plan: Plan) -> Vec<Vec<f32>> {
    let values = draw_values(&problem.graph, BATCH, 3);
    let mut runner = runner_of(problem, plan);
    write_weights(&mut runner, &values);
    let mut losses = Vec::new();
    for (number, rows) in [BATCH, 2, BATCH].into_iter().enumerate() {
        losses.push(step(&mut runner, number as u64, rows, 0.1, &values).loss as f32);
    }
    let weights = (0..problem.graph.tensors.len())
        .map(TensorId)
        .filter(|id| problem.graph.tensors[id.0].kind == Kind::Weight { trainable: true })
        .map(|id| runner.floats(id).to_vec());
    weights.chain([losses]).collect()
}

fn compare(got: &[Vec<f32>], wanted: &[Vec<f32>], what: &str) {
    for (got, wanted) in got.iter().zip(wanted) {
        for (got, wanted) in got.iter().zip(wanted) {
            let near = (got - wanted).abs() <= 1e-5 * wanted.abs().max(1.0);
            assert!(near, "{what}: {got} and {wanted}");
        }
    }
}
