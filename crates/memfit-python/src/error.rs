//! Errors as Python's exceptions, with what they carry.

use memfit::{Change, DoesNotFit, Error, Lack, RunError, refusal_json};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use serde_json::{Value, json};

/// The exception for an error: `memfit.DoesNotFit` with its figures, or `memfit.Error`.
pub fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let (name, figures) = match error {
        Error::DoesNotFit(answer) => ("_does_not_fit", figures(answer).to_string()),
        Error::Run(RunError::NotFinite(_)) => ("_not_finite", String::new()),
        Error::File { .. }
        | Error::Job { .. }
        | Error::Lacks(_)
        | Error::Model(_)
        | Error::ModelIn { .. }
        | Error::ModelFile(_)
        | Error::Training(_)
        | Error::Data(_)
        | Error::Check(_)
        | Error::Device(_)
        | Error::Run(RunError::Feed(_) | RunError::Store(_) | RunError::Grew { .. })
        | Error::OverBudget { .. } => ("_error", String::new()),
    };
    let made = || py.import("memfit._errors")?.getattr(name)?.call1((text(error), figures));
    made().map_or_else(|failed| failed, PyErr::from_value)
}

/// The message, with changes as arguments of a call.
fn text(error: &Error) -> String {
    let change = |change: Change| match change {
        Change::Budget { mebibytes } => format!("`budget=\"{mebibytes}MiB\"`"),
        Change::Batch { rows } => format!("`batch_size={rows}`"),
        Change::Disk { mebibytes } => format!("`disk=\"FOLDER:{mebibytes}MiB\"`"),
        Change::AllowBatchnormSplit => "`allow_batchnorm_split=True`".to_owned(),
    };
    let lack = |lack: Lack| match lack {
        Lack::TrainingData | Lack::Data => "give `x`".to_owned(),
        Lack::Loss => "compile the model with `loss=`".to_owned(),
        Lack::Disk => "`disk=\"FOLDER:SIZE\"`".to_owned(),
        Lack::Host => "leave `disk` out".to_owned(),
    };
    error.text(&change, &lack)
}

/// An exception for what a caller of the engine did wrong.
pub fn misuse(problem: impl Into<String>) -> PyErr {
    PyRuntimeError::new_err(problem.into())
}

fn figures(answer: &DoesNotFit) -> Value {
    let mut figures = refusal_json(answer);
    figures.extend([
        ("budget".to_owned(), json!(answer.budget.0)),
        ("smallest".to_owned(), json!(answer.smallest.0)),
        ("bytes_runtime".to_owned(), json!(answer.runtime.0)),
        ("peak_step".to_owned(), json!(answer.peak_step)),
        ("peak_label".to_owned(), json!(answer.peak_label)),
        ("peak_layer".to_owned(), json!(answer.peak_layer)),
    ]);
    Value::Object(figures)
}
