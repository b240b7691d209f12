//! Everything up to the one-way door: model, gradients, costs, budget, plan.

use std::time::Instant;

use memfit_data::Source;
use memfit_device::{Setup, process};
use memfit_formats::{Mode, Options, graph_from_keras, graph_from_layers};
use memfit_grad::{Optimizer, Training, training_graph};
use memfit_ir::{Budget, Bytes, CheckedPlan, Graph, Loss, Plan, Problem};
use memfit_plan::{DoesNotFit, Hint};
use serde_json::Value;

use crate::budget::{Runtime, default_budget, in_steps};
use crate::compile::{parse_loss, parse_metric, parse_optimizer};
use crate::{Error, Job, data, tries};

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
    /// The lowest peak that a plan can have, where it was looked for.
    pub lowest: Option<Bytes>,
    /// The optimizer, for its schedule.
    pub optimizer: Optimizer,
    /// Names of the metrics, in the graph's order.
    pub metrics: Vec<String>,
    /// Time the planner took.
    pub seconds_planning: f64,
    /// Most that the process held while it planned, without what looking for hints took.
    pub bytes_planning: Bytes,
}

/// Builds the problem of a job and plans it; where nothing fits, looks for what would.
pub fn prepare(job: &Job, threads: Threads) -> Result<Prepared, Error> {
    prepare_and(job, threads, tries::find_hints)
}

/// The same without looking for what would fit, which takes more plans: for answers that do not tell of it.
pub fn prepare_without_hints(job: &Job, threads: Threads) -> Result<Prepared, Error> {
    prepare_and(job, threads, |_, _, _| {})
}

fn prepare_and(
    job: &Job,
    threads: Threads,
    find_hints: impl FnOnce(&mut DoesNotFit, &tries::Base<'_>, &Setup),
) -> Result<Prepared, Error> {
    job.check()?;
    process::populate_program();
    let forward = load_model(job)?;
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
    let (outcome, lowest) = loop {
        let (plan, lowest) = memfit_plan::plan_and_lowest(&problem);
        let mut outcome = match plan {
            Ok(plan) => Ok(memfit_ir::check(&problem, plan)?),
            Err(answer) => Err(answer),
        };
        // A refusal names the smallest budget, in which the smallest plan has its place too, checked as one that runs.
        let stand_in = match &mut outcome {
            Ok(_) => None,
            Err(answer) => Some(check_whatever_the_budget(&problem, std::mem::take(&mut answer.plan))?),
        };
        let again = Runtime::measure(setup.threads(), source.bytes());
        if let (Err(answer), Some(stand_in)) = (&mut outcome, stand_in) {
            answer.plan = stand_in.plan().clone();
        }
        if again.total() <= runtime.total() {
            break (outcome, lowest);
        }
        problem.budget.runtime = again.total();
        runtime = again;
    };
    let seconds_planning = start.elapsed().as_secs_f64();
    let outcome = outcome.and_then(|plan| match planning_over(&problem) {
        Some(answer) => Err(answer),
        None => Ok(plan),
    });
    let bytes_planning = planning_peak();
    let outcome = outcome.map_err(|mut answer| {
        let base = tries::Base { job, forward: &forward, training: &training, problem: &problem };
        find_hints(&mut answer, &base, &setup);
        answer
    });
    let optimizer = training.optimizer;
    Ok(Prepared {
        setup,
        source,
        runtime,
        problem,
        outcome,
        lowest,
        optimizer,
        metrics,
        seconds_planning,
        bytes_planning,
    })
}

pub(crate) fn load_model(job: &Job) -> Result<Graph, Error> {
    let options = Options { mode: Mode::Training, seed: job.train.seed };
    if let Some(layers) = &job.model.layers {
        return Ok(graph_from_layers(layers, job.model.outputs.as_deref(), &options)?);
    }
    if let Some(config) = &job.model.config {
        return Ok(graph_from_keras(config, &options)?);
    }
    let config = read_config(job)?;
    Ok(graph_from_keras(&config, &options)?)
}

/// The Keras configuration that a job names.
pub(crate) fn read_config(job: &Job) -> Result<Value, Error> {
    let path = job.path(job.model.file.as_deref().expect("checked: a model has layers or a file"));
    let text = std::fs::read_to_string(&path).map_err(|source| Error::File {
        verb: "read",
        path: path.clone(),
        source,
    })?;
    serde_json::from_str(&text)
        .map_err(|error| Error::job(path.display().to_string(), format!("not JSON: {error}")))
}

pub(crate) fn training(job: &Job, forward: &Graph) -> Result<(Training, Vec<String>), Error> {
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

/// Checks the plan that a refusal speaks of.
fn check_whatever_the_budget(problem: &Problem, plan: Plan) -> Result<CheckedPlan, Error> {
    let mut roomy = problem.clone();
    roomy.budget.total = Bytes(1 << 62);
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
