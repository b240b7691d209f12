//! Values that are copied to the host and back concurrently with launches, and rows that wait on the host for
//! the next step.

use memfit_grad::{Optimizer, Training, training_graph};
use memfit_ir::{
    Budget, Bytes, DType, Graph, Kind, Loss, LossKind, Place, Plan, Problem, Step, TensorId, check,
};
use memfit_run::{Feed, FeedError, Runner, StepInput};
use memfit_testkit::harness::{UNLIMITED, Values, step, write_weights};
use memfit_testkit::op_cases::draw_values;
use memfit_testkit::random_graphs::random_graph;

use super::has_gpu;

/// With this many rows, a copy takes longer than a launch.
pub(super) const BATCH: usize = 4096;

/// Steps: launch by launch, captured, and replayed.
const STEPS: u64 = 5;

#[test]
fn values_that_are_copied_out_come_back_to_the_bit() {
    if !has_gpu() {
        return;
    }
    let mut copied = Bytes::ZERO;
    for seed in 0..6 {
        let problem = problem(seed);
        let Some(plan) = memfit_plan::curve(&problem).into_iter().rfind(|plan| plan.bytes_host > Bytes::ZERO)
        else {
            continue;
        };
        copied += memfit_plan::bytes_offloaded(&plan);
        let whole = memfit_plan::plan(&problem).unwrap();
        assert_eq!(whole.bytes_host, Bytes::ZERO);
        let beside = trained(&problem, plan.clone());
        assert_eq!(beside, trained(&problem, one_after_the_other(plan)), "seed {seed}");
        // A library may compute in another order where another node writes a sum first.
        for (got, wanted) in beside.iter().flatten().zip(trained(&problem, whole).iter().flatten()) {
            assert!((got - wanted).abs() <= 1e-5, "seed {seed}: {got} instead of {wanted}");
        }
    }
    println!("{copied} were copied out");
    assert!(Bytes(1 << 20) < copied);
}

/// The plan with a wait right after every copy.
pub(super) fn one_after_the_other(mut plan: Plan) -> Plan {
    let steps = std::mem::take(&mut plan.body);
    for step in steps.into_iter().filter(|step| !matches!(step, Step::Wait(_))) {
        let copied = match &step {
            Step::Copy { from: Place::Arena(slot), to: Place::Host(_) }
            | Step::Copy { from: Place::Host(_), to: Place::Arena(slot) } => Some(Step::Wait(*slot)),
            Step::Copy { .. } | Step::Launch { .. } | Step::Wait(_) => None,
        };
        plan.body.push(step);
        plan.body.extend(copied);
    }
    plan
}

pub(super) fn problem(seed: u64) -> Problem {
    // Rows depend on each other, so that the batch is not split.
    let training = Training {
        losses: vec![Loss { kind: LossKind::MeanSquaredError, weight: 1.0 }],
        ..Training::new(Optimizer::adam())
    };
    let graph = training_graph(&random_graph(seed, true), &training).unwrap();
    let setup = memfit_cuda::open(0, BATCH, false).unwrap();
    let granule = setup.capabilities().granule;
    let budget = Budget { total: UNLIMITED, runtime: Bytes::ZERO, granule, host: Bytes(1 << 30) };
    let mut costs = setup.costs(&graph);
    // Computing is so slow that values are copied out instead.
    costs.iter_mut().for_each(|cost| cost.nanos_fixed *= 1e6);
    Problem {
        costs,
        costs_rewritten: setup.costs_rewritten(&graph),
        graph,
        budget,
        batch: BATCH,
        allow_batchnorm_split: false,
        transfers: setup.transfers(false),
        pinned: memfit_ir::Pinned::default(),
    }
}

/// The weights after some steps.
fn trained(problem: &Problem, plan: Plan) -> Vec<Vec<f32>> {
    let setup = memfit_cuda::open(0, BATCH, false).unwrap();
    let mut runner = Runner::new(check(problem, plan).unwrap(), setup, &std::env::temp_dir()).unwrap();
    let values = draw_values(&problem.graph, BATCH, 3);
    write_weights(&mut runner, &values);
    for number in 0..STEPS {
        step(&mut runner, number, BATCH, 0.01, &values);
    }
    weights(problem, &runner)
}

pub(super) fn weights(problem: &Problem, runner: &Runner) -> Vec<Vec<f32>> {
    let weights = (0..problem.graph.tensors.len()).map(TensorId);
    weights
        .filter(|id| problem.graph.tensors[id.0].kind == Kind::Weight { trainable: true })
        .map(|id| runner.floats(id).to_vec())
        .collect()
}

#[test]
fn rows_that_were_staged_ahead_are_those_of_their_batch() {
    if !has_gpu() {
        return;
    }
    // Captured and replayed steps, with short ones among them: the batch that was announced and staged need
    // not have been captured.
    let rows = [BATCH, BATCH, BATCH / 2, BATCH, BATCH, BATCH / 2, BATCH, BATCH, 5, BATCH];
    let problem = problem(2);
    let [staged, unstaged] = [true, false].map(|promises| {
        let setup = memfit_cuda::open(0, BATCH, false).unwrap();
        let plan = check(&problem, memfit_plan::plan(&problem).unwrap()).unwrap();
        assert!(plan.plan().ahead.is_some(), "rows have a place to wait on the device");
        let mut runner = Runner::new(plan, setup, &std::env::temp_dir()).unwrap();
        write_weights(&mut runner, &draw_values(&problem.graph, BATCH, 3));
        let batches: Vec<Values> =
            (0..rows.len() as u64).map(|seed| draw_values(&problem.graph, BATCH, seed)).collect();
        for (number, now) in rows.into_iter().enumerate() {
            let next = rows.get(number + 1).copied().filter(|_| promises);
            let mut feed = Batches { graph: &problem.graph, batches: &batches[number..], next };
            let input = StepInput { step: number as u64, rows: now, learning_rate: 0.01, seed: 5 };
            runner.step(input, &mut feed).unwrap();
        }
        weights(&problem, &runner)
    });
    assert_eq!(staged, unstaged);
}

/// This batch and those after it.
pub(super) struct Batches<'a> {
    pub(super) graph: &'a Graph,
    pub(super) batches: &'a [Values],
    pub(super) next: Option<usize>,
}

impl Batches<'_> {
    fn write(&self, batch: usize, tensor: TensorId, first: usize, rows: usize, to: &mut [u8]) {
        let known = &self.graph.tensors[tensor.0];
        let is_integer = known.dtype == DType::I32;
        let width = known.shape.elements_per_row();
        let values = &self.batches[batch][&tensor][first * width..(first + rows) * width];
        for (four, value) in to.as_chunks_mut().0.iter_mut().zip(values) {
            *four = if is_integer { (*value as i32).to_ne_bytes() } else { (*value as f32).to_ne_bytes() };
        }
    }
}

impl Feed for Batches<'_> {
    fn feed(&mut self, tensor: TensorId, first: usize, rows: usize, to: &mut [u8]) -> Result<(), FeedError> {
        self.write(0, tensor, first, rows, to);
        Ok(())
    }

    fn rows_next(&self) -> Option<usize> {
        self.next
    }

    fn feed_next(
        &mut self,
        tensor: TensorId,
        first: usize,
        rows: usize,
        to: &mut [u8],
    ) -> Result<(), FeedError> {
        self.write(1, tensor, first, rows, to);
        Ok(())
    }
}
