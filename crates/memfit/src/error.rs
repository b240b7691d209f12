//! What can go wrong, each with what to do next.

use std::path::PathBuf;

use memfit_plan::Syntax;

/// Why a job did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("cannot {verb} `{path}`: {source}")]
    File {
        /// Read or write.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The job file is not what it should be.
    #[error("{place}: {problem}")]
    Job {
        /// The file, or the key within it.
        place: String,
        /// What is wrong, and what to write instead.
        problem: String,
    },
    /// The job lacks something that it cannot run without.
    #[error("{0}")]
    Lacks(Lack),
    /// The model cannot be built.
    #[error(transparent)]
    Model(Box<memfit_formats::FormatError>),
    /// The model of a file cannot be built.
    #[error("`{}`: {error}", path.display())]
    ModelIn {
        /// The file.
        path: PathBuf,
        /// What is wrong with its model.
        error: Box<memfit_formats::FormatError>,
    },
    /// A model file cannot be read or written.
    #[error(transparent)]
    ModelFile(#[from] memfit_files::FileError),
    /// The model cannot be trained as asked.
    #[error(transparent)]
    Training(#[from] memfit_grad::GradError),
    /// The data cannot be read as asked.
    #[error(transparent)]
    Data(#[from] memfit_data::DataError),
    /// Nothing fits the budget.
    #[error(transparent)]
    DoesNotFit(#[from] Box<memfit_plan::DoesNotFit>),
    /// The planner gave a wrong plan: a bug.
    #[error(transparent)]
    Check(#[from] memfit_ir::CheckError),
    /// The device refused.
    #[error(transparent)]
    Device(#[from] memfit_device::DeviceError),
    /// Training stopped.
    #[error(transparent)]
    Run(memfit_run::RunError),
    /// The process took more than the budget: a bug.
    #[error(
        "the process held {used} at its peak and the budget is {budget}; please report this with the job file"
    )]
    OverBudget {
        /// `VmHWM`.
        used: memfit_ir::Bytes,
        /// The budget.
        budget: memfit_ir::Bytes,
    },
}

/// What a job can lack. Front ends add how it is given in their own syntax.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    /// Data to train on, or a number of steps on synthetic rows.
    #[error(
        "there is no data to train on, and synthetic rows have no end: name the data, or the number of steps"
    )]
    TrainingData,
    /// Data to evaluate or to predict.
    #[error("there is no data: name a file for each input")]
    Data,
    /// A loss.
    #[error("there is no loss, neither in the job nor in the model: name one")]
    Loss,
    /// Room on a disk, where host memory was given to the CPU.
    #[error(
        "memory.host: on the CPU, host memory is the memory that the budget is about: what would be copied out there counts in the \
         same budget; raise the budget, or give room on a disk"
    )]
    Disk,
    /// Room in host memory, where a disk was given to a GPU.
    #[error("memory.disk: beside a GPU, values are copied out to host memory; give room there")]
    Host,
}

impl Error {
    /// The exit code of a program that ends with this error: 2 for bad input, 3 when nothing fits, 1 for the rest.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::DoesNotFit(_) => 3,
            Error::ModelFile(error) => {
                if error.is_bad_input() {
                    2
                } else {
                    1
                }
            }
            Error::ModelIn { .. } => 2,
            Error::Job { .. } | Error::Lacks(_) | Error::Model(_) | Error::Training(_) | Error::Data(_) => 2,
            Error::Device(memfit_device::DeviceError::Store { .. }) => 2,
            Error::File { verb, .. } => {
                if *verb == "read" {
                    2
                } else {
                    1
                }
            }
            Error::Run(memfit_run::RunError::Feed(_) | memfit_run::RunError::NotFinite(_)) => 2,
            Error::Run(memfit_run::RunError::Grew { .. } | memfit_run::RunError::Store(_))
            | Error::Check(_)
            | Error::Device(_)
            | Error::OverBudget { .. } => 1,
        }
    }

    /// What went wrong, in one word for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Error::File { .. } => "file",
            Error::Job { .. } | Error::Lacks(_) => "job",
            Error::Model(_) | Error::ModelIn { .. } => "model",
            Error::ModelFile(_) => "model_file",
            Error::Training(_) => "training",
            Error::Data(_) => "data",
            Error::DoesNotFit(_) => "does_not_fit",
            Error::Check(_) => "check",
            Error::Device(_) => "device",
            Error::Run(_) => "run",
            Error::OverBudget { .. } => "over_budget",
        }
    }

    /// The message, with changes that would help in some syntax.
    pub fn text(&self, change: Syntax<'_>, lack: &dyn Fn(Lack) -> String) -> String {
        match self {
            Error::DoesNotFit(answer) => answer.text(change),
            Error::Lacks(one) => format!("{self}: {}", lack(*one)),
            Error::File { .. }
            | Error::Job { .. }
            | Error::Model(_)
            | Error::ModelIn { .. }
            | Error::ModelFile(_)
            | Error::Training(_)
            | Error::Data(_)
            | Error::Check(_)
            | Error::Device(_)
            | Error::Run(_)
            | Error::OverBudget { .. } => self.to_string(),
        }
    }

    pub(crate) fn job(place: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::Job { place: place.into(), problem: problem.into() }
    }
}

impl From<memfit_formats::FormatError> for Error {
    fn from(error: memfit_formats::FormatError) -> Error {
        Error::Model(Box::new(error))
    }
}

impl From<memfit_run::RunError> for Error {
    /// A feeder's own error comes out as itself.
    fn from(error: memfit_run::RunError) -> Error {
        match error {
            memfit_run::RunError::Feed(inner) => match inner.downcast::<memfit_data::DataError>() {
                Ok(data) => Error::Data(*data),
                Err(other) => Error::Run(memfit_run::RunError::Feed(other)),
            },
            other @ (memfit_run::RunError::NotFinite(_)
            | memfit_run::RunError::Store(_)
            | memfit_run::RunError::Grew { .. }) => Error::Run(other),
        }
    }
}
