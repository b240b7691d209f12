//! `fit()` that fits: training inside a byte budget, planned to the byte before the first is taken.
//!
//! ```no_run
//! use memfit::{Job, Quiet, fit};
//!
//! let mut job = Job::read("examples/large-images.toml".as_ref())?;
//! job.memory.budget = Some("2GiB".parse().expect("a size"));
//! let report = fit(&job, None, &mut Quiet)?;
//! assert_eq!(report.bytes_peak_predicted, report.bytes_peak_measured);
//! # Ok::<(), memfit::Error>(())
//! ```

mod budget;
mod cache;
mod caller;
mod change;
mod charge;
mod checkpoint;
mod checkpoint_writer;
mod compile;
mod compile_arguments;
mod compile_config;
mod compile_metric;
mod compile_optimizer;
mod compiled;
mod costs;
mod data;
mod devices;
mod driver;
mod early_stopping;
mod error;
mod handover;
mod inference;
mod job;
mod layer_table;
mod lease;
mod length;
mod log;
mod model_file;
mod monitor;
mod packing;
mod pass;
mod precision;
mod prepare;
mod refusal;
mod replay;
mod report;
mod resume;
mod run_state;
mod saved;
mod saving;
mod session;
mod session_checkpoints;
mod set;
mod size;
mod solve;
mod state;
mod summary;
mod sweep;
mod table;
mod train;
mod training;
mod tries;
mod validation;
mod values;

pub use budget::{Line, Runtime, default_budget};
pub use caller::Caller;
pub use checkpoint::{CheckpointSection, Every};
pub use checkpoint_writer::Stalls;
pub use compile::parse_loss;
pub use compile_metric::parse_metric;
pub use compile_optimizer::parse_optimizer;
pub use compiled::{Compiled, compiled};
pub use costs::{Costs, CostsUsed, SECONDS_GLANCE};
pub use devices::Devices;
pub use driver::{Driver, Steps};
pub use early_stopping::{EarlyStopping, EarlyStoppingRule, EarlyStoppingState};
pub use error::{Error, Lack};
pub use inference::{Evaluation, Ran, evaluate, predict};
pub use job::{
    DataSection, Disk, Guard, Job, Like, MemorySection, ModelSection, OneOrMany, Shuffle, TrainSection,
};
pub use layer_table::{LayerTable, TableRow, layer_table};
pub use model_file::ModelFile;
pub use monitor::{Mode, Monitor, Watchable, watchables};
pub use packing::{PackAnswer, PackRequest, pack_file};
pub use precision::PrecisionSummary;
pub use prepare::{Prepared, Threads, prepare, prepare_without_hints};
pub use refusal::refusal_json;
pub use replay::{Dump, Replay, dump, replay};
pub use report::{About, Report, html, sweep_html};
pub use resume::Resume;
pub use run_state::Arithmetic;
pub use saved::{Gap, SavedLayer, SavedPlan, saved_text};
pub use session::{Purpose, Session, StepOf, VariableKind, VariableView};
pub use set::Setting;
pub use size::{Size, SizeError};
pub use summary::{BatchCurve, LayerBytes, RegionSummary, Summary, batch_curve};
pub use sweep::{SweepPoint, sweep};
pub use table::{costs_line, plan_table};
pub use train::{Event, Observer, Quiet, fit, within_machine};
pub use training::Ended;
pub use values::{initialize, initialize_state};

pub use memfit_data::{Field, Lent, LentArray, LentOrder};
pub use memfit_device::Choice as DeviceChoice;
pub use memfit_device::heap;
pub use memfit_device::process;
pub use memfit_files::{FileError, NewFile, remove_leftovers};
pub use memfit_formats::{Argument, LayerClass, Precision, layers as layer_classes};
pub use memfit_ir::{Bytes, ParseBytesError, Pinned};
pub use memfit_pack::Packing;
pub use memfit_plan::{Change, DoesNotFit, Group, Syntax};
pub use memfit_run::{Means, RunError, StepRecord};
