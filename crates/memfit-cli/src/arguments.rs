//! What can be typed after `memfit`.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, value_parser};
use memfit::{
    Bytes, Costs, DeviceChoice, Disk, EarlyStoppingRule, Error, Every, Guard, Job, Precision, Resume,
    Setting, Size,
};

use crate::devices::DevicesArguments;
use crate::evaluate::EvaluateArguments;
use crate::layers::LayersArguments;
use crate::model_arguments::ModelArguments;
use crate::predict::PredictArguments;
use crate::replay::ReplayArguments;
use crate::settings::{COUNTS, absolute_text, checked, files, from_here, given};
use crate::summary::SummaryArguments;

/// fit() that fits: train neural networks inside a byte budget.
///
/// You give a budget in bytes; memfit plans forward, backward and optimizer before the first byte is taken, and
/// training stays under it. Without a command, a demonstration runs: a network whose first activation alone is
/// 34 GB at its batch of 256 trains inside 2 GiB.
#[derive(Parser)]
#[command(name = "memfit", version, after_help = EXIT_CODES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

const EXIT_CODES: &str =
    "Exit codes: 0 it fits or it trained, 3 it does not fit, 2 bad input, 130 or 143 a signal ended it after its step,
1 anything else.

Examples:
  memfit
  memfit plan examples/large-images.toml --budget 2GiB
  memfit plan examples/six-convolutions.toml --sweep --report curve.html
  memfit train examples/large-images.toml --budget 2GiB --steps 3 --report report.html
  memfit batch examples/six-convolutions.toml --budget 8GiB
  memfit train model.keras --data x.npy,y.npy --budget 2GiB --output trained.keras
  memfit predict trained.keras --data x.npy --output p.npy";

const PLAN_EXAMPLES: &str = "Examples:
  memfit plan job.toml --budget 2GiB                      does it fit, and what holds how much?
  memfit plan job.toml --sweep --budget 2GiB              what each budget buys, yours marked
  memfit plan job.toml --sweep --report curve.html        the same as a page to point at
  memfit plan job.toml --output before.json               keep the answer ...
  memfit plan job.toml --batch 64 --diff before.json      ... and see what a change does to it
  memfit plan job.toml --budget 500MiB --json             for programs: what is needed, and hints that fit
  memfit plan job.toml --budget 2GiB --dump job           graph, problem and plan as text, for `memfit replay`";

const REPLAY_EXAMPLES: &str = "Examples:
  memfit plan job.toml --budget 2GiB --dump job           writes job/graph.txt, job/problem.txt and job/plan.txt
  memfit replay job/problem.txt                           the same plan again, elsewhere
  memfit replay job/problem.txt --budget 1GiB --json      another budget, for programs
  memfit replay job/problem.txt --output plan.txt && diff plan.txt job/plan.txt";

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Train a job inside its budget.
    ///
    /// The bar shows the steps of the epoch, the time left, loss, and memory used / budget. With --json, one object a line: a
    /// "step" event for every step, an "epoch" event after every validation, an "error" event where it fails, and an "end" event with the peak that was
    /// predicted and the one that was measured.
    Train(TrainArguments),
    /// Say what a job would hold, before anything runs.
    ///
    /// Prints what holds how much at the peak, by kind and by layer, where the peak stands, the lower bound beside it,
    /// and into how many micro-batches the batch is split. Exits with 3 when it does not fit, and says which tensors must be
    /// alive together at which step, why each must, the smallest budget that fits, and which changes would fit:
    /// every one of them was planned.
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(PlanArguments),
    /// Plan a problem that `memfit plan --dump` wrote, on any machine: no device is opened, nothing is measured.
    ///
    /// Prints the choice, the peak, the lower bound beside it, and a digest of the plan: two plans with the same digest run the same
    /// nodes in the same order at the same offsets. Exits with 3 and the reason when the problem does not fit its budget.
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(ReplayArguments),
    /// Pack buffers with lifetimes into as few bytes as can be found.
    ///
    /// Speaks minimalloc's CSV: `id,lower,upper,size[,alignment][,gaps]`, lifetimes half-open; --output adds a column `offset`.
    /// Exits with 3 and a set of buffers that cannot fit when the capacity cannot be met.
    Pack(PackArguments),
    /// Loss and metrics of a trained model over all rows of some data, within the budget.
    Evaluate(EvaluateArguments),
    /// Write what a model predicts for all rows of some data, within the budget.
    Predict(PredictArguments),
    /// The layers of a model: Keras's table, and what each holds in training.
    Summary(SummaryArguments),
    /// The layers that memfit knows, with their arguments and limits.
    Layers(LayersArguments),
    /// What there is to run on: CPU, GPUs, NVIDIA's libraries, and how to get what is missing.
    Devices(DevicesArguments),
    /// The largest batch that trains without a split, and bytes against batch: computed, not tried.
    Batch(JobArguments),
}

/// A job, and what overrides it.
#[derive(Args)]
pub struct JobArguments {
    /// The job file (TOML), or a model alone (.keras, or .json from model.to_json()).
    pub file: PathBuf,
    /// What the whole process may hold, as in 2GiB, 1536MiB, or 50% of what the machine allows [default: a little less than
    /// all of that].
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = checked::<Size>)]
    pub budget: Option<String>,
    /// Rows of one training step, instead of the job's.
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(COUNTS))]
    pub batch: Option<u64>,
    /// Split the batch into exactly N micro-batches, instead of as few as fit [default: the fastest plan that fits].
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(COUNTS))]
    pub micro_batches: Option<u64>,
    /// Copy values out to a file where that is the cheapest way to fit, as in /scratch:20GiB.
    #[arg(long, value_name = "FOLDER:SIZE")]
    pub disk: Option<Disk>,
    /// Copy values out to host memory. Only for a device with memory of its own: on the CPU, host memory is what the
    /// budget is about, so this is refused; --disk is the way there.
    #[arg(long, value_name = "SIZE", value_parser = checked::<Bytes>)]
    pub host: Option<String>,
    /// What the fastest plan is chosen by: measured on this machine at the first start, where a choice depends on time, or
    /// analytic, the same on every machine [default: measured].
    #[arg(long, value_name = "measured|analytic", value_parser = checked::<Costs>)]
    pub costs: Option<String>,
    /// Take the first plan that is found to fit, in a tenth to a half of the time that planning takes, instead of the fastest.
    #[arg(long)]
    pub first: bool,
    /// What a step with a result that is not finite may change: blocks whose results are finite (block), or nothing at all (step),
    /// for which all results are computed before the first is written [default: block].
    #[arg(long, value_name = "block|step", value_parser = checked::<Guard>)]
    pub guard: Option<String>,
    /// Compute in half the bytes where layers do not say otherwise: mixed_float16, mixed_bfloat16 or float32.
    #[arg(long, value_name = "POLICY", value_parser = checked::<Precision>)]
    pub precision: Option<String>,
    /// Where it runs: cpu, cuda or cuda:N. On a GPU, the budget is what the process holds of its memory [default: the
    /// first GPU where there is one, else the CPU].
    #[arg(long, value_name = "DEVICE", value_parser = checked::<DeviceChoice>)]
    pub device: Option<String>,
    /// Worker threads [default: the machine's, or its control group's share]. The environment's MEMFIT_VECTORS (plain,
    /// avx2, avx512 or neon) names the vector instructions they use, else the widest.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Set any key of the job, as in train.optimizer.learning_rate=0.1 or data.shuffle=false. May be given again.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<Setting>,
    /// Print JSON for programs.
    #[arg(long)]
    pub json: bool,
}

/// What to say of a plan.
#[derive(Args)]
pub struct PlanArguments {
    #[command(flatten)]
    pub job: JobArguments,
    /// Print time against bytes instead: every plan from the fastest to the smallest, drawn and as a table.
    ///
    /// Each point is the fastest plan that needs no more bytes: what it splits, computes again and copies out, its time
    /// over that of the fastest plan, and a lower bound of that time. The budget is marked.
    #[arg(long, conflicts_with_all = ["diff", "output"])]
    pub sweep: bool,
    /// Write the plan to this page, before anything runs: where every byte would be. With --sweep, the curve: every plan can
    /// be pointed at. Nothing is loaded from anywhere.
    #[arg(long, value_name = "FILE.html", conflicts_with = "diff")]
    pub report: Option<PathBuf>,
    /// Compare with another job or saved plan, kind by kind and layer by layer.
    ///
    /// Jobs are planned under the same overrides (--budget, --batch, ...); saved plans are taken as they are. The first
    /// file may be a saved plan too.
    #[arg(long, value_name = "JOB|PLAN.json")]
    pub diff: Option<PathBuf>,
    #[command(flatten)]
    pub model: ModelArguments,
    #[command(flatten)]
    pub validation: ValidationArguments,
    #[command(flatten)]
    pub written: WrittenArguments,
    /// Which machine the plan is for: this, whose limits and control groups lower the budget as they do in training, or none, to
    /// plan for another one by the budget alone.
    #[arg(long, value_name = "this|none", value_enum, default_value = "this")]
    pub machine: Machine,
    /// Save the whole answer to this file (JSON): the figures, every step, and where every tensor stands. A file of a trained model
    /// (.keras, .weights.h5, .safetensors) is not written, but planned for as in training.
    #[arg(long, value_name = "PLAN.json")]
    pub output: Option<PathBuf>,
    /// Write graph.txt, problem.txt and plan.txt to this folder, which is made where it does not exist.
    ///
    /// They are exact: `memfit replay FOLDER/problem.txt` gives this plan on any machine. Where the job does not fit, there is no
    /// plan.txt.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["sweep", "diff"])]
    pub dump: Option<PathBuf>,
}

/// Which machine a plan is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Machine {
    /// This one: what its limits and control groups allow is the most that a budget can be, as in training.
    #[default]
    This,
    /// Another one, of which the budget alone is known.
    None,
}

impl PlanArguments {
    /// A job as it would be trained.
    pub fn read_file(&self, path: &Path) -> Result<Job, Error> {
        let mut settings = self.model.settings()?;
        settings.extend(self.validation.settings()?);
        settings.extend(self.written.settings()?);
        if let Some(output) = self.output.as_deref().filter(|path| is_trained_model(path)) {
            settings.push(from_here("train.output", &output.to_string_lossy())?);
        }
        let job = self.job.read_file(path, settings)?;
        match self.machine {
            Machine::This => Ok(memfit::within_machine(&job, &mut Said)),
            Machine::None if job.memory.budget.is_none() => Err(Error::Job {
                place: "--machine none".to_owned(),
                problem: "what another machine allows is not known; give --budget".to_owned(),
            }),
            Machine::None => Ok(job),
        }
    }

    /// Where the plan is saved, where that is asked for.
    pub fn saved_to(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| !is_trained_model(path))
    }
}

/// Whether a file would be that of a trained model, and no saved plan.
fn is_trained_model(path: &Path) -> bool {
    let known = ["keras", "h5", "safetensors"];
    path.extension().is_some_and(|extension| known.iter().any(|known| extension == *known))
}

/// Says on standard error where the machine allows less than the budget.
struct Said;

impl memfit::Observer for Said {
    fn event(&mut self, event: memfit::Event<'_>) {
        if let memfit::Event::Lowered { asked, allowed } = event {
            let (available, by) = (allowed.available, allowed.by);
            crate::output::err(&format!("budget {asked} lowered to {available}: {by} allows no more"));
        }
    }
}

/// What a training is validated on.
#[derive(Args)]
pub struct ValidationArguments {
    /// Validate after every epoch on these: files of the inputs, then of the targets, as in xv.npy,yv.npy.
    #[arg(long, value_name = "FILES", value_delimiter = ',', conflicts_with = "validation_split")]
    pub validation_data: Vec<String>,
    /// Validate after every epoch on this share of the rows, the last ones, instead of training on them.
    #[arg(long, value_name = "SHARE")]
    pub validation_split: Option<f64>,
}

impl ValidationArguments {
    /// Files take the place of a share of the rows, and the reverse.
    fn settings(&self) -> Result<Vec<Setting>, Error> {
        let mut settings = Vec::new();
        if !self.validation_data.is_empty() {
            settings.push(files("data.validation_x", &self.validation_data)?);
            settings.extend(["data.validation_y", "data.validation_split"].map(Setting::without));
        }
        if let Some(share) = self.validation_split {
            settings.push(Setting::new("data.validation_split", share));
            settings.extend(["data.validation_x", "data.validation_y"].map(Setting::without));
        }
        Ok(settings)
    }
}

/// What to pack, and how well.
#[derive(Args)]
pub struct PackArguments {
    /// The buffers (CSV).
    pub file: PathBuf,
    /// Stop at the first packing of at most this height.
    #[arg(long, value_name = "N")]
    pub capacity: Option<u64>,
    /// Go on as low as can be found, even where the capacity is met.
    #[arg(long)]
    pub minimize: bool,
    /// How long to look.
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    pub seconds: f64,
    /// Write the buffers with their offsets here.
    #[arg(long, value_name = "OUT.csv")]
    pub output: Option<PathBuf>,
    /// Print JSON for programs.
    #[arg(long)]
    pub json: bool,
}

/// How long to train, and where to report.
#[derive(Args)]
pub struct TrainArguments {
    #[command(flatten)]
    pub job: JobArguments,
    /// Steps in all, instead of the job's.
    #[arg(long, value_name = "N", conflicts_with = "epochs", value_parser = value_parser!(u64).range(COUNTS))]
    pub steps: Option<u64>,
    /// Passes over the data, instead of the job's.
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(COUNTS))]
    pub epochs: Option<u64>,
    #[command(flatten)]
    pub model: ModelArguments,
    #[command(flatten)]
    pub validation: ValidationArguments,
    /// The learning rate, instead of the optimizer's own or its schedule.
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub learning_rate: Option<f64>,
    /// Stop when a value has not improved for some epochs, as in val_loss:5 or val_accuracy:3:0.01.
    #[arg(long, value_name = "MONITOR:PATIENCE[:MIN_DELTA]", value_parser = checked::<EarlyStoppingRule>)]
    pub early_stopping: Option<String>,
    /// Take the rows in another order in every epoch, by the seed of the training or this one [default: files are shuffled,
    /// synthetic rows are not].
    #[arg(long, value_name = "SEED", num_args = 0..=1, require_equals = true, value_parser = value_parser!(i64).range(0..))]
    pub shuffle: Option<Option<i64>>,
    /// Take the rows in the order of the files.
    #[arg(long, conflicts_with = "shuffle")]
    pub no_shuffle: bool,
    #[command(flatten)]
    pub written: WrittenArguments,
    /// Write the trained model here, with its optimizer's state: .keras, .weights.h5 or .safetensors.
    #[arg(long, value_name = "FILE")]
    pub output: Option<String>,
    #[command(flatten)]
    pub checkpoints: CheckpointArguments,
    /// Write where every byte was to this page.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
}

/// What training writes besides its model. A plan counts the memory that it takes, and writes nothing.
#[derive(Args)]
pub struct WrittenArguments {
    /// Write loss, metrics, learning rate, rows a second and bytes of every step and epoch to this file, in training.
    #[arg(long, value_name = "FILE.csv|.jsonl")]
    pub log: Option<String>,
    /// Write the same to event files in this folder, for TensorBoard.
    #[arg(long, value_name = "FOLDER")]
    pub tensorboard: Option<String>,
    /// Write checkpoints to this folder, in training: .keras files with all that it takes to go on bit for bit. A signal (Ctrl-C,
    /// SIGTERM) writes one after the step that runs; a second signal ends at once.
    #[arg(long, value_name = "FOLDER")]
    pub checkpoints: Option<String>,
}

impl WrittenArguments {
    fn settings(&self) -> Result<Vec<Setting>, Error> {
        let keys = [
            ("train.log", &self.log),
            ("train.tensorboard", &self.tensorboard),
            ("checkpoint.folder", &self.checkpoints),
        ];
        let given = keys.into_iter().filter_map(|(key, path)| Some(from_here(key, path.as_deref()?)));
        given.collect()
    }
}

/// When checkpoints are written, which are kept, and whether training goes on from one.
#[derive(Args)]
pub struct CheckpointArguments {
    /// How often, as in 500steps, 10min or 1epoch [default: 1epoch, or 500steps of data without end].
    #[arg(long, value_name = "INTERVAL", requires = "checkpoints", value_parser = checked::<Every>)]
    pub every: Option<String>,
    /// How many checkpoints are kept, the newest [default: 3].
    #[arg(long, value_name = "N", requires = "checkpoints", value_parser = value_parser!(u64).range(COUNTS))]
    pub keep: Option<u64>,
    /// Also keep the best by this value, as in val_loss: best.keras in the folder.
    #[arg(long, value_name = "NAME", requires = "checkpoints")]
    pub keep_best: Option<String>,
    /// Go on from the newest whole checkpoint of the folder, or start from the beginning where there is none. A job that differs from
    /// the checkpoint's is refused with what differs; --resume=force goes on with it.
    #[arg(long, value_name = "force", num_args = 0..=1, require_equals = true, default_missing_value = "newest")]
    pub resume: Option<Resume>,
}

impl CheckpointArguments {
    fn settings(&self) -> impl Iterator<Item = Setting> {
        let keys = [
            given("checkpoint.every", self.every.as_deref()),
            given("checkpoint.keep", self.keep),
            given("checkpoint.keep_best", self.keep_best.as_deref()),
        ];
        keys.into_iter().flatten()
    }
}

impl JobArguments {
    /// The job with what was typed in place of what the file says, and further settings.
    pub fn read(&self, more: Vec<Setting>) -> Result<Job, Error> {
        self.read_file(&self.file, more)
    }

    /// Another job under the same settings.
    pub fn read_file(&self, path: &Path, more: Vec<Setting>) -> Result<Job, Error> {
        let mut settings = self.set.clone();
        settings.extend(self.settings()?);
        settings.extend(more);
        Job::read_with(path, &settings)
    }

    fn settings(&self) -> Result<Vec<Setting>, Error> {
        let disk = self.disk.as_ref().map(|disk| -> Result<Setting, Error> {
            let folder = absolute_text("memory.disk", &disk.folder.to_string_lossy())?;
            Ok(Setting::new("memory.disk", format!("{folder}:{}B", disk.size.0)))
        });
        let settings = [
            given("train.batch", self.batch),
            given("memory.micro_batches", self.micro_batches),
            given("train.precision", self.precision.as_deref()),
            given("memory.budget", self.budget.as_deref()),
            given("memory.costs", self.costs.as_deref()),
            self.first.then(|| Setting::new("memory.first", true)),
            given("memory.guard", self.guard.as_deref()),
            disk.transpose()?,
            given("train.device", self.device.as_deref()),
            given("memory.host", self.host.as_deref()),
        ];
        Ok(settings.into_iter().flatten().collect())
    }
}

impl TrainArguments {
    /// The job as it is typed.
    pub fn read(&self) -> Result<Job, Error> {
        let mut settings = self.validation.settings()?;
        if self.steps.is_some() || self.epochs.is_some() {
            settings.extend(["train.steps", "train.epochs"].map(Setting::without));
        }
        let shuffle = self.shuffle.map(|seed| match seed {
            None => Setting::new("data.shuffle", true),
            Some(seed) => Setting::new("data.shuffle", seed),
        });
        let more = [
            given("train.steps", self.steps),
            given("train.epochs", self.epochs),
            given("train.learning_rate", self.learning_rate),
            given("train.early_stopping", self.early_stopping.as_deref()),
            shuffle,
            self.no_shuffle.then(|| Setting::new("data.shuffle", false)),
        ];
        settings.extend(more.into_iter().flatten());
        let output = self.output.as_deref().map(|file| from_here("train.output", file));
        settings.extend(output.transpose()?);
        settings.extend(self.written.settings()?);
        settings.extend(self.checkpoints.settings());
        settings.extend(self.model.settings()?);
        let mut job = self.job.read(settings)?;
        job.caller.resume = self.checkpoints.resume.unwrap_or(job.caller.resume);
        Ok(job)
    }
}
