//! Everything up to the one-way door: model, gradients, costs, budget, plan.

use std::time::Instant;

use memfit_data::Source;
use memfit_device::{Setup, process};
use memfit_formats::{Mode, Options, graph_from_keras, graph_from_layers};
use memfit_grad::{Optimizer, Training, training_graph};
use memfit_ir::{Budget, Bytes, CheckedPlan, Graph, Loss, Plan, Problem, UpdateRule};
use memfit_plan::{DoesNotFit, Hint};
use serde_json::Value;

use crate::budget::{Runtime, default_budget, planning_peak};
use crate::compile::{parse_loss, parse_metric, parse_optimizer};
use crate::costs::{self, Costs, CostsUsed};
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
    /// The costs by which the fastest was chosen.
    pub costs: CostsUsed,
    /// Time the planner took.
    pub seconds_planning: f64,
}

/// A plan, or why there is none.
type Outcome = Result<CheckedPlan, Box<DoesNotFit>>;

/// Builds the problem of a job and plans it.
pub fn prepare(job: &Job, threads: Threads) -> Result<Prepared, Error> {
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
    let mut costs = CostsUsed::estimated();
    let besides = || Runtime::measure(setup.threads(), source.bytes());
    let mut outcome = settle(&mut problem, &costs, None, &mut runtime, &besides)?;
    if let Ok(plan) = &outcome
        && job.memory.costs == Costs::Measured
        && hangs_on_time(plan.plan())
    {
        let estimated = plan.plan().clone();
        drop(outcome);
        costs = costs::measure(&setup, &mut problem);
        let before = runtime.clone();
        outcome = settle(&mut problem, &costs, Some(estimated), &mut runtime, &besides)?;
        if outcome.is_err() {
            // What measuring has left behind does not fit any more. What fitted before it still does.
            problem.budget.runtime = before.total();
            runtime = before;
            outcome = checked(&problem, plan_by(&problem, &costs, None))?;
        }
    }
    let seconds_planning = start.elapsed().as_secs_f64() - costs.seconds_measuring;
    let outcome = outcome.and_then(|plan| match planning_over(&problem) {
        Some(answer) => Err(answer),
        None => Ok(plan),
    });
    let outcome = outcome.map_err(|mut answer| {
        answer.hints.extend(try_without_state(&forward, &training, &problem, &setup));
        answer
    });
    let optimizer = training.optimizer;
    Ok(Prepared { setup, source, runtime, problem, outcome, optimizer, metrics, costs, seconds_planning })
}

impl Prepared {
    /// Measures costs where that was not needed for the plan, for those who ask what other plans would cost.
    pub fn measure_costs(&mut self) {
        if !self.costs.are_measured() {
            self.costs = costs::measure(&self.setup, &mut self.problem);
        }
    }
}

/// Plans until the line that the program leaves is the one that was planned below: the plan itself takes memory, which is
/// known once there is one.
fn settle(
    problem: &mut Problem,
    costs: &CostsUsed,
    mut estimated: Option<Plan>,
    runtime: &mut Runtime,
    besides: &dyn Fn() -> Runtime,
) -> Result<Outcome, Error> {
    loop {
        let outcome = checked(problem, plan_by(problem, costs, estimated.take()))?;
        // A refusal names the smallest budget, in which the smallest plan has its place too.
        let stand_in = if outcome.is_err() { Some(smallest_plan(problem)?) } else { None };
        let again = besides();
        drop(stand_in);
        if again.total() <= runtime.total() {
            return Ok(outcome);
        }
        problem.budget.runtime = again.total();
        *runtime = again;
    }
}

/// The faster by the problem's costs of two: the plan made by them, and the one made by estimates, which says whether there is
/// a plan at all and may be known already.
fn plan_by(problem: &Problem, costs: &CostsUsed, estimated: Option<Plan>) -> Result<Plan, Box<DoesNotFit>> {
    let estimated = match estimated {
        Some(plan) => plan,
        None => memfit_plan::plan(&costs.problem_estimated(problem))?,
    };
    if !costs.are_measured() {
        return Ok(estimated);
    }
    let seconds = |plan: &Plan| memfit_plan::seconds(problem, plan);
    let measured = memfit_plan::plan(problem).ok().filter(|plan| seconds(plan) <= seconds(&estimated));
    Ok(measured.unwrap_or(estimated))
}

fn checked(problem: &Problem, plan: Result<Plan, Box<DoesNotFit>>) -> Result<Outcome, Error> {
    Ok(match plan {
        Ok(plan) => Ok(memfit_ir::check(problem, plan)?),
        Err(answer) => Err(answer),
    })
}

/// Whether a plan was preferred to others for its time: the whole batch with nothing done twice is always the fastest.
fn hangs_on_time(plan: &Plan) -> bool {
    let does_more = memfit_plan::nodes_recomputed(plan) > 0 || plan.bytes_host != Bytes::ZERO;
    plan.micro_batches() > 1 || does_more
}

fn load_model(job: &Job) -> Result<Graph, Error> {
    let options = Options { mode: Mode::Training, seed: job.train.seed };
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
