//! Values that are copied to the host and back beside launches.

use memfit_device::Choice;
use memfit_grad::{Optimizer, Training, training_graph};
use memfit_ir::{Budget, Bytes, Kind, Loss, LossKind, Plan, Problem, TensorId, check};
use memfit_run::Runner;
use memfit_testkit::harness::{UNLIMITED, step, write_weights};
use memfit_testkit::op_cases::draw_values;
use memfit_testkit::random_graphs::random_graph;

use super::has_gpu;

/// So many rows that a copy takes longer than a launch.
const BATCH: usize = 4096;

/// Steps: launch by launch, recorded, and played.
const STEPS: u64 = 5;

#[test]
fn values_that_are_copied_out_come_back_to_the_bit() {
    if !has_gpu() {
        return;
    }
    let mut copied = Bytes::ZERO;
    for seed in 0..16 {
        let problem = problem(seed);
        let Some(plan) = memfit_plan::curve(&problem).into_iter().rfind(|plan| plan.bytes_host > Bytes::ZERO)
        else {
            continue;
        };
        copied += memfit_plan::bytes_offloaded(&plan);
        let whole = memfit_plan::plan(&problem).unwrap();
        assert_eq!(whole.bytes_host, Bytes::ZERO);
        assert_eq!(trained(&problem, plan), trained(&problem, whole), "seed {seed}");
    }
    println!("{copied} were copied out");
    assert!(Bytes(1 << 20) < copied);
}

fn problem(seed: u64) -> Problem {
    // Rows meet, so that the batch is not split.
    let training = Training {
        losses: vec![Loss { kind: LossKind::MeanSquaredError, weight: 1.0 }],
        ..Training::new(Optimizer::adam())
    };
    let graph = training_graph(&random_graph(seed, true), &training).unwrap();
    let setup = memfit_device::open_on(Choice::Cuda(0), Some(1), BATCH, false).unwrap();
    let granule = setup.granule();
    let budget = Budget { total: UNLIMITED, runtime: Bytes::ZERO, granule, host: Bytes(1 << 30) };
    let mut costs = setup.costs(&graph);
    // Computing is so slow that values are copied out instead.
    costs.iter_mut().for_each(|cost| cost.nanos_fixed *= 1e6);
    Problem {
        costs,
        costs_folded: setup.costs_folded(&graph),
        graph,
        budget,
        batch: BATCH,
        allow_batchnorm_split: false,
        transfers: setup.transfers(false),
    }
}

/// The weights after some steps.
fn trained(problem: &Problem, plan: Plan) -> Vec<Vec<f32>> {
    let setup = memfit_device::open_on(Choice::Cuda(0), Some(1), BATCH, false).unwrap();
    let mut runner = Runner::new(check(problem, plan).unwrap(), setup, &std::env::temp_dir()).unwrap();
    let values = draw_values(&problem.graph, BATCH, 3);
    write_weights(&mut runner, &values);
    for number in 0..STEPS {
        step(&mut runner, number, BATCH, 0.01, &values);
    }
    let weights = (0..problem.graph.tensors.len()).map(TensorId);
    weights
        .filter(|id| problem.graph.tensors[id.0].kind == Kind::Weight { trainable: true })
        .map(|id| runner.floats(id).to_vec())
        .collect()
}
