//! Job files: what to train, on what, within which budget.

use std::path::{Path, PathBuf};

use memfit_formats::Precision;
use memfit_ir::{ArenaMemory, Bytes, Offload, Pinned};
use serde::Deserialize;
use serde_json::Value;

use crate::backends::Choice;
use crate::early_stopping::EarlyStoppingRule;
use crate::set::Setting;
use crate::{Caller, CheckpointSection, Costs, Error, Lack, Size};

/// Rows of a step where a model file comes without a job, as in Keras.
const MODEL_BATCH: u32 = 32;

/// A training job, as its TOML file says it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The network.
    pub model: ModelSection,
    /// How it is trained.
    pub train: TrainSection,
    /// What it is trained on.
    #[serde(default)]
    pub data: DataSection,
    /// The budget.
    #[serde(default)]
    pub memory: MemorySection,
    /// Where checkpoints go, where there are any.
    pub checkpoint: Option<CheckpointSection>,
    /// What the caller adds.
    #[serde(skip)]
    pub caller: Caller,
}

/// `[model]`: a Keras 3 configuration, or layers in place.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSection {
    /// A `.keras` file, or one as `model.to_json()` writes it.
    pub file: Option<PathBuf>,
    /// Layers with Keras's class names and arguments.
    pub layers: Option<Vec<Value>>,
    /// Weights to begin with: a `.keras`, `.weights.h5` or `.safetensors` file. A `.keras` model brings its own.
    pub weights: Option<PathBuf>,
    /// Names of the output layers; the last layer where it is not given.
    pub outputs: Option<Vec<String>>,
}

/// `[train]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainSection {
    /// A loss by Keras's name, an object with its arguments, or a list with one for each output; that of the `.keras` file
    /// where it is not given.
    #[serde(default)]
    pub loss: Value,
    /// Factors of the outputs in the total loss.
    pub loss_weights: Option<Vec<f32>>,
    /// An optimizer by Keras's name, or an object with its arguments; that of the `.keras` file, or rmsprop, where it is not
    /// given.
    #[serde(default)]
    pub optimizer: Value,
    /// Metrics by Keras's names, or objects with their arguments: for every output, or a list of lists with one for each; those of the
    /// `.keras` file where there are none.
    #[serde(default)]
    pub metrics: Vec<Value>,
    /// The same for metrics in which rows count by their weights.
    #[serde(default)]
    pub weighted_metrics: Vec<Value>,
    /// Rows of one step.
    pub batch: usize,
    /// Steps in all; or give `epochs`.
    pub steps: Option<u64>,
    /// Passes over the data.
    pub epochs: Option<u64>,
    /// Seed of weights, random layers and random data.
    #[serde(default)]
    pub seed: u64,
    /// A dtype policy by Keras's name, for every layer that has none of its own.
    #[serde(default, deserialize_with = "precision")]
    pub precision: Option<Precision>,
    /// Where it runs: `cpu`, `cuda` or `cuda:N`. The first GPU where there is one, else the CPU, where it is not given.
    #[serde(default, deserialize_with = "device")]
    pub device: Choice,
    /// Whether a GPU may round the factors of f32 products to TF32's ten bits, as Keras lets it by default.
    pub tf32: Option<bool>,
    /// Whose gradients are reproduced where memfit's differ from others' by intent; its own where it is not
    /// given.
    pub like: Option<Like>,
    /// A learning rate in place of the optimizer's own, wherever that comes from.
    pub learning_rate: Option<f64>,
    /// When training ends before its last epoch: `"val_loss:5"`, or a table with Keras's arguments.
    pub early_stopping: Option<EarlyStoppingRule>,
    /// A file of the loss and metrics of every step and epoch: `.csv` or `.jsonl`.
    pub log: Option<PathBuf>,
    /// A folder of event files that TensorBoard opens.
    pub tensorboard: Option<PathBuf>,
    /// Where the trained model is written: a `.keras`, `.weights.h5` or `.safetensors` file.
    pub output: Option<PathBuf>,
}

/// Whose gradients are reproduced where memfit's differ by intent: docs/differences.md lists the cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Like {
    /// Those of Keras on TensorFlow.
    Tensorflow,
}

impl TryFrom<String> for Like {
    type Error = String;

    fn try_from(text: String) -> Result<Like, String> {
        text.parse()
    }
}

impl std::str::FromStr for Like {
    type Err = String;

    fn from_str(text: &str) -> Result<Like, String> {
        match text {
            "tensorflow" => Ok(Like::Tensorflow),
            other => Err(format!("`{other}` is not known; use \"tensorflow\", or leave it out")),
        }
    }
}

/// `[data]`: random rows, or one `.npy` file for each input and target.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSection {
    /// Rows of synthetic data in an epoch; without end where it is not given.
    pub rows: Option<u64>,
    /// Files of the inputs, in the model's order.
    #[serde(default)]
    pub x: OneOrMany,
    /// Files of the targets, in the order of the outputs.
    #[serde(default)]
    pub y: OneOrMany,
    /// File of the rows' weights.
    pub sample_weight: Option<PathBuf>,
    /// Files of inputs to validate on after every epoch.
    #[serde(default)]
    pub validation_x: OneOrMany,
    /// Files of their targets.
    #[serde(default)]
    pub validation_y: OneOrMany,
    /// File of their weights.
    pub validation_sample_weight: Option<PathBuf>,
    /// The share of the rows, the last ones, that are validated on and not trained on.
    pub validation_split: Option<f64>,
    /// Whether rows come in another order in every epoch: `true`, `false`, or the seed of the order. Where it is not given, files are
    /// shuffled by the seed of the training, as in Keras, and synthetic rows are not.
    pub shuffle: Option<Shuffle>,
}

/// In which order rows come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "ShuffleWritten")]
pub enum Shuffle {
    /// In the order of the file.
    Off,
    /// In an order by the seed of the training.
    On,
    /// In an order by this seed.
    Seed(u64),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected true, false or a seed")]
enum ShuffleWritten {
    Truth(bool),
    Seed(u64),
}

impl From<ShuffleWritten> for Shuffle {
    fn from(written: ShuffleWritten) -> Shuffle {
        match written {
            ShuffleWritten::Truth(false) => Shuffle::Off,
            ShuffleWritten::Truth(true) => Shuffle::On,
            ShuffleWritten::Seed(seed) => Shuffle::Seed(seed),
        }
    }
}

/// One path, or several.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// None.
    #[default]
    None,
    /// One.
    One(PathBuf),
    /// Several.
    Many(Vec<PathBuf>),
}

impl OneOrMany {
    /// All of them.
    pub fn paths(&self) -> &[PathBuf] {
        match self {
            OneOrMany::None => &[],
            OneOrMany::One(path) => std::slice::from_ref(path),
            OneOrMany::Many(paths) => paths,
        }
    }
}

/// `[memory]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemorySection {
    /// What the whole process may hold: a size, or a share of what the machine allows. A little less than all of that where it is not given.
    #[serde(default, deserialize_with = "budget")]
    pub budget: Option<Size>,
    /// Offload memory on a disk: a folder, a colon and a size, as in `/scratch:20GiB`. Values may be copied
    /// out to a file there.
    #[serde(default, deserialize_with = "disk")]
    pub disk: Option<Disk>,
    /// Host memory as offload memory, for a device that has memory of its own. The CPU has none: there it is
    /// refused.
    #[serde(default, deserialize_with = "size")]
    pub host: Option<Bytes>,
    /// Split the batch though BatchNormalization then takes its statistics over micro-batches.
    #[serde(default)]
    pub allow_batchnorm_split: bool,
    /// Let a GPU's libraries compute convolutions and products by the same algorithms under every budget.
    /// Where the fastest need more workspace than there is room for, the plan saves bytes elsewhere.
    #[serde(default)]
    pub fixed_algorithms: bool,
    /// What a step with a result that is not finite may change.
    #[serde(default)]
    pub guard: Guard,
    /// What the fastest plan is chosen by.
    #[serde(default)]
    pub costs: Costs,
    /// Take the first plan that is found to fit, in a tenth to a half of the time, instead of the fastest.
    #[serde(default)]
    pub first: bool,
    /// Split the batch into exactly this many micro-batches, instead of as few as fit.
    pub micro_batches: Option<usize>,
}

/// What a step with a result that is not finite may change. Nothing that is not finite is ever written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Guard {
    /// Blocks of tensors whose new values are finite.
    #[default]
    Block,
    /// Nothing at all: every result of the step is computed before the first is written.
    Step,
}

impl TryFrom<String> for Guard {
    type Error = String;

    fn try_from(text: String) -> Result<Guard, String> {
        text.parse()
    }
}

impl std::str::FromStr for Guard {
    type Err = String;

    fn from_str(text: &str) -> Result<Guard, String> {
        match text {
            "block" => Ok(Guard::Block),
            "step" => Ok(Guard::Step),
            _ => Err(format!("`{text}` is not a guard; expected block or step")),
        }
    }
}

/// Room on a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Where.
    pub folder: PathBuf,
    /// How much.
    pub size: Bytes,
}

impl std::str::FromStr for Disk {
    type Err = String;

    fn from_str(text: &str) -> Result<Disk, String> {
        let (folder, size) =
            text.rsplit_once(':').ok_or("expected a folder, a colon and a size, as in /scratch:20GiB")?;
        let size = size.parse().map_err(|error: memfit_ir::ParseBytesError| error.to_string())?;
        Ok(Disk { folder: folder.into(), size })
    }
}

fn precision<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Precision>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(serde::de::Error::custom)
}

fn device<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Choice, D::Error> {
    String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
}

fn disk<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Disk>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(serde::de::Error::custom)
}

fn budget<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Size>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(serde::de::Error::custom)
}

fn size<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Bytes>, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

/// Whether a file is a model itself, and no job with one.
fn is_model(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "keras" || extension == "json")
}

impl DataSection {
    /// The same rows in the order of their files.
    pub(crate) fn in_order(self) -> DataSection {
        DataSection { shuffle: Some(Shuffle::Off), ..self }
    }
}

/// What a job on a model alone begins with.
fn model_job() -> toml::Table {
    let train = toml::Table::from_iter([("batch".to_owned(), toml::Value::from(MODEL_BATCH))]);
    toml::Table::from_iter([
        ("model".to_owned(), toml::Table::new().into()),
        ("train".to_owned(), train.into()),
    ])
}

/// The most rows of a batch.
const ROWS_MOST: usize = 1 << 40;

impl Job {
    /// Reads a job file.
    pub fn read(path: &Path) -> Result<Job, Error> {
        let text = memfit_files::text_of(path)?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Job::parse_named(&text, &path.display().to_string(), folder)
    }

    /// Reads a job file, or takes a model file alone, with some keys set to other values.
    pub fn read_with(path: &Path, settings: &[Setting]) -> Result<Job, Error> {
        if is_model(path) {
            return Job::on_model(path, settings);
        }
        let mut job = Job::read(path)?;
        if !settings.is_empty() {
            // The file's own mistakes have been named with their lines.
            let name = path.display().to_string();
            let table = toml::from_str(&memfit_files::text_of(path)?)
                .map_err(|error| Error::job(&name, error.to_string().trim_end().to_owned()))?;
            job = Job { caller: job.caller, ..Job::from_table(table, settings)? };
        }
        Ok(job)
    }

    /// A job on a Keras configuration that the caller holds, as `model.to_json()` gives it.
    pub fn for_config(config: Value, settings: &[Setting]) -> Result<Job, Error> {
        let mut job = Job::from_table(model_job(), settings)?;
        job.caller.config = Some(config);
        Ok(job)
    }

    /// A job on a model file alone, `.keras` or `model.to_json()`, with what `model.fit` begins with.
    pub fn for_model(path: &Path) -> Job {
        Job::on_model(path, &[]).expect("a job without settings has nothing that could be wrong")
    }

    fn on_model(path: &Path, settings: &[Setting]) -> Result<Job, Error> {
        let mut job = Job::from_table(model_job(), settings)?;
        job.model.file.get_or_insert_with(|| path.to_owned());
        Ok(job)
    }

    /// **The one path from options to a job**: those of a file, of the command and of Python are keys of this table.
    fn from_table(table: toml::Table, settings: &[Setting]) -> Result<Job, Error> {
        let read = |table: &toml::Table| {
            Job::deserialize(table.clone()).map_err(|error| error.to_string().trim_end().to_owned())
        };
        let mut set = table.clone();
        settings.iter().try_for_each(|setting| setting.apply(&mut set))?;
        read(&set).map_err(|problem| {
            let mut set = table;
            let mut is_wrong = |setting: &&Setting| setting.apply(&mut set).is_err() || read(&set).is_err();
            let place = settings.iter().find(&mut is_wrong).map_or("the job".to_owned(), Setting::key);
            let said = problem.strip_suffix(&format!("\nin `{place}`")).unwrap_or(&problem).to_owned();
            Error::job(place, said)
        })
    }

    /// Reads the text of a job file whose relative paths start from `folder`.
    pub fn parse(text: &str, folder: PathBuf) -> Result<Job, Error> {
        Job::parse_named(text, "job", folder)
    }

    fn parse_named(text: &str, name: &str, folder: PathBuf) -> Result<Job, Error> {
        let mut job: Job = toml::from_str(text)
            .map_err(|error| Error::job(name, error.to_string().trim_end().to_owned()))?;
        job.caller.folder = folder;
        Ok(job)
    }

    /// A path of the job, from where the job file stands.
    pub fn path(&self, path: &Path) -> PathBuf {
        self.caller.folder.join(path)
    }

    /// What is decided of the training's plan: what a caller pinned, or the number of micro-batches.
    pub(crate) fn pinned(&self) -> Result<Pinned, Error> {
        let Some(count) = self.memory.micro_batches else { return Ok(self.caller.pinned.clone()) };
        let (batch, place) = (self.train.batch, "memory.micro_batches (--micro-batches)");
        let rows = batch.div_ceil(count.clamp(1, batch.max(1)));
        if count == 0 || batch.div_ceil(rows.max(1)) != count {
            let near = batch.div_ceil(rows.max(1));
            let problem = format!(
                "a batch of {batch} rows cannot be split into {count} micro-batches of one size (the last may be \
                 smaller); {near} is possible"
            );
            return Err(Error::job(place, problem));
        }
        if self.caller.pinned.micro_batch.is_some_and(|pinned| pinned != rows) {
            return Err(Error::job(place, "the run that goes on had another number of micro-batches"));
        }
        Ok(Pinned { micro_batch: Some(rows), ..self.caller.pinned.clone() })
    }

    /// What must hold whatever the model is.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.train.batch == 0 {
            return Err(Error::job("train.batch", "a batch of 0 rows trains nothing; give at least 1"));
        }
        if ROWS_MOST < self.train.batch {
            let problem = format!(
                "a batch of {} rows is more than can be counted; give at most {ROWS_MOST}",
                self.train.batch
            );
            return Err(Error::job("train.batch", problem));
        }
        if self.train.steps == Some(0) || self.train.epochs == Some(0) {
            return Err(Error::job("train.steps", "0 steps train nothing; give at least 1"));
        }
        if self.train.steps.is_some() && self.train.epochs.is_some() {
            return Err(Error::job("train.steps", "give either steps or epochs, not both"));
        }
        let offload = self.capabilities().offload;
        if offload == Offload::Host && self.memory.disk.is_some() {
            return Err(Error::Lacks(Lack::Host));
        }
        if self.caller.allocator.is_some() && self.capabilities().arena == ArenaMemory::Device {
            let problem = "an allocator provides memory of this process, and this device's arena is its own; give `cpu`";
            return Err(Error::job("train.device", problem));
        }
        if self.memory.guard == Guard::Step && self.memory.allow_batchnorm_split {
            return Err(Error::job(
                "memory.guard",
                "with `guard = \"step\"`, BatchNormalization's moving statistics are written once a step, which \
                 `allow_batchnorm_split` does not allow; leave out one of them",
            ));
        }
        if offload == Offload::Disk && self.memory.host.is_some() {
            return Err(Error::Lacks(Lack::Disk));
        }
        crate::log::check(self)?;
        match (&self.model.file, &self.model.layers) {
            (None, None) if self.caller.config.is_some() => Ok(()),
            (Some(_), None) | (None, Some(_)) => Ok(()),
            (None, None) => Err(Error::job("model", "give `file = \"model.json\"` or `[[model.layers]]`")),
            (Some(_), Some(_)) => {
                Err(Error::job("model", "give either `file` or `[[model.layers]]`, not both"))
            }
        }
    }
}
