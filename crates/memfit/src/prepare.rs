//! Everything up to the one-way door: model, gradients, costs, budget, plan.

use std::time::Instant;

use memfit_data::Source;
use memfit_device::{Setup, process};
use memfit_formats::{Mode, Options, Precision, graph_from_keras, graph_from_layers};
use memfit_grad::{Optimizer, Training, training_graph};
use memfit_ir::{Budget, Bytes, CheckedPlan, Graph, Loss, Problem, UpdateRule};
use memfit_plan::{DoesNotFit, Hint};
use serde_json::Value;

use crate::budget::{Runtime, default_budget, in_steps};
use crate::compile::{parse_loss, parse_metric, parse_optimizer};
use crate::precision::{PrecisionSummary, try_bfloat16};
use crate::{Error, Job, data};

/// How many threads to use; what the machine allows where it is not said.
pub type Threads = Option<usize>;

/// A job with its answer, before any memory is taken.
pub struct Prepared {
    /// The device, still able to allocate.
    pub setup: Setup,
    /// The rows.
    pub source: Box<dyn Source>,
    /// What the process holds besides the arena.
    pub runtime: Runtime,
    /// The problem that was solved, or not.
    pub problem: Problem,
    /// The plan, or why there is none.
    pub outcome: Result<CheckedPlan, Box<DoesNotFit>>,
    /// The optimizer, for its schedule.
    pub optimizer: Optimizer,
    /// Names of the metrics, in the graph's order.
    pub metrics: Vec<String>,
    /// What half types saved, where there are any.
    pub precision: Option<PrecisionSummary>,
    /// Time the planner took.
    pub seconds_planning: f64,
}

/// Builds the problem of a job and plans it.
pub fn prepare(job: &Job, threads: Threads) -> Result<Prepared, Error> {
    job.check()?;
    process::populate_program();
    let forward = load_model(job, job.train.precision)?;
    let (training, metrics) = training(job, &forward)?;
    let graph = training_graph(&forward, &training)?;
    let source = data::open(job, &graph)?;
    let setup = memfit_device::open(threads)?;
    let mut runtime = Runtime::measure(setup.threads(), source.bytes());
    let total = job.memory.budget.unwrap_or_else(default_budget);
    let host = job.memory.disk.as_ref().map_or(Bytes::ZERO, |disk| disk.size);
    let mut problem = Problem {
        costs: setup.costs(&graph),
        budget: Budget { total, runtime: runtime.total(), granule: setup.granule(), host },
        graph,
        batch: job.train.batch,
        allow_batchnorm_split: job.memory.allow_batchnorm_split,
    };
    let start = Instant::now();
    // The plan itself takes memory, which is known once there is one: plan again below the line that is left.
    let outcome = loop {
        let outcome = match memfit_plan::plan(&problem) {
            Ok(plan) => Ok(memfit_ir::check(&problem, plan)?),
            Err(answer) => Err(answer),
        };
        // A refusal names the smallest budget, in which the smallest plan has its place too.
        let stand_in = if outcome.is_err() { Some(smallest_plan(&problem)?) } else { None };
        let again = Runtime::measure(setup.threads(), source.bytes());
        drop(stand_in);
        if again.total() <= runtime.total() {
            break outcome;
        }
        problem.budget.runtime = again.total();
        runtime = again;
    };
    let seconds_planning = start.elapsed().as_secs_f64();
    let outcome = outcome.and_then(|plan| match planning_over(&problem) {
        Some(answer) => Err(answer),
        None => Ok(plan),
    });
    let outcome = outcome.map_err(|mut answer| {
        answer.hints.extend(try_without_state(&forward, &training, &problem, &setup));
        let graph = || graph_at(job, Precision::MixedBfloat16, &training);
        answer.hints.extend(try_bfloat16(&problem, graph, &setup));
        answer
    });
    let precision = PrecisionSummary::of(&problem, || {
        let graph = graph_at(job, Precision::Float32, &training)?;
        Some(Problem { costs: setup.costs(&graph), graph, ..problem.clone() })
    });
    let optimizer = training.optimizer;
    Ok(Prepared { setup, source, runtime, problem, outcome, optimizer, metrics, precision, seconds_planning })
}

/// The training graph of a job under another policy.
fn graph_at(job: &Job, precision: Precision, training: &Training) -> Option<Graph> {
    let forward = load_model(job, Some(precision)).ok()?;
    training_graph(&forward, training).ok()
}

fn load_model(job: &Job, precision: Option<Precision>) -> Result<Graph, Error> {
    let options = Options { mode: Mode::Training, seed: job.train.seed, precision };
    if let Some(layers) = &job.model.layers {
        return Ok(graph_from_layers(layers, job.model.outputs.as_deref(), &options)?);
    }
    let path = job.path(job.model.file.as_deref().expect("checked: a model has layers or a file"));
    let text = std::fs::read_to_string(&path).map_err(|source| Error::File {
        verb: "read",
        path: path.clone(),
        source,
    })?;
    let config: Value = serde_json::from_str(&text)
        .map_err(|error| Error::job(path.display().to_string(), format!("not JSON: {error}")))?;
    Ok(graph_from_keras(&config, &options)?)
}

fn training(job: &Job, forward: &Graph) -> Result<(Training, Vec<String>), Error> {
    let outputs = forward.outputs.len();
    let loss = &job.train.loss;
    let one_each = loss.as_array().cloned().unwrap_or_else(|| vec![loss.clone(); outputs]);
    let weights = job.train.loss_weights.clone().unwrap_or_else(|| vec![1.0; one_each.len()]);
    if weights.len() != one_each.len() {
        let problem =
            format!("expected {} weights, one for each loss, got {}", one_each.len(), weights.len());
        return Err(Error::job("train.loss_weights", problem));
    }
    let losses = one_each
        .iter()
        .zip(weights)
        .map(|(loss, weight)| Ok(Loss { kind: parse_loss(loss, "train.loss")?, weight }))
        .collect::<Result<Vec<Loss>, Error>>()?;
    let mut metrics = vec![Vec::new(); outputs];
    let mut names = Vec::new();
    for (index, (output, loss)) in forward.outputs.iter().zip(&losses).enumerate() {
        for name in &job.train.metrics {
            let tensor = &forward.tensors[output.0];
            metrics[index].push(parse_metric(name, tensor, loss.kind.is_sparse())?);
            let layer = &forward.layers[tensor.layer.0];
            names.push(if outputs == 1 { name.clone() } else { format!("{layer}_{name}") });
        }
    }
    let optimizer = parse_optimizer(&job.train.optimizer)?;
    let sample_weights = job.data.sample_weight.is_some();
    Ok((Training { losses, metrics, sample_weights, ..Training::new(optimizer) }, names))
}

/// The smallest plan, whatever the budget.
fn smallest_plan(problem: &Problem) -> Result<CheckedPlan, Error> {
    let mut roomy = problem.clone();
    roomy.budget.total = Bytes(1 << 62);
    let plan = memfit_plan::smallest(&roomy);
    Ok(memfit_ir::check(&roomy, plan)?)
}

/// The line is for the whole process, and so for its planning too.
fn planning_over(problem: &Problem) -> Option<Box<DoesNotFit>> {
    let peak = planning_peak();
    (problem.budget.total < peak).then(|| {
        let text = format!("planning alone took {peak}: the graph is large for so low a line");
        Box::new(DoesNotFit {
            smallest: peak,
            hints: vec![Hint::Other(text)],
            ..DoesNotFit::explain(problem)
        })
    })
}

/// Most that the process has held so far, in the steps in which the program's memory is counted.
pub(crate) fn planning_peak() -> Bytes {
    in_steps(process::resident_peak())
}

/// Whether an optimizer without state would fit: tried by planning it.
fn try_without_state(forward: &Graph, training: &Training, problem: &Problem, setup: &Setup) -> Option<Hint> {
    if training.optimizer.rule.state().is_empty() {
        return None;
    }
    let optimizer =
        Optimizer { rule: UpdateRule::Sgd { momentum: 0.0, nesterov: false }, ..training.optimizer.clone() };
    let graph = training_graph(forward, &Training { optimizer, ..training.clone() }).ok()?;
    let changed = Problem { costs: setup.costs(&graph), graph, ..problem.clone() };
    let smallest = memfit_plan::smallest_budget(&changed);
    (smallest <= problem.budget.total).then(|| {
        Hint::Other(format!(
            "`optimizer = \"sgd\"` keeps no state and fits from {smallest}, with another path to the minimum"
        ))
    })
}
