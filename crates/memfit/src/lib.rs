//! `fit()` that fits: training inside a byte budget, planned to the byte before the first is taken.
//!
//! [`prelude`] is for programs that write a model down; jobs come from files:
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
//!
//! # Decisions
//!
//! - **`fit` is the line of arrows as code** (`train`): model, training graph, costs, plan (`prepare`), then
//!   the loop after the one-way door (`training`). `evaluate` and `predict` plan a graph without gradients
//!   within the same budget (`inference`).
//! - **Planning is one call** (`solve`). It finds the plan that is charged the least first, by estimates
//!   alone and whatever the budget: that is the smallest budget, and a budget is accepted if and only if it
//!   is at least that. Then it takes the fastest plan that is charged no more than the budget. Of the plan by
//!   measured costs and the one by estimates the faster is taken; whether a job fits, and from which budget
//!   on, is decided by the estimate alone, so that no clock decides it. Measured times are remembered for the
//!   next start (`cache`).
//! - **One function says what is charged to the budget** (`charge`): plan, training, smallest budget and
//!   refusal ask it. What a plan takes of the heap, and what planning itself holds, is counted for each plan
//!   that is looked at, so that two runs agree.
//! - **The program is a line of the budget** (`budget`). Text pages are touched at start, worker threads
//!   started, model and data opened. Then the program's own memory is the files' exact size and twice the
//!   heap that lives, since holes take as much again, with thread stacks, the input's buffers and the loop's
//!   own heap beside it. In Python the heap is not counted: there it is measured, with an allowance for each
//!   node. When planning is over, the program's pages are given back: those that training runs on come back
//!   by themselves, and all of them stay counted.
//! - **A program's model is what a file could say** (`model`, `trainer`): builders make the values that Keras's reader takes, from one
//!   list that a test compares with the reader's table; a trainer is settings of a job, a plan is `prepare`, and training is the loop
//!   of `fit`. Only rows and values are its own: arrays are borrowed, and the values of weights and state leave the arena slot by slot
//!   when training ends. The budget counts what is added to the process, as in Python.
//! - **`Job` is what a file says** (`job`); what a caller adds is `Caller`. Options of the shell and
//!   arguments in Python are settings of a job's keys (`set`).
//! - **A job that measures the process holds a lease** (`lease`), since resident memory and its peak are the
//!   whole process's; a second one waits.
//! - **One driver of steps** (`driver`): training, evaluation, prediction and validation begin and end theirs
//!   through it, and so do the steps of Python's loop, which gives it batches of its own. What runs over rows
//!   that can be read again says which come next.
//! - **A caller's own loop** (`session`) is `fit` turned inside out: rows are borrowed, variables go in and
//!   out by Keras's order, the arena comes and goes with the plan kept. There the budget counts what is added
//!   to the process's baseline (`Caller::baseline`). When values leave for good, the pages of each slot go
//!   back before the next one is read (`handover`).
//! - **A validation runs beside what stays** (`validation`): after an epoch only weights, optimizer state and
//!   sums are alive. The other pages are given back, an arena for the evaluation comes and goes, with the
//!   weights copied over. It is planned before the training, each beside the other. The command runs it over
//!   its files; the caller of a session brings the rows (`session_validation`), and may look at the weights
//!   meanwhile, so that what moving them takes is counted too.
//! - **A checkpoint is the model's own file and the state of the run** (`checkpoint`, `run_state`): variables
//!   are streamed from their slots into a `.keras` archive (`checkpoint_writer`), beside them a JSON entry
//!   with counters, sums of the epoch, loss scale, and what decides bits: micro-batch, region, algorithms
//!   (`Pinned`) and vector instructions. Resuming (`resume`) plans with exactly these; a permutation of the
//!   rows needs its seed and epoch alone. The library asks its observer after every step whether to stop;
//!   only the command knows signals.
//! - **Logs are observers** (`log`): they see the events that every observer sees, are flushed before a
//!   checkpoint, and cut off what came after it when a run is resumed.
//! - **Hints change the job too** (`tries`, `change`): another image size, layer or optimizer, each planned
//!   before it is named.
//! - **Optimizer variables in files are named by Keras's order** (`state`). Averages of weights (`use_ema`)
//!   become the weights when training ends.

/// The code of these pages is compiled.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/rust.md")]
    struct Rust;
    #[doc = include_str!("../../../README.md")]
    struct Readme;
}

mod backends;
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
mod model;
mod model_file;
mod monitor;
mod packing;
mod pass;
mod precision;
pub mod prelude;
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
mod session_rows;
mod session_validation;
mod set;
mod size;
mod solve;
mod state;
mod summary;
mod sweep;
mod table;
mod train;
mod trainer;
mod training;
mod tries;
mod validation;
mod values;

pub use budget::{Line, Runtime, default_budget};
pub use caller::{Caller, CallerRows, ValidationRows};
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

pub use backends::{Choice as DeviceChoice, Opening};
pub use memfit_data::{Borrowed, BorrowedArray, BorrowedOrder, DataError, Field, Source};
pub use memfit_device::Element;
pub use memfit_device::heap;
pub use memfit_device::process;
pub use memfit_device::{Allocator, BUFFER_SLACK, Buffer, DeviceError, MappedPages, Memory, SharedMemory};
pub use memfit_files::{FileError, NewFile, remove_leftovers};
pub use memfit_formats::{Argument, LayerClass, Precision, layers as layer_classes};
pub use memfit_ir::{Bytes, Operand, OperandList, ParseBytesError, Pinned, Presence, Signature};
pub use memfit_pack::Packing;
pub use memfit_plan::{Change, DoesNotFit, Group, Syntax};
pub use memfit_run::{Means, RunError, StepRecord};
