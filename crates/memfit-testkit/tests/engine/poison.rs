//! Poisoned trainings: with any data, optimizer and learning rate, no value that is not finite is written to
//! what outlives a step, and the error names what the step changed: under `guard = "step"` nothing.
//!
//! Some hundred are drawn here; `MEMFIT_POISONED` asks for more.

use std::collections::BTreeMap;

use memfit_formats::{Mode, Options, Precision, graph_from_layers};
use memfit_grad::{ClipBy, Optimizer, Training};
use memfit_ir::{Average, Graph, Initializer, Kind, Loss, LossKind, Plan, Problem, TensorId, UpdateRule};
use memfit_plan::moves::split::{may_split, pieces_of};
use memfit_run::{Culprit, Feed, FeedError, Found, NotFinite, RunError, Runner, StepInput};
use memfit_testkit::harness::{problem, runner_of};
use memfit_testkit::random_graphs::Draws;
use serde_json::{Value, json};

const BATCH: usize = 6;
const STEPS: u64 = 3;

/// The fault of a training.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Poison {
    /// One value of an input, at a step.
    Input(f32, u64),
    /// One value of the targets.
    Target(f32, u64),
    /// Every value of an input is multiplied by this.
    Scale(f32),
    /// The learning rate alone.
    Rate,
}

/// A training that is drawn, and all that is known of it.
#[derive(Debug)]
struct Case {
    layers: Vec<Value>,
    optimizer: Optimizer,
    learning_rate: f32,
    poison: Poison,
    precision: Option<&'static str>,
    split: bool,
    guard: bool,
}

/// How a training ended.
struct Ended {
    error: Option<NotFinite>,
    /// What outlives steps, before the last step and at the end.
    before: BTreeMap<String, Vec<u32>>,
    after: BTreeMap<String, Vec<u32>>,
}

fn models() -> Vec<Vec<Value>> {
    let dense =
        |units: usize, activation: &str| json!({"class": "Dense", "units": units, "activation": activation});
    let input = |shape: Value| json!({"class": "Input", "shape": shape});
    let layer = |class: &str| json!({"class": class});
    let bounded = json!({"class": "Dense", "units": 9, "kernel_constraint":
        {"class_name": "MinMaxNorm", "config": {"min_value": 0.1, "max_value": 1.0, "rate": 0.5, "axis": 0}}});
    let positive = json!({"class": "Dense", "units": 9, "kernel_constraint": {"class_name": "NonNeg"},
        "kernel_regularizer": {"class_name": "L2", "config": {"l2": 0.1}}});
    let conv = json!({"class": "Conv2D", "filters": 4, "kernel_size": 3});
    vec![
        vec![input(json!([12])), dense(16, "tanh"), dense(3, "linear")],
        vec![input(json!([12])), dense(16, "relu"), dense(8, "sigmoid"), dense(3, "linear")],
        vec![
            input(json!([12])),
            dense(16, "linear"),
            layer("BatchNormalization"),
            layer("ReLU"),
            dense(3, "linear"),
        ],
        vec![input(json!([12])), layer("BatchNormalization"), dense(8, "tanh"), dense(3, "sigmoid")],
        vec![input(json!([5, 6])), json!({"class": "LSTM", "units": 8}), dense(3, "linear")],
        vec![input(json!([5, 6])), json!({"class": "GRU", "units": 8}), dense(3, "linear")],
        vec![
            input(json!([8, 8, 2])),
            conv,
            layer("BatchNormalization"),
            layer("ReLU"),
            layer("MaxPooling2D"),
            layer("Flatten"),
            dense(3, "linear"),
        ],
        vec![input(json!([12])), dense(16, "linear"), layer("LayerNormalization"), dense(3, "linear")],
        vec![input(json!([12])), bounded, dense(3, "linear")],
        vec![input(json!([12])), positive, dense(3, "linear")],
        vec![input(json!([900])), dense(20, "tanh"), dense(3, "linear")],
    ]
}

fn rules() -> Vec<UpdateRule> {
    let (beta_1, beta_2, epsilon) = (0.9, 0.999, 1e-7);
    let mut rules = vec![
        UpdateRule::Sgd { momentum: 0.0, nesterov: false },
        UpdateRule::Sgd { momentum: 0.9, nesterov: true },
        UpdateRule::Adam { beta_1, beta_2, epsilon, amsgrad: false },
        UpdateRule::Adam { beta_1, beta_2, epsilon, amsgrad: true },
        UpdateRule::Adagrad { initial_accumulator_value: 0.1, epsilon },
        UpdateRule::Adadelta { rho: 0.95, epsilon },
        UpdateRule::Adamax { beta_1, beta_2, epsilon },
        UpdateRule::Nadam { beta_1, beta_2, epsilon },
        UpdateRule::Ftrl {
            learning_rate_power: -0.5,
            initial_accumulator_value: 0.1,
            l1: 0.01,
            l2: 0.01,
            l2_shrinkage: 0.01,
            beta: 0.1,
        },
        UpdateRule::Lion { beta_1, beta_2: 0.99 },
        UpdateRule::Adafactor {
            beta_2_decay: -0.8,
            epsilon_1: 1e-30,
            epsilon_2: 1e-3,
            clip_threshold: 1.0,
            relative_step: true,
        },
        UpdateRule::Lamb { beta_1, beta_2, epsilon },
    ];
    for (momentum, centered) in [(0.0, false), (0.0, true), (0.8, false), (0.8, true)] {
        rules.push(UpdateRule::Rmsprop { rho: 0.9, momentum, epsilon, centered });
    }
    rules
}

impl Case {
    fn drawn(seed: u64) -> Case {
        let mut draws = Draws { seed, next: 0 };
        let mut pick = |count: usize| draws.below(count);
        let (models, rules) = (models(), rules());
        let mut optimizer = Optimizer::new(rules[pick(rules.len())].clone(), 0.001);
        optimizer.average =
            [None, Some(Average { momentum: 0.9, overwrite_every: Some(2) })][usize::from(pick(3) == 0)];
        optimizer.weight_decay = [0.0, 0.01][usize::from(pick(4) == 0)];
        optimizer.accumulation_steps = [1, 2][usize::from(pick(4) == 0)];
        optimizer.clip =
            [ClipBy::None, ClipBy::None, ClipBy::Value(0.5), ClipBy::Norm(1.0), ClipBy::GlobalNorm(1.0)]
                [pick(5)];
        let at = pick(STEPS as usize) as u64;
        let value = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e38, -3e38, 1e25][pick(6)];
        let poison = match pick(8) {
            0..4 => Poison::Input(value, at),
            4 => Poison::Target(value, at),
            5 => Poison::Scale([1e38, 1e20, 1e-30][pick(3)]),
            _ => Poison::Rate,
        };
        let learning_rate = match poison {
            Poison::Rate => [1e3, 1e5, 1e10, 1e30][pick(4)],
            Poison::Input(..) | Poison::Target(..) | Poison::Scale(_) => [1e-3, 1e-3, 1e4][pick(3)],
        };
        Case {
            layers: models[pick(models.len())].clone(),
            optimizer,
            learning_rate,
            poison,
            precision: [None, None, Some("mixed_float16"), Some("mixed_bfloat16")][pick(4)],
            split: pick(2) == 0,
            guard: false,
        }
    }

    fn problem(&self) -> Problem {
        let precision: Option<Precision> = self.precision.map(|policy| policy.parse().unwrap());
        let options = Options { mode: Mode::Training, seed: 3, precision };
        let forward = graph_from_layers(&self.layers, None, &options).unwrap();
        let losses = vec![Loss { kind: LossKind::MeanSquaredError, weight: 1.0 }];
        problem(
            &forward,
            &Training { losses, guard: self.guard, ..Training::new(self.optimizer.clone()) },
            BATCH,
        )
    }

    fn plan(&self, problem: &Problem) -> Plan {
        match self.split && may_split(problem) {
            true => pieces_of(problem, 2),
            false => memfit_plan::plan(problem).unwrap(),
        }
    }

    /// Trains until a step is stopped.
    fn run(&self) -> Ended {
        let problem = self.problem();
        let mut runner = runner_of(&problem, self.plan(&problem));
        begin(&mut runner, &problem.graph);
        let mut before = lasting(&runner);
        for step in 0..STEPS {
            let mut feed = Poisoned { graph: &problem.graph, poison: self.poison, step };
            let input = StepInput { step, rows: BATCH, learning_rate: self.learning_rate, seed: 5 };
            let done = runner.step(input, &mut feed);
            let after = lasting(&runner);
            for (name, values) in &after {
                let finite = values.iter().all(|bits| f32::from_bits(*bits).is_finite());
                assert!(finite, "`{name}` is not finite after step {step} of {self:?}: {done:?}");
            }
            match done {
                Ok(_) => before = after,
                Err(RunError::NotFinite(error)) => return Ended { error: Some(*error), before, after },
                Err(other) => panic!("{other} in {self:?}"),
            }
        }
        let after = lasting(&runner);
        Ended { error: None, before, after }
    }
}

/// Weights and state to begin with.
fn begin(runner: &mut Runner, graph: &Graph) {
    for index in 0..graph.tensors.len() {
        let known = &graph.tensors[index];
        let mut draws = Draws { seed: index as u64, next: 0 };
        let first = graph.initial.iter().find(|(id, _)| id.0 == index).map(|(_, first)| *first);
        let mut value = || match (known.kind, &first) {
            (Kind::Optimizer, Some(Initializer::Constant(value))) => *value,
            (Kind::Optimizer, _) => 0.0,
            _ if known.name.ends_with("moving_variance") => 1.0,
            _ => draws.below(1000) as f32 / 2000.0 - 0.25,
        };
        if let Kind::Weight { .. } | Kind::Optimizer = known.kind {
            runner.floats_mut(TensorId(index)).iter_mut().for_each(|float| *float = value());
        }
    }
}

/// The bits of all that outlives a step.
fn lasting(runner: &Runner) -> BTreeMap<String, Vec<u32>> {
    let graph = &runner.plan().problem().graph;
    let lasting = graph.tensors.iter().enumerate().filter(|(_, tensor)| match tensor.kind {
        Kind::Weight { .. } | Kind::Optimizer => true,
        Kind::Input | Kind::Gradient | Kind::Flow | Kind::Activation | Kind::Statistic => false,
    });
    let bits = |index: usize| runner.floats(TensorId(index)).iter().map(|float| float.to_bits()).collect();
    lasting.map(|(index, tensor)| (tensor.name.clone(), bits(index))).collect()
}

/// Rows of small numbers, but for what is poisoned.
struct Poisoned<'a> {
    graph: &'a Graph,
    poison: Poison,
    step: u64,
}

/// The row that holds the poison, of those in the batch, and where it stands in the file.
const ROW: usize = 4;
const FIRST_ROW: u64 = 1000;

impl Feed for Poisoned<'_> {
    fn feed(&mut self, tensor: TensorId, first: usize, rows: usize, to: &mut [u8]) -> Result<(), FeedError> {
        let known = &self.graph.tensors[tensor.0];
        let (width, is_target) = (known.shape.elements_per_row(), known.name.starts_with("target"));
        for (index, chunk) in to.chunks_exact_mut(4).take(rows * width).enumerate() {
            let (row, column) = (first + index / width, index % width);
            let seed = self.step * 100 + (row * width + column) as u64;
            let mut value = Draws { seed, next: 0 }.below(1000) as f32 / 1000.0 - 0.5;
            match self.poison {
                Poison::Input(bad, at) if at == self.step && !is_target && (row, column) == (ROW, 1) => {
                    value = bad
                }
                Poison::Target(bad, at) if at == self.step && is_target && (row, column) == (ROW, 1) => {
                    value = bad
                }
                Poison::Scale(factor) if !is_target => value *= factor,
                Poison::Input(..) | Poison::Target(..) | Poison::Scale(_) | Poison::Rate => {}
            }
            chunk.copy_from_slice(&value.to_ne_bytes());
        }
        Ok(())
    }

    fn file_row(&self, row_in_batch: usize) -> Option<u64> {
        Some(FIRST_ROW + row_in_batch as u64)
    }
}

/// How many trainings of each kind.
fn count() -> u64 {
    std::env::var("MEMFIT_POISONED").map_or(120, |count| count.parse().unwrap())
}

/// Where an input that is not finite is the only cause, its row is named.
fn check_row(case: &Case, error: &NotFinite) {
    if let Poison::Input(value, at) = case.poison
        && !value.is_finite()
        && at == error.step
        && case.learning_rate < 1.0
    {
        assert_eq!(error.culprit, Culprit::Input { row: ROW }, "{case:?}");
        assert_eq!(error.row_of_data, Some(FIRST_ROW + ROW as u64), "{case:?}");
        assert!(error.to_string().contains("row 1004 of the data"), "{error}");
    }
}

#[test]
fn nothing_that_is_not_finite_is_written_and_the_error_names_what_changed() {
    let (mut stopped, mut partly, mut found_late) = (0, 0, 0);
    for seed in 0..count() {
        let case = Case::drawn(seed);
        let Ended { error, before, after } = case.run();
        let Some(error) = error else { continue };
        stopped += 1;
        found_late += usize::from(matches!(error.found, Found::Written { .. }));
        for (name, values) in &after {
            let listed = error.changed.iter().find(|changed| changed.tensor == *name);
            let is_said = listed.is_some() || *values == before[name];
            assert!(is_said, "`{name}` changed unsaid, seed {seed}: {case:?}: {error}");
            partly += usize::from(listed.is_some_and(|changed| !changed.wholly));
        }
        check_row(&case, &error);
    }
    println!(
        "{} trainings: {stopped} stopped, {found_late} of them with a finite loss; {partly} tensors in part",
        count()
    );
    assert!(count() / 3 < stopped && 0 < found_late && 0 < partly);
}

#[test]
fn under_guard_step_a_bad_step_changes_no_bit() {
    let (mut stopped, mut found_late) = (0, 0);
    for seed in 0..count() {
        let case = Case { guard: true, ..Case::drawn(seed) };
        let Ended { error, before, after } = case.run();
        let Some(error) = error else { continue };
        stopped += 1;
        found_late += usize::from(matches!(error.found, Found::Written { .. }));
        assert!(before == after && error.changed.is_empty(), "seed {seed}: {case:?}: {error}");
        assert!(error.to_string().contains("this step changed nothing"), "{error}");
        check_row(&case, &error);
    }
    println!("{} guarded trainings: {stopped} stopped, {found_late} of them with a finite loss", count());
    assert!(count() / 3 < stopped && 0 < found_late);
}

#[test]
fn a_good_step_has_the_same_bits_under_guard_step() {
    for seed in 0..count() / 3 {
        let mut case = Case::drawn(seed);
        (case.poison, case.learning_rate) = (Poison::Rate, 1e-3);
        let guarded = Case { guard: true, ..Case::drawn(seed) };
        let guarded = Case { poison: case.poison, learning_rate: case.learning_rate, ..guarded };
        let (plain, guarded) = (case.run(), guarded.run());
        assert!(plain.error.is_none() && guarded.error.is_none(), "seed {seed}: {case:?}");
        assert!(plain.after == guarded.after, "seed {seed}: {case:?}");
    }
}
