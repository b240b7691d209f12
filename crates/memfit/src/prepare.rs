//! Everything up to the one-way door: model, gradients, costs, budget, plan.

use memfit_data::Source;
use memfit_device::Backend;
use memfit_device::heap::{self, Taken};
use memfit_formats::{Mode, Precision};
use memfit_grad::{OutputMetric, Training, training_graph};
use memfit_ir::{Budget, Bytes, CheckedPlan, Graph, Loss, Pinned, Plan, Problem};
use memfit_plan::DoesNotFit;

use crate::budget::{Runtime, Watch, allowed_on, default_budget_on};
use crate::charge::Charge;
use crate::compile_metric::{Names, metric_name, parse_metric};
use crate::costs::{self, Costs, CostsUsed};
use crate::precision::PrecisionSummary;
use crate::saving::Files;
use crate::solve::{Ask, Chosen, Solved, solve};
use crate::state::{self, Variable};
use crate::validation::{Unplanned, Validation};
use crate::{Compiled, Error, Guard, Job, Like, ModelFile, Size, compiled, data, log, model_file, tries};

/// How many threads to use; what the machine allows where it is not said.
pub type Threads = Option<usize>;

/// A job with its answer, before any memory is taken.
pub struct Prepared {
    /// The device, still able to allocate.
    pub setup: Box<dyn Backend>,
    /// The rows.
    pub source: Box<dyn Source>,
    /// What the process holds besides the arena.
    pub runtime: Runtime,
    /// The problem that was solved, or not.
    pub problem: Problem,
    /// The plan, or why there is none.
    pub outcome: Result<CheckedPlan, Box<DoesNotFit>>,
    /// The smallest budget: the job is accepted there and above, and refused below.
    pub smallest: Bytes,
    /// Its validation, where it has one and fits.
    pub(crate) validation: Option<Validation>,
    /// What is charged for other plans of the same problem, and what no plan can go below.
    pub(crate) charge: Charge,
    pub(crate) floor: Bytes,
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
}

/// Builds the problem of a job and plans it; where nothing fits, looks for what would.
pub fn prepare(job: &Job, threads: Threads) -> Result<Prepared, Error> {
    prepare_and(job, threads, tries::find_hints)
}

/// The same without looking for what would fit, which takes more plans: for answers that do not say it.
pub fn prepare_without_hints(job: &Job, threads: Threads) -> Result<Prepared, Error> {
    prepare_and(job, threads, |_, _, _| {})
}

fn prepare_and(
    job: &Job,
    threads: Threads,
    find_hints: impl FnOnce(&mut DoesNotFit, &tries::Base<'_>, &dyn Backend),
) -> Result<Prepared, Error> {
    job.check()?;
    let watch = Watch::begin(job.caller.baseline);
    let (opened, before) = heap::measured(|| Opened::of(job, threads));
    let Opened { model, compiled, training, metrics, resumes, saving, asked, precision, validation } =
        opened?;
    // Files are written and variables moved to the caller one after the other: the larger of the two counts.
    let for_caller = handed_over(job, &model, 1 + compiled.optimizer.rule.state(&[1, 1]).len());
    let for_file = saving.bytes_writing().unwrap_or_default().max(for_caller) + log::bytes(job);
    let Asked { setup, source, problem } = asked;
    let (validation, problem_validation) = validation.map(Unplanned::split).unzip();
    let beside = validation.as_ref().map_or(Bytes::ZERO, |unplanned| unplanned.source.bytes());
    let ask = Ask { job, watch: &watch, before, setup: &*setup, input: source.bytes() + beside, for_file };
    let Solved { runtime, problem, outcome, charge, smallest, floor, costs, seconds_planning } =
        solve(&ask, problem, problem_validation)?;
    let outcome = outcome.map_err(|mut answer| {
        let base = tries::Base {
            job,
            forward: &model.model.graph,
            training: &training,
            compiled: &compiled,
            problem: &problem,
        };
        // Where something else than the smallest plan asks for more, changes of the plan do not help.
        if answer.hints.is_empty() {
            find_hints(&mut answer, &base, &*setup);
        }
        answer
    });
    let (outcome, validation) = match outcome {
        Ok(Chosen { plan, validation: planned }) => {
            let validation = validation.zip(planned).map(|(waiting, of)| waiting.planned(of, plan.plan()));
            (Ok(plan), validation)
        }
        Err(answer) => (Err(answer), None),
    };
    Ok(Prepared {
        setup,
        source,
        runtime,
        problem,
        outcome,
        smallest,
        validation,
        charge,
        floor,
        model,
        compiled,
        resumes,
        saving,
        metrics,
        costs,
        precision,
        seconds_planning,
    })
}

/// A job whose model and data are open, before anything is planned.
struct Opened {
    model: ModelFile,
    compiled: Compiled,
    training: Training,
    metrics: Vec<String>,
    resumes: Option<Vec<Variable>>,
    saving: Files,
    asked: Asked,
    precision: Option<PrecisionSummary>,
    validation: Option<Unplanned>,
}

impl Opened {
    fn of(job: &Job, threads: Threads) -> Result<Opened, Error> {
        let model = ModelFile::open(job, Mode::Training)?;
        let forward = &model.model.graph;
        let compiled = compiled(job, &model)?;
        let (training, metrics) = training(job, forward, &compiled)?;
        let graph = training_graph(forward, &training)?;
        state::require_axes(&model, &compiled.optimizer)?;
        let variables = state::optimizer_variables(&model, &graph, &compiled.optimizer);
        let resumes = state::resumes(&model, &variables, &compiled.optimizer).then_some(variables);
        let saving = Files::plan(job, &model, &graph, &compiled)?;
        let asked = Asked::of(job, graph, threads, job.pinned()?)?;
        let validation = Unplanned::of(job, &model, &*asked.setup)?;
        let precision = PrecisionSummary::of(&asked.problem, || {
            let graph = graph_at(job, Precision::Float32, &training)?;
            Some(with_graph(&*asked.setup, &asked.problem, graph))
        });
        Ok(Opened { model, compiled, training, metrics, resumes, saving, asked, precision, validation })
    }
}

/// A problem with the device and the rows that it is about.
pub(crate) struct Asked {
    pub(crate) setup: Box<dyn Backend>,
    pub(crate) source: Box<dyn Source>,
    pub(crate) problem: Problem,
}

/// The device and the rows of what was planned, and the plan.
pub(crate) type Ready = (Box<dyn Backend>, Box<dyn Source>, Solved);

impl Asked {
    /// Opens the data and the device of a graph.
    pub(crate) fn of(job: &Job, graph: Graph, threads: Threads, pinned: Pinned) -> Result<Asked, Error> {
        let source = data::open(job, &graph)?;
        let setup = job.open_device(threads)?;
        setup.make_ready(&graph)?;
        let problem = problem_of(job, graph, &*setup, &*source, pinned)?;
        Ok(Asked { setup, source, problem })
    }

    /// Plans it: `for_file` is what writing a file takes at the end, `before` what opening it all took.
    pub(crate) fn solve(
        self,
        job: &Job,
        watch: &Watch,
        before: Taken,
        for_file: Bytes,
    ) -> Result<Ready, Error> {
        let Asked { setup, source, problem } = self;
        let ask = Ask { job, watch, before, setup: &*setup, input: source.bytes(), for_file };
        let solved = solve(&ask, problem, None)?;
        Ok((setup, source, solved))
    }
}

/// The problem of a graph within the job's budget; what the process holds besides the arena is not known yet.
pub(crate) fn problem_of(
    job: &Job,
    graph: Graph,
    setup: &dyn Backend,
    source: &dyn Source,
    pinned: Pinned,
) -> Result<Problem, Error> {
    let total = match job.memory.budget {
        Some(Size::Bytes(budget)) => budget,
        Some(share @ Size::Share(_)) => share.of(allowed_on(setup, job.caller.baseline)?),
        None => default_budget_on(setup, job.caller.baseline)?,
    };
    let disk = job.memory.disk.as_ref().map_or(Bytes::ZERO, |disk| disk.size);
    let host = job.memory.host.unwrap_or(disk);
    let is_synthetic = (0..graph.inputs.len()).all(|field| source.synthetic_values(field).is_some());
    let problem = Problem {
        costs: setup.costs(&graph),
        costs_rewritten: setup.costs_rewritten(&graph),
        budget: Budget { total, runtime: Bytes::ZERO, granule: setup.capabilities().granule, host },
        graph,
        batch: job.train.batch,
        allow_batchnorm_split: job.memory.allow_batchnorm_split,
        transfers: setup.transfers(is_synthetic),
        pinned,
    };
    if !is_countable(&problem) {
        let text =
            format!("a batch of {} rows of this model holds more bytes than can be counted", problem.batch);
        return Err(Error::job("train.batch", text));
    }
    memfit_plan::may_pin(&problem)
        .map_err(|cannot| Error::job("memory.micro_batches (--micro-batches)", cannot.to_string()))?;
    Ok(problem)
}

/// Whether all values of a step together, and all workspaces, have a size far below what a number holds.
fn is_countable(problem: &Problem) -> bool {
    const MOST: u128 = 1 << 58;
    let values = problem.graph.tensors.iter().map(|tensor| u128::from(tensor.bytes(1).0));
    let workspaces = problem.costs.iter().map(|cost| u128::from(cost.workspace(1).0));
    values.chain(workspaces).sum::<u128>() * (problem.batch as u128) < MOST
}

/// The same problem of another graph, by estimates.
pub(crate) fn with_graph(setup: &dyn Backend, problem: &Problem, graph: Graph) -> Problem {
    let (costs, costs_rewritten) = (setup.costs(&graph), setup.costs_rewritten(&graph));
    Problem { costs, costs_rewritten, graph, ..problem.clone() }
}

/// The memory that a caller needs while variables move from and to him, one after the other: what he says, or
/// twice the largest, once as an array and once in transfer, since each leaves its slot before the next
/// comes. To that comes an eighth of all small ones, of which the allocator keeps freed heap. `back` is how
/// many go back for each weight.
pub(crate) fn handed_over(job: &Job, model: &ModelFile, back: usize) -> Bytes {
    /// Arrays from this size on have pages of their own, whatever the allocator has learnt.
    const OF_ITS_OWN: Bytes = Bytes(32 << 20);
    if job.caller.baseline == Bytes::ZERO {
        return Bytes::ZERO;
    }
    let sizes = model.model.weights.iter().map(|weight| Bytes::of::<f32>(weight.dims.iter().product()));
    let largest = sizes.clone().max().unwrap_or_default();
    let small = sizes.filter(|size| *size < OF_ITS_OWN).sum::<Bytes>();
    job.caller.handover.unwrap_or(largest * 2) + Bytes(small.0 * back as u64 / 8)
}

impl Prepared {
    /// Measures costs where that was not needed for the plan, for answers that speak of time; for a few seconds where it is not said.
    pub fn measure_costs(&mut self, seconds: Option<f64>) {
        if self.costs.costs == Costs::Analytic {
            let of = costs::Process { baseline: self.runtime.baseline, files: self.runtime.files };
            self.costs = costs::measure(&*self.setup, &mut self.problem, of, seconds);
        }
    }

    /// The smallest budget for another plan of the same problem, which the program then holds instead of this one.
    pub(crate) fn smallest_for(&self, other: &Plan) -> Bytes {
        self.charge.of_plan(&self.problem, other).max(self.floor)
    }
}

/// The training graph of a job under another policy.
pub(crate) fn graph_at(job: &Job, precision: Precision, training: &Training) -> Option<Graph> {
    let forward = model_file::forward(job, Some(precision)).ok()?;
    training_graph(&forward, training).ok()
}

/// What to train for, and the names of the values that are reported beside the loss.
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
    // The losses of several outputs are reported before the metrics.
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
    let sample_weights = usize::from(job.data.sample_weight.is_some()).max(job.caller.sample_weights);
    let weights_of_samples = job.caller.weights_of_samples.clone();
    let optimizer = compiled.optimizer.clone();
    let training = Training {
        losses,
        metrics,
        sample_weights,
        weights_of_samples,
        guard: job.memory.guard == Guard::Step,
        like_tensorflow: matches!(job.train.like, Some(Like::Tensorflow)),
        capabilities: job.capabilities(),
        ..Training::new(optimizer)
    };
    Ok((training, names))
}
