//! What can go wrong, each with what to do next.

use std::path::PathBuf;

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
    /// The planner made a wrong plan: a bug.
    #[error(transparent)]
    Check(#[from] memfit_ir::CheckError),
    /// The device refused.
    #[error(transparent)]
    Device(#[from] memfit_device::DeviceError),
    /// Training stopped.
    #[error(transparent)]
    Run(memfit_run::RunError),
    /// The process took more than the line: a bug.
    #[error(
        "the process held {used} at its peak and the budget is {budget}; please report this with the job file"
    )]
    OverBudget {
        /// `VmHWM`.
        used: memfit_ir::Bytes,
        /// The line.
        budget: memfit_ir::Bytes,
    },
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
            Error::Job { .. } | Error::Model(_) | Error::Training(_) | Error::Data(_) => 2,
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
