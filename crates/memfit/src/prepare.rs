//! Everything up to the one-way door: model, gradients, costs, budget, plan.

use std::time::Instant;

use memfit_data::Source;
use memfit_device::{Choice, Setup, heap};
use memfit_formats::{Mode, Precision};
use memfit_grad::{OutputMetric, Training, training_graph};
use memfit_ir::{Budget, Bytes, CheckedPlan, Graph, Loss, Pinned, Plan, Problem};
use memfit_plan::{DoesNotFit, Hint};

use crate::budget::{self, Runtime, default_budget_on, planning_peak, planning_peak_now};
use crate::compile_metric::{Names, metric_name, parse_metric};
use crate::costs::{self, Costs, CostsUsed};
use crate::precision::PrecisionSummary;
use crate::saving::Files;
use crate::state::{self, Variable};
use crate::{Compiled, Error, Guard, Job, ModelFile, compiled, data, model_file, tries};

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
    /// The lowest that a plan can be, where it was looked for.
    pub lowest: Option<Low>,
    /// The model and the file that holds its weights.
    pub model: ModelFile,
    /// What the model is compiled with.
    pub compiled: Compiled,
    /// The optimizer's variables in the model's file; none where it does not hold them.
    pub(crate) resumes: Option<Vec<Variable>>,
    /// The files that training writes.
    pub(crate) saving: Files,
    /// Names of the metrics, in the graph's order.
    pub metrics: Vec<String>,
    /// The costs by which the fastest was chosen.
    pub costs: CostsUsed,
    /// What half types saved, where there are any.
    pub precision: Option<PrecisionSummary>,
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
    budget::begin(job.memory.baseline);
    let model = ModelFile::open(job, Mode::Training)?;
    let forward = &model.model.graph;
    let compiled = compiled(job, &model)?;
    let (training, metrics) = training(job, forward, &compiled)?;
    let graph = training_graph(forward, &training)?;
    state::require_axes(&model, &compiled.optimizer)?;
    let variables = state::optimizer_variables(&model, &graph, &compiled.optimizer);
    let resumes = state::resumes(&model, &variables, &compiled.optimizer).then_some(variables);
    let saving = Files::plan(job, &model, &graph, &compiled)?;
    let for_file = saving
        .bytes_writing()
        .unwrap_or_else(|| handed_over(job, &model, 1 + compiled.optimizer.rule.state(&[1, 1]).len()));
    let Solved { setup, source, runtime, problem, outcome, lowest, costs, seconds_planning, bytes_planning } =
        solve(job, graph, threads, for_file, job.pinned()?)?;
    let outcome = outcome.map_err(|mut answer| {
        let base = tries::Base { job, forward, training: &training, compiled: &compiled, problem: &problem };
        find_hints(&mut answer, &base, &setup);
        answer
    });
    let precision = PrecisionSummary::of(&problem, || {
        let graph = graph_at(job, Precision::Float32, &training)?;
        Some(with_graph(&setup, &problem, graph))
    });
    Ok(Prepared {
        setup,
        source,
        runtime,
        problem,
        outcome,
        lowest,
        model,
        compiled,
        resumes,
        saving,
        metrics,
        costs,
        precision,
        seconds_planning,
        bytes_planning,
    })
}

/// A graph with its answer.
pub(crate) struct Solved {
    pub(crate) setup: Setup,
    pub(crate) source: Box<dyn Source>,
    pub(crate) runtime: Runtime,
    pub(crate) problem: Problem,
    pub(crate) outcome: Result<CheckedPlan, Box<DoesNotFit>>,
    pub(crate) lowest: Option<Low>,
    pub(crate) costs: CostsUsed,
    pub(crate) seconds_planning: f64,
    pub(crate) bytes_planning: Bytes,
}

/// The same problem of another graph, by estimates.
pub(crate) fn with_graph(setup: &Setup, problem: &Problem, graph: Graph) -> Problem {
    let (costs, costs_folded) = (setup.costs(&graph), setup.costs_folded(&graph));
    let costs_applied = setup.costs_applied(&graph);
    Problem { costs, costs_folded, costs_applied, graph, ..problem.clone() }
}

/// Opens the data of a graph and plans it within the job's budget; `for_file` is what writing a file takes at the end, `pinned` what is
/// decided of the plan.
pub(crate) fn solve(
    job: &Job,
    graph: Graph,
    threads: Threads,
    for_file: Bytes,
    pinned: Pinned,
) -> Result<Solved, Error> {
    let source = data::open(job, &graph)?;
    let setup = job.open_device(threads)?;
    setup.make_ready(&graph)?;
    let baseline = job.memory.baseline;
    let measure = |setup: &Setup| Runtime::measure(setup, source.bytes(), for_file, baseline);
    let mut runtime = measure(&setup)?;
    runtime.expect_plan(graph.nodes.len());
    let total = match job.memory.budget {
        Some(budget) => budget,
        None => default_budget_on(&setup, baseline)?,
    };
    let disk = job.memory.disk.as_ref().map_or(Bytes::ZERO, |disk| disk.size);
    let host = job.memory.host.unwrap_or(disk);
    let is_made_up = (0..graph.inputs.len()).all(|field| source.made_up(field).is_some());
    let mut problem = Problem {
        costs: setup.costs(&graph),
        costs_folded: setup.costs_folded(&graph),
        costs_applied: setup.costs_applied(&graph),
        budget: Budget { total, runtime: runtime.total(), granule: setup.granule(), host },
        graph,
        batch: job.train.batch,
        allow_batchnorm_split: job.memory.allow_batchnorm_split,
        transfers: setup.transfers(is_made_up),
        pinned,
    };
    memfit_plan::may_pin(&problem)
        .map_err(|cannot| Error::job("memory.micro_batches (--micro-batches)", cannot.to_string()))?;
    let start = Instant::now();
    // No choice hangs on time where everything fits, or nothing.
    let chooses =
        !job.memory.first && Bytes::ZERO < problem.budget.arena() && !memfit_plan::fits_whole(&problem);
    let costs = if job.memory.costs == Costs::Measured && chooses {
        costs::measure(&setup, &mut problem, baseline, job.memory.seconds_measuring)
    } else {
        CostsUsed::estimated()
    };
    let find = |problem: &Problem, runtime: &Runtime| match job
        .memory
        .first
        .then(|| memfit_plan::first(problem))
        .flatten()
    {
        Some(plan) => Ok((checked(problem, Ok(plan))?, None)),
        None => plan(problem, runtime),
    };
    let (mut outcome, mut lowest) = find(&problem, &runtime)?;
    // Where the heap is not counted, what the plan takes of it is known once there is one, and may be more than was expected. Below
    // the line that is left, the fastest is still the fastest if it fits, and what was refused is refused.
    loop {
        // A refusal names the smallest budget, in which the smallest plan has its place too, checked as one that runs.
        let stand_in = match &mut outcome {
            Ok(_) => None,
            Err(answer) => Some(check_whatever_the_budget(&problem, std::mem::take(&mut answer.plan))?),
        };
        let again = measure(&setup)?;
        if let (Err(answer), Some(stand_in)) = (&mut outcome, stand_in) {
            answer.plan = stand_in.plan().clone();
        }
        if again.total() <= runtime.total() {
            runtime.heap = again.heap;
            break;
        }
        problem.budget.runtime = again.total();
        runtime = again;
        outcome = match outcome {
            Ok(plan) if problem.budget.arena_for(plan.plan().bytes_peak) <= problem.budget.arena() => {
                checked(&problem, Ok(plan.plan().clone()))?
            }
            Ok(plan) => {
                drop(plan);
                let (found, known) = find(&problem, &runtime)?;
                lowest = known;
                found
            }
            Err(mut answer) => {
                answer.runtime = problem.budget.runtime;
                answer.smallest = problem.budget.smallest(answer.plan.bytes_peak);
                Err(answer)
            }
        };
    }
    let seconds_planning = start.elapsed().as_secs_f64() - costs.seconds_measuring;
    let over = || if setup.gpu().is_none() { planning_over(&problem, baseline) } else { None };
    let outcome = outcome.and_then(|plan| match over() {
        Some(answer) => Err(answer),
        None => Ok(plan),
    });
    let bytes_planning = planning_peak(problem.graph.nodes.len(), baseline);
    Ok(Solved { setup, source, runtime, problem, outcome, lowest, costs, seconds_planning, bytes_planning })
}

/// What a caller takes while variables come from him and go to him, one after the other: what he says, or the largest twice, as an
/// array and on its way, since each leaves its slot before the next comes; and an eighth of small ones, of which the allocator keeps
/// freed heap. `back` is how many go back for each weight.
pub(crate) fn handed_over(job: &Job, model: &ModelFile, back: usize) -> Bytes {
    /// Arrays from this size on have pages of their own, whatever the allocator has learnt.
    const OF_ITS_OWN: Bytes = Bytes(32 << 20);
    if job.memory.baseline == Bytes::ZERO {
        return Bytes::ZERO;
    }
    let sizes = model.model.weights.iter().map(|weight| Bytes::of::<f32>(weight.dims.iter().product()));
    let largest = sizes.clone().max().unwrap_or_default();
    let small = sizes.filter(|size| *size < OF_ITS_OWN).sum::<Bytes>();
    job.memory.handover.unwrap_or(largest * 2) + Bytes(small.0 * back as u64 / 8)
}

impl Prepared {
    /// Measures costs where that was not needed for the plan, for those who ask what other plans would cost.
    pub fn measure_costs(&mut self) {
        if self.costs.costs == Costs::Analytic {
            self.costs = costs::measure(&self.setup, &mut self.problem, self.runtime.baseline, None);
        }
    }
}

/// The training graph of a job under another policy.
pub(crate) fn graph_at(job: &Job, precision: Precision, training: &Training) -> Option<Graph> {
    let forward = model_file::forward(job, Some(precision)).ok()?;
    training_graph(&forward, training).ok()
}

/// What to train for, and the names of what is told beside the loss.
pub(crate) fn training(
    job: &Job,
    forward: &Graph,
    compiled: &Compiled,
) -> Result<(Training, Vec<String>), Error> {
    let outputs = forward.outputs.len();
    let losses: Vec<Loss> = compiled
        .losses
        .iter()
        .zip(&compiled.loss_weights)
        .map(|(kind, weight)| Loss { kind: kind.clone(), weight: *weight })
        .collect();
    // The losses of several outputs are told before the metrics.
    let mut names: Vec<String> = match &compiled.output_names[..] {
        [_] => Vec::new(),
        outputs => outputs.iter().map(|output| format!("{output}_loss")).collect(),
    };
    let (mut metrics, mut named) = (Vec::new(), Names::default());
    for (weighted, lists) in [(false, &compiled.metrics), (true, &compiled.weighted_metrics)] {
        for (output, (list, loss)) in lists.iter().zip(&losses).enumerate() {
            let tensor = &forward.tensors[forward.outputs[output].0];
            let prefix = Some(compiled.output_names[output].as_str()).filter(|_| 1 < outputs);
            for value in list {
                let metric = parse_metric(value, tensor, loss.kind.is_sparse())?;
                let name = named.next(prefix, &metric_name(value), weighted);
                match metric.numbers(&tensor.shape) {
                    1 => names.push(name),
                    numbers => names.extend((0..numbers).map(|number| format!("{name}[{number}]"))),
                }
                metrics.push(OutputMetric { output, metric, weighted });
            }
        }
    }
    let sample_weights = usize::from(job.data.sample_weight.is_some()).max(job.data.lent_sample_weights);
    let weights_of_samples = job.data.lent_weights_of_samples.clone();
    let optimizer = compiled.optimizer.clone();
    let training = Training {
        losses,
        metrics,
        sample_weights,
        weights_of_samples,
        guard: job.memory.guard == Guard::Step,
        for_gpu: matches!(job.train.device.settled(), Choice::Cuda(_)),
        ..Training::new(optimizer)
    };
    Ok((training, names))
}

/// A plan that may run, or why there is none.
type Outcome = Result<CheckedPlan, Box<DoesNotFit>>;

/// The fastest plan that fits with its own place in a program that held so much before, and the lowest.
fn plan(problem: &Problem, before: &Runtime) -> Result<(Outcome, Option<Low>), Error> {
    let may_hold = |plan: &Plan| {
        let heap = Low::new(problem, plan.clone()).heap;
        problem.budget.arena_for(plan.bytes_peak) + before.total_with(heap, 0) <= problem.budget.total
    };
    let (plan, lowest) = memfit_plan::plan_and_lowest(problem, &may_hold);
    Ok((checked(problem, plan)?, lowest.map(|plan| Low::new(problem, plan))))
}

fn checked(problem: &Problem, plan: Result<Plan, Box<DoesNotFit>>) -> Result<Outcome, Error> {
    Ok(match plan {
        // A copy holds no spare room.
        Ok(plan) => Ok(memfit_ir::check(problem, plan)?.clone()),
        Err(answer) => Err(answer),
    })
}

/// Checks the plan that a refusal speaks of.
fn check_whatever_the_budget(problem: &Problem, plan: Plan) -> Result<CheckedPlan, Error> {
    let mut roomy = problem.clone();
    roomy.budget.total = Bytes(1 << 62);
    Ok(memfit_ir::check(&roomy, plan)?.clone())
}

impl Prepared {
    /// The smallest line for another plan of the same problem, which the program then holds instead of this one.
    pub(crate) fn smallest_for(&self, other: Low) -> Bytes {
        let now = match &self.outcome {
            Ok(plan) => heap_of(plan),
            // What was refused was measured with its smallest plan in place.
            Err(_) => other.heap,
        };
        self.problem.budget.arena_for(other.peak) + self.runtime.total_with(other.heap, now)
    }
}

/// How low a plan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Low {
    /// Its peak.
    pub peak: Bytes,
    /// What it holds of the heap, checked as one that runs; 0 in a program that does not count its heap.
    pub heap: u64,
}

impl Low {
    /// Looks at a plan, which may not fit the line.
    pub(crate) fn new(problem: &Problem, plan: Plan) -> Low {
        let peak = plan.bytes_peak;
        // Were it no plan that may run, whoever asks for it would be told.
        let checked = check_whatever_the_budget(problem, plan);
        Low { peak, heap: checked.map_or(0, |checked| heap_of(&checked)) }
    }
}

/// What a plan holds of the heap, as its copy does.
fn heap_of(plan: &CheckedPlan) -> u64 {
    let before = heap::live();
    let copy = plan.clone();
    let held = heap::live().saturating_sub(before);
    drop(copy);
    held
}

/// The line is for the whole process, and so for its planning too.
fn planning_over(problem: &Problem, baseline: Bytes) -> Option<Box<DoesNotFit>> {
    let over = problem.budget.total < planning_peak_now().saturating_sub(baseline);
    over.then(|| {
        let peak = planning_peak(problem.graph.nodes.len(), baseline);
        let text = format!("planning alone took {peak}: the graph is large for so low a line");
        Box::new(DoesNotFit {
            smallest: peak,
            hints: vec![Hint::Other(text)],
            ..DoesNotFit::explain(problem)
        })
    })
}
