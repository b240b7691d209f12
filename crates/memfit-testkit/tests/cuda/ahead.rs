//! Steps in flight: a step begins before the readback of the one before it. Tested are what they report, what
//! they change, and the time that they save.

use std::time::Instant;

use memfit::{Borrowed, BorrowedArray, BorrowedOrder, Job, Purpose, Session, StepOf, prepare};
use memfit_ir::{Bytes, Graph, Kind, Plan, Problem, SyntheticValues, TensorId, Values as Drawn, check};
use memfit_run::{Culprit, Feed, FeedError, RunError, Runner, StepInput};
use memfit_testkit::harness::{Values, write_weights};
use memfit_testkit::op_cases::draw_values;

use super::copies::{BATCH, Batches, one_after_the_other, problem, weights};
use super::has_gpu;

fn opened(problem: &Problem) -> Runner {
    let setup = memfit_cuda::open(0, BATCH, false).unwrap();
    let plan = check(problem, memfit_plan::plan(problem).unwrap()).unwrap();
    let mut runner = Runner::new(plan, setup, &std::env::temp_dir()).unwrap();
    write_weights(&mut runner, &draw_values(&problem.graph, BATCH, 3));
    runner
}

/// Losses of some batches, up to the first step that fails, with `ahead` more steps in flight.
fn run(runner: &mut Runner, graph: &Graph, batches: &[Values], ahead: usize) -> (Vec<u64>, Option<RunError>) {
    let mut losses = Vec::new();
    for step in 0..batches.len() {
        let batch = |number: usize| Batches { graph, batches: &batches[number..], next: None };
        let input = StepInput { step: step as u64, rows: BATCH, learning_rate: 0.01, seed: 5 };
        runner.begin(input, &mut batch(step)).unwrap();
        let left = if step + 1 == batches.len() { 0 } else { ahead };
        while left < runner.steps_in_flight() {
            match runner.end(&mut batch(losses.len())) {
                Ok(record) => losses.push(record.loss.to_bits()),
                Err(error) => return (losses, Some(error)),
            }
        }
    }
    (losses, None)
}

#[test]
fn steps_in_flight_report_the_same_as_single_steps() {
    if !has_gpu() {
        return;
    }
    // More steps than contexts in flight.
    let problem = problem(2);
    let batches: Vec<Values> = (0..7).map(|seed| draw_values(&problem.graph, BATCH, seed)).collect();
    let batches: Vec<Values> = (0..70).map(|step| batches[step % batches.len()].clone()).collect();
    let [alone, ahead] = [0, 1].map(|ahead| {
        let mut runner = opened(&problem);
        let (losses, error) = run(&mut runner, &problem.graph, &batches, ahead);
        assert!(error.is_none(), "{error:?}");
        assert_eq!((losses.len(), runner.steps_in_flight(), runner.updates()), (70, 0, 70));
        (losses, weights(&problem, &runner))
    });
    assert!(alone == ahead, "the same bits");
}

#[test]
fn a_step_that_is_not_finite_is_named_with_the_next_in_flight() {
    if !has_gpu() {
        return;
    }
    let problem = problem(2);
    let graph = &problem.graph;
    let mut batches: Vec<Values> = (0..8).map(|seed| draw_values(graph, BATCH, seed)).collect();
    let input = *graph.inputs.iter().find(|id| graph.tensors[id.0].kind == Kind::Input).unwrap();
    let width = graph.tensors[input.0].shape.elements_per_row();
    batches[5].get_mut(&input).unwrap()[17 * width] = f64::NAN;
    let mut before = opened(&problem);
    assert!(run(&mut before, graph, &batches[..5], 0).1.is_none());
    for ahead in [0, 1] {
        let mut runner = opened(&problem);
        let (losses, error) = run(&mut runner, graph, &batches, ahead);
        assert_eq!((losses.len(), runner.steps_in_flight(), runner.updates()), (5, 0, 5));
        let Some(RunError::NotFinite(found)) = error else { panic!("{error:?}") };
        assert_eq!((found.step, found.culprit), (5, Culprit::Input { row: 17 }));
        assert!(weights(&problem, &runner) == weights(&problem, &before), "no weight changed");
        // What comes after changes them again.
        assert!(run(&mut runner, graph, &batches[..2], ahead).1.is_none());
        assert!(weights(&problem, &runner) != weights(&problem, &before));
    }
}

const IMAGES: &str = r#"
[model]
layers = [{class="Input",shape=[224,224,3]}, {class="Conv2D",filters=64,kernel_size=7,strides=2,activation="relu"},
  {class="Conv2D",filters=128,kernel_size=3,activation="relu"}, {class="Conv2D",filters=128,kernel_size=3,activation="relu"},
  {class="GlobalAveragePooling2D"}, {class="Dense",units=10,activation="softmax"}]
[train]
loss = "categorical_crossentropy"
optimizer = "sgd"
batch = 128
device = "cuda"
[memory]
budget = "12GiB"
"#;

/// Times of rows from the host, with and without steps in flight and batches that are announced. No limit is
/// checked.
#[test]
#[ignore = "it only tells times"]
fn times_of_rows_from_the_host() {
    const ROWS: usize = 512;
    let job = Job::parse(IMAGES, "".into()).unwrap();
    let mut session = Session::plan(&job, Purpose::Training, Some(1)).unwrap();
    let floats = |count: usize| -> Vec<u8> {
        (0..count).flat_map(|index| ((index % 97) as f32 / 97.0).to_le_bytes()).collect()
    };
    let (x, y) = (floats(ROWS * 224 * 224 * 3), floats(ROWS * 10));
    let fields = session.fields().to_vec();
    let lent = [
        BorrowedArray { description: "<f4", dims: &[ROWS as u64, 224, 224, 3], bytes: &x },
        BorrowedArray { description: "<f4", dims: &[ROWS as u64, 10], bytes: &y },
    ];
    session.open().unwrap();
    for (ahead, announces) in [(0, false), (0, true), (1, false), (1, true)] {
        let (mut source, batch) =
            (Borrowed::new(&fields, &lent, BorrowedOrder::Stored).unwrap(), job.train.batch);
        let start = |step: usize| (step * batch % ROWS) as u64;
        let (mut ended, mut begun, mut since) = (0, 0, Instant::now());
        session.begin_epoch();
        for step in 0..40 {
            if step == 10 {
                since = Instant::now();
            }
            let next = (announces && step < 39).then(|| (start(step + 1), batch));
            let of = StepOf { start: start(step), rows: batch, learning_rate: Some(0.01), next };
            session.begin(&mut source, of).unwrap();
            begun += 1;
            while (if step == 39 { 0 } else { ahead }) < begun - ended {
                session.end(&mut source, start(ended)).unwrap();
                ended += 1;
            }
        }
        let milliseconds = since.elapsed().as_secs_f64() * 1e3 / 30.0;
        println!("rows of 77 MB from the host: ahead {ahead}, announced {announces}: {milliseconds:.2} ms");
    }
}

/// Times of copies to the host and back, concurrent with launches and one after the other. No limit is
/// checked.
#[test]
#[ignore = "it only tells times"]
fn times_of_copies_beside_launches() {
    // Rows depend on each other, so that the batch is not split.
    let normalised = r#"{class="BatchNormalization"}, {class="GlobalAveragePooling2D"}"#;
    let text = IMAGES.replace(r#"{class="GlobalAveragePooling2D"}"#, normalised);
    let mut job = Job::parse(&text, "".into()).unwrap();
    job.memory.host = Some(Bytes(16 << 30));
    let prepared = prepare(&job, Some(1)).unwrap();
    let mut problem = prepared.problem;
    // Computing is said to be so slow that values are copied out instead.
    for cost in &mut problem.costs {
        (cost.nanos_fixed, cost.measured) = (cost.nanos_fixed + 1e9, None);
    }
    let copies = |plan: &Plan| Bytes::ZERO < plan.bytes_host && plan.region().is_none();
    let plan = memfit_plan::curve(&problem).into_iter().find(copies).unwrap();
    println!("{} are copied out in a step", memfit_plan::bytes_offloaded(&plan));
    for (name, plan) in
        [("beside launches", plan.clone()), ("one after the other", one_after_the_other(plan))]
    {
        println!("copies {name}: {:.2} ms", time(&problem, plan));
    }
}

fn time(problem: &Problem, plan: Plan) -> f64 {
    let setup = memfit_cuda::open(0, problem.batch, true).unwrap();
    let mut runner = Runner::new(check(problem, plan).unwrap(), setup, &std::env::temp_dir()).unwrap();
    memfit::initialize(&mut runner);
    let mut since = Instant::now();
    for step in 0..24 {
        if step == 8 {
            since = Instant::now();
        }
        let input = StepInput { step, rows: problem.batch, learning_rate: 0.0, seed: 5 };
        runner.step(input, &mut SyntheticRows).unwrap();
    }
    since.elapsed().as_secs_f64() * 1e3 / 16.0
}

struct SyntheticRows;

impl Feed for SyntheticRows {
    fn feed(&mut self, _: TensorId, _: usize, _: usize, to: &mut [u8]) -> Result<(), FeedError> {
        to.fill(0);
        Ok(())
    }

    fn synthetic_values(&self, _: TensorId) -> Option<(SyntheticValues, u64)> {
        Some((SyntheticValues { values: Drawn::Uniform { low: 0.0, high: 1.0 }, seed: 1 }, 0))
    }
}
