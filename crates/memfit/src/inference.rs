//! `evaluate` and `predict`: a graph without gradients, planned within the same budget, over all rows of the
//! data.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use memfit_device::{heap, process};
use memfit_files::NewFile;
use memfit_formats::Mode;
use memfit_grad::{evaluation_graph, prediction_graph};
use memfit_ir::{ArenaMemory, Bytes, Graph, Pinned, TensorId};
use memfit_run::{Means, Runner};

use crate::budget::Watch;
use crate::lease::Lease;
use crate::pass::{Look, Pass};
use crate::prepare::{Asked, training};
use crate::solve::Solved;
use crate::train::within_machine;
use crate::{DataSection, Error, Job, Lack, ModelFile, Quiet, Threads, budget, compiled, initialize, state};

/// How a model does on some data.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The mean loss over all rows.
    pub loss: f64,
    /// The losses of the outputs where there are several, and the metrics, by name.
    pub metrics: Vec<(String, f64)>,
    /// What running it took.
    pub ran: Ran,
}

/// What running a model over its data took.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Rows of the data.
    pub rows: u64,
    /// Rows of a micro-batch.
    pub micro_batch: usize,
    /// Wall time.
    pub seconds: f64,
    /// Highest byte of the arena, as planned and as it was.
    pub bytes_peak: Bytes,
    /// Most resident memory of the process.
    pub vm_hwm: Bytes,
    /// The budget.
    pub budget: Bytes,
}

/// Loss and metrics of a model over all rows of the job's data.
pub fn evaluate(job: &Job, threads: Threads) -> Result<Evaluation, Error> {
    let _lease = Lease::take();
    let (model, watch) = open(job)?;
    let compiled = compiled(job, &model)?;
    let forward = &model.model.graph;
    let (training, names) = training(job, forward, &compiled)?;
    let graph = evaluation_graph(forward, &training)?;
    let (ran, Means { loss, values, .. }) =
        run(job, &model, &watch, graph, threads, Some(job.train.batch), None)?;
    if ran.rows == 0 {
        return Err(Error::job("data", "there are no rows; give at least one"));
    }
    Ok(Evaluation { loss, metrics: names.into_iter().zip(values).collect(), ran })
}

/// Writes what a model predicts for all rows of the job's data, one `.npy` file for each output.
pub fn predict(job: &Job, outputs: &[PathBuf], threads: Threads) -> Result<Ran, Error> {
    let _lease = Lease::take();
    let (model, watch) = open(job)?;
    let graph = prediction_graph(&model.model.graph);
    if outputs.len() != graph.outputs.len() {
        let names = model.model.output_names.join(", ");
        let problem = format!("expected one file for each of {names}, got {}", outputs.len());
        return Err(Error::job("output", problem));
    }
    let predictions = graph.outputs.clone();
    for folder in outputs.iter().filter_map(|path| path.parent()) {
        memfit_files::remove_leftovers(folder);
    }
    let mut files: Vec<NewFile> =
        outputs.iter().map(|path| NewFile::create(path)).collect::<Result<_, _>>()?;
    let mut has_header = false;
    let dims = |output: &TensorId| model.model.graph.tensors[output.0].shape.dims.as_slice();
    let mut write = |runner: &Runner, rows: usize, of: u64| {
        for (output, file) in predictions.iter().zip(&files) {
            let mut to = file.file();
            if !has_header {
                let header = memfit_data::npy_header(of, dims(output));
                to.write_all(&header).map_err(|source| file.refused(source))?;
            }
            let row = dims(output).iter().product::<usize>() * size_of::<f32>();
            let rows = &runner.bytes(*output)[..row * rows];
            to.write_all(rows).map_err(|source| file.refused(source))?;
        }
        has_header = true;
        Ok(())
    };
    let (ran, _) = run(job, &model, &watch, graph, threads, None, Some(&mut write))?;
    if ran.rows == 0 {
        return Err(Error::job("data", "there are no rows; give at least one"));
    }
    for file in files.drain(..) {
        file.finish()?;
    }
    Ok(ran)
}

fn open(job: &Job) -> Result<(ModelFile, Watch), Error> {
    job.check()?;
    let watch = Watch::begin(job.caller.baseline);
    Ok((ModelFile::open(job, Mode::Inference)?, watch))
}

/// Plans a graph and runs it over all rows: at most a batch at a time, or a micro-batch of the plan where
/// nothing sums over micro-batches.
fn run(
    job: &Job,
    model: &ModelFile,
    watch: &Watch,
    graph: Graph,
    threads: Threads,
    most: Option<usize>,
    look: Option<&mut Look<'_>>,
) -> Result<(Ran, Means), Error> {
    if job.data.x.paths().is_empty() && job.data.rows.is_none() {
        return Err(Error::Lacks(Lack::Data));
    }
    let mut job = within_machine(job, &mut Quiet);
    // What a training holds out is data like the rest here.
    job.data = DataSection { validation_split: None, ..job.data }.in_order();
    let job = &job;
    let inputs = graph.inputs.clone();
    let (asked, before) = heap::measured(|| Asked::of(job, graph, threads, Pinned::default()));
    let (setup, mut source, Solved { problem, outcome, .. }) =
        asked?.solve(job, watch, before, Bytes::ZERO)?;
    let plan = outcome?.plan;
    budget::planning_ended(job);
    let folder = job.memory.disk.as_ref().map(|disk| job.path(&disk.folder)).unwrap_or_default();
    let micro_batch = plan.plan().micro_batch;
    let mut runner = Runner::new(plan, setup, &folder)?;
    match &model.stored {
        Some(file) => state::load_weights(&mut runner, model, file)?,
        None => initialize(&mut runner),
    }
    let start = Instant::now();
    let (rows_at_once, seed) = (most.unwrap_or(micro_batch), job.train.seed);
    let pass = Pass { source: &mut *source, inputs: &inputs, rows_at_once, seed };
    let rows = pass.run(&mut runner, look, &mut Quiet)?.expect("no signal ends what is not stopped");
    let means = runner.epoch();
    let (plan, trace) = runner.finish();
    let held = match job.capabilities().arena {
        ArenaMemory::Process => process::resident_peak(),
        ArenaMemory::Device => trace.bytes_used_most,
    };
    let (vm_hwm, budget) = (held, problem.budget.total);
    if budget < vm_hwm {
        return Err(Error::OverBudget { used: vm_hwm, budget });
    }
    debug_assert!(trace.steps == 0 || trace.bytes_peak == plan.plan().bytes_peak);
    let (bytes_peak, seconds) = (plan.plan().bytes_peak, start.elapsed().as_secs_f64());
    Ok((Ran { rows, micro_batch, seconds, bytes_peak, vm_hwm, budget }, means))
}
