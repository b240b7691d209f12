//! Training small graphs in a test: values in as plain vectors, values out the same way.

use std::collections::BTreeMap;

use memfit::{DeviceChoice as Choice, Opening};
use memfit_device::Backend;
use memfit_grad::{Optimizer, Training, training_graph};
use memfit_ir::{Budget, Bytes, CheckedPlan, DType, Graph, Kind, Plan, Problem, TensorId, Transfers, check};
use memfit_run::{Feed, FeedError, Runner, StepInput, StepRecord};

/// Values of tensors, as f64 whatever their type.
pub type Values = BTreeMap<TensorId, Vec<f64>>;

/// A budget nothing can exceed.
pub const UNLIMITED: Bytes = Bytes(1 << 40);

/// Training on the CPU with this optimizer; losses are still to be given.
pub fn training(optimizer: Optimizer) -> Training {
    Training { capabilities: memfit_cpu::capabilities(), ..Training::new(optimizer) }
}

/// A training graph with the device's costs and without a budget.
pub fn problem(forward: &Graph, training: &Training, batch: usize) -> Problem {
    problem_on(Choice::Cpu, forward, training, batch)
}

/// The same with the costs of some device.
pub fn problem_on(choice: Choice, forward: &Graph, training: &Training, batch: usize) -> Problem {
    let training = Training { capabilities: choice.capabilities(), ..training.clone() };
    problem_of(&*opened(choice, batch), forward, &training, batch)
}

/// The same with the costs of a device that is open.
pub fn problem_of(setup: &dyn Backend, forward: &Graph, training: &Training, batch: usize) -> Problem {
    let graph = training_graph(forward, training).expect("the case has a training graph");
    setup.make_ready(&graph).expect("the device can run the case");
    let budget = Budget {
        total: UNLIMITED,
        runtime: Bytes::ZERO,
        granule: setup.capabilities().granule,
        host: Bytes::ZERO,
    };
    Problem {
        costs: setup.costs(&graph),
        costs_rewritten: setup.costs_rewritten(&graph),
        graph,
        budget,
        batch,
        allow_batchnorm_split: false,
        transfers: Transfers::default(),
        pinned: memfit_ir::Pinned::default(),
    }
}

/// A runner for the whole batch in one micro-batch.
pub fn runner(problem: &Problem) -> Runner {
    runner_of(problem, memfit_plan::plan(problem).expect("everything fits an unlimited budget"))
}

/// A runner for any plan.
pub fn runner_of(problem: &Problem, plan: Plan) -> Runner {
    runner_on(Choice::Cpu, problem, plan)
}

/// The same on some device.
pub fn runner_on(choice: Choice, problem: &Problem, plan: Plan) -> Runner {
    runner_in(opened(choice, problem.batch), problem, plan)
}

/// The same on a device that is open.
pub fn runner_in(setup: Box<dyn Backend>, problem: &Problem, plan: Plan) -> Runner {
    let checked: CheckedPlan = check(problem, plan).expect("the planner's plans are right");
    Runner::new(checked, setup, &std::env::temp_dir()).expect("the arena is small")
}

/// A device that rounds no factor of a product.
fn opened(choice: Choice, batch: usize) -> Box<dyn Backend> {
    choice
        .open(Opening { threads: Some(2), rows: batch, tf32: false, vectors: None, allocator: None })
        .expect("the device opens")
}

/// Writes weights into a runner.
pub fn write_weights(runner: &mut Runner, values: &Values) {
    for (tensor, value) in values {
        let kind = runner.plan().problem().graph.tensors[tensor.0].kind;
        if let Kind::Weight { .. } = kind {
            for (to, from) in runner.floats_mut(*tensor).iter_mut().zip(value) {
                *to = *from as f32;
            }
        }
    }
}

/// One step on rows given as values.
pub fn step(runner: &mut Runner, step: u64, rows: usize, learning_rate: f32, values: &Values) -> StepRecord {
    let graph = runner.plan().problem().graph.clone();
    let mut feed = VectorFeed { graph: &graph, values };
    let input = StepInput { step, rows, learning_rate, seed: 5 };
    runner.step(input, &mut feed).expect("the step runs")
}

struct VectorFeed<'a> {
    graph: &'a Graph,
    values: &'a Values,
}

impl Feed for VectorFeed<'_> {
    fn feed(&mut self, tensor: TensorId, first: usize, rows: usize, to: &mut [u8]) -> Result<(), FeedError> {
        let known = &self.graph.tensors[tensor.0];
        let width = known.shape.elements_per_row();
        let values = &self.values[&tensor][first * width..(first + rows) * width];
        match known.dtype {
            DType::F32 => write(values, to, |value| (value as f32).to_le_bytes()),
            DType::I32 => write(values, to, |value| (value as i32).to_le_bytes()),
            DType::F16 | DType::BF16 | DType::I64 | DType::U8 | DType::Bool => {
                panic!("no input is of type {}", known.dtype)
            }
        }
        Ok(())
    }
}

fn write(values: &[f64], to: &mut [u8], bytes: impl Fn(f64) -> [u8; 4]) {
    for (value, chunk) in values.iter().zip(to.chunks_exact_mut(4)) {
        chunk.copy_from_slice(&bytes(*value));
    }
}

/// The largest difference between two lists, relative to the largest value of the second.
pub fn difference(got: &[f32], wanted: &[f64]) -> f64 {
    assert_eq!(got.len(), wanted.len());
    let scale = wanted.iter().fold(1e-3f64, |most, value| most.max(value.abs()));
    got.iter().zip(wanted).fold(0.0f64, |worst, (got, wanted)| {
        let gap = (f64::from(*got) - wanted).abs() / scale;
        // A NaN on one side must not pass as equal.
        if gap.is_nan() { f64::INFINITY } else { worst.max(gap) }
    })
}
