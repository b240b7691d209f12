//! A model that Python runs step by step.

use std::sync::{Mutex, MutexGuard, PoisonError};

use memfit::{
    Borrowed, BorrowedArray, BorrowedOrder, Driver, Purpose, StepOf, Steps, VariableKind, plan_table,
};
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::prelude::*;

use crate::error::misuse;
use crate::request::Request;
use crate::without_python;

/// An array borrowed for a step: its bytes, NumPy's name of its elements, its dimensions with the rows first.
type Lending = (Py<PyArray1<u8>>, String, Vec<u64>);

/// The order of borrowed rows: an array that names them, or seed and epoch of an exact shuffle.
#[derive(FromPyObject)]
enum Order {
    Seeded(u64, u64),
    Rows(Py<PyArray1<i64>>),
}

/// A batch of Python's, held while its step is in flight.
struct Batch {
    arrays: Vec<Lending>,
    order: Option<Order>,
    step: StepOf,
}

/// Loss and metrics since the epoch began, seconds, bytes that the process held at the end, and the layer for which the step was
/// skipped.
type StepAnswer = (f64, Vec<f64>, f64, u64, Option<String>);

/// A planned model whose arena comes with `open` and goes with `close`.
#[pyclass(frozen, module = "memfit._engine")]
pub struct Session {
    inner: Mutex<memfit::Session>,
    driver: Mutex<Driver<Batch>>,
}

/// Steps of a session, with what those that ended gave.
struct Stepping<'a, 'py> {
    session: &'a Session,
    py: Python<'py>,
    ended: Vec<StepAnswer>,
}

impl Steps for Stepping<'_, '_> {
    type Batch = Batch;
    type Error = PyErr;

    fn begin(&mut self, batch: &Batch) -> PyResult<()> {
        let step = batch.step;
        self.session.with_rows(self.py, batch, |session, source| session.begin(source, step))
    }

    fn end(&mut self, batch: Batch) -> PyResult<()> {
        let start = batch.step.start;
        let (record, means) = self.session.with_rows(self.py, &batch, |session, source| {
            let record = session.end(source, start)?;
            Ok((record, session.epoch()))
        })?;
        let answer = (means.loss, means.values, record.seconds, record.bytes_used.0, record.skipped_by);
        self.ended.push(answer);
        Ok(())
    }
}

impl Session {
    /// One call at a time. A step that panicked leaves a session that can still be read.
    fn lock(&self) -> MutexGuard<'_, memfit::Session> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the steps in flight, and returns what those gave that ended.
    fn drive(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut Driver<Batch>, &mut Stepping<'_, '_>) -> PyResult<()>,
    ) -> PyResult<Vec<StepAnswer>> {
        let mut driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        let mut steps = Stepping { session: self, py, ended: Vec::new() };
        body(&mut driver, &mut steps)?;
        Ok(steps.ended)
    }

    fn open_one(&self) -> PyResult<MutexGuard<'_, memfit::Session>> {
        let session = self.lock();
        if session.is_open() { Ok(session) } else { Err(misuse("the session is closed; call open() first")) }
    }

    /// Does something with borrowed rows, while Python goes on.
    fn with_rows<R: Send>(
        &self,
        py: Python<'_>,
        batch: &Batch,
        body: impl FnOnce(&mut memfit::Session, &mut Borrowed<'_>) -> Result<R, memfit::Error> + Send,
    ) -> PyResult<R> {
        let fields = self.open_one()?.fields().to_vec();
        let Batch { arrays, order, .. } = batch;
        if arrays.len() != fields.len() {
            return Err(misuse(format!("{} arrays for {} fields", arrays.len(), fields.len())));
        }
        let held: Vec<PyReadonlyArray1<'_, u8>> =
            arrays.iter().map(|(bytes, _, _)| bytes.bind(py).readonly()).collect();
        let mut borrowed = Vec::with_capacity(arrays.len());
        for (bytes, (_, description, dims)) in held.iter().zip(arrays) {
            borrowed.push(BorrowedArray { description, dims, bytes: bytes.as_slice()? });
        }
        let rows = match order {
            Some(Order::Rows(rows)) => Some(rows.bind(py).readonly()),
            Some(Order::Seeded(..)) | None => None,
        };
        let order = match (&rows, order) {
            (Some(rows), _) => BorrowedOrder::Rows(rows.as_slice()?),
            (None, Some(Order::Seeded(seed, epoch))) => {
                BorrowedOrder::Shuffled { seed: *seed, epoch: *epoch }
            }
            (None, Some(Order::Rows(_)) | None) => BorrowedOrder::Stored,
        };
        without_python(py, || {
            let mut source = Borrowed::new(&fields, &borrowed, order)?;
            body(&mut self.lock(), &mut source)
        })
    }
}

#[pymethods]
impl Session {
    /// Plans a request for "training", "evaluation" or "prediction".
    #[new]
    fn new(py: Python<'_>, request: &str, purpose: &str) -> PyResult<Session> {
        let purpose = match purpose {
            "training" => Purpose::Training,
            "evaluation" => Purpose::Evaluation,
            "prediction" => Purpose::Prediction,
            other => return Err(misuse(format!("there is no purpose `{other}`"))),
        };
        let inner = without_python(py, || {
            let request = Request::parse(request)?;
            memfit::Session::plan(&request.job()?, purpose, request.threads)
        })?;
        Ok(Session { inner: Mutex::new(inner), driver: Mutex::default() })
    }

    /// Takes the arena.
    fn open(&self, py: Python<'_>) -> PyResult<()> {
        if self.lock().is_open() {
            return Err(misuse("the session is open already"));
        }
        without_python(py, || self.lock().open())
    }

    /// Gives the arena back.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.lock().close());
    }

    /// Name, dimensions and element type of what a row has.
    fn fields(&self) -> Vec<(String, Vec<usize>, String)> {
        let session = self.lock();
        let fields = session.fields().iter();
        fields.map(|field| (field.name.clone(), field.dims.clone(), field.dtype.to_string())).collect()
    }

    /// Names of the values that are reported beside the loss.
    fn metrics(&self) -> Vec<String> {
        self.lock().metrics().to_vec()
    }

    /// Dimensions of the outputs, without the rows.
    fn outputs(&self) -> Vec<Vec<usize>> {
        self.lock().output_dims().map(<[usize]>::to_vec).collect()
    }

    /// Rows of a micro-batch.
    fn micro_batch(&self) -> usize {
        self.lock().micro_batch()
    }

    /// The table of the plan, where this is for training.
    fn table(&self) -> Option<String> {
        self.lock().summary().map(plan_table)
    }

    /// The figures of the plan as JSON, where this is for training.
    fn json(&self) -> Option<String> {
        self.lock().summary().map(|summary| summary.to_json().to_string())
    }

    /// Name, dimensions, kind and element type of all variables: weights by Keras's order, then the optimizer's.
    fn variables(&self) -> Vec<(String, Vec<usize>, &'static str, String)> {
        let kind = |kind| match kind {
            VariableKind::Weight => "weight",
            VariableKind::State => "state",
            VariableKind::Iteration => "iteration",
            VariableKind::LearningRate => "learning_rate",
            VariableKind::Derived => "derived",
            VariableKind::Nothing => "nothing",
        };
        let session = self.lock();
        let known = session.variables();
        known
            .map(|known| {
                (known.name.to_owned(), known.dims.to_vec(), kind(known.kind), known.dtype.to_string())
            })
            .collect()
    }

    /// Writes bytes of a variable into its slot, from a byte of it on.
    #[pyo3(signature = (variable, from_, at=0))]
    fn write(&self, variable: usize, from_: PyReadonlyArray1<'_, u8>, at: usize) -> PyResult<()> {
        let mut session = self.open_one()?;
        let from = from_.as_slice()?;
        let Some(to) = session.bytes_mut(variable) else {
            return Err(misuse("this variable has no slot"));
        };
        let (end, slot) = (at.saturating_add(from.len()), to.len());
        match to.get_mut(at..end) {
            Some(to) => to.copy_from_slice(from),
            None => return Err(misuse(format!("bytes {at} to {end} for a slot of {slot}"))),
        }
        Ok(())
    }

    /// Reads bytes of a variable as Keras would hold them, from a byte of it on.
    #[pyo3(signature = (variable, to, at=0))]
    fn read(&self, variable: usize, mut to: PyReadwriteArray1<'_, u8>, at: usize) -> PyResult<()> {
        let session = self.open_one()?;
        let to = to.as_slice_mut()?;
        let end = at.saturating_add(to.len());
        match session.bytes(variable) {
            Some(from) if from.len() < end => {
                return Err(misuse(format!("bytes {at} to {end} from a slot of {}", from.len())));
            }
            Some(from) => to.copy_from_slice(&from[at..end]),
            None => session.read(variable, to),
        }
        Ok(())
    }

    /// Writes the first values of the optimizer's state, where Keras has no variables for it yet.
    fn initialize_state(&self) -> PyResult<()> {
        self.open_one()?.initialize_state();
        Ok(())
    }

    /// Gives back what holds nothing between steps. No step can follow.
    fn begin_handover(&self) -> PyResult<()> {
        self.open_one()?.begin_handover();
        Ok(())
    }

    /// Gives the pages of a variable that was read for the last time back. Variables are moved to Keras in
    /// their order.
    fn give_back(&self, variable: usize) -> PyResult<()> {
        self.open_one()?.give_back(variable);
        Ok(())
    }

    /// How often weights were updated.
    #[getter]
    fn iteration(&self) -> u64 {
        self.lock().iteration()
    }

    /// Sets that count while the session is closed.
    #[setter]
    fn set_iteration(&self, iteration: u64) -> PyResult<()> {
        let mut session = self.lock();
        if session.is_open() {
            return Err(misuse("the count of updates is set before the session is opened"));
        }
        session.set_iteration(iteration);
        Ok(())
    }

    /// Resets the sums of loss and metrics.
    fn begin_epoch(&self) -> PyResult<()> {
        self.open_one()?.begin_epoch();
        Ok(())
    }

    /// Begins the validation that was planned with the training: until it ends, steps are its own.
    fn begin_validation(&self, py: Python<'_>) -> PyResult<()> {
        drop(self.open_one()?);
        without_python(py, || self.lock().begin_validation())
    }

    /// Ends it, so that training goes on.
    fn end_validation(&self, py: Python<'_>) -> PyResult<()> {
        drop(self.open_one()?);
        // What an error left in flight goes with the arena.
        *self.driver.lock().unwrap_or_else(PoisonError::into_inner) = Driver::default();
        without_python(py, || self.lock().end_validation())
    }

    /// How many steps may be in flight when another begins.
    fn steps_ahead(&self) -> PyResult<usize> {
        Ok(self.open_one()?.steps_ahead())
    }

    /// Runs a step over rows `start..start + rows` of borrowed arrays, in their order or in another, and
    /// returns what the steps gave that have ended: those that are more than `ahead` before this one. `next`
    /// says which rows come next, first row and rows, where that is known.
    #[pyo3(signature = (arrays, start, rows, order=None, next=None, learning_rate=None, ahead=0))]
    #[expect(clippy::too_many_arguments, reason = "what a batch is stays apart in Python")]
    fn step(
        &self,
        py: Python<'_>,
        arrays: Vec<Lending>,
        start: u64,
        rows: usize,
        order: Option<Order>,
        next: Option<(u64, usize)>,
        learning_rate: Option<f32>,
        ahead: usize,
    ) -> PyResult<Vec<StepAnswer>> {
        let batch = Batch { arrays, order, step: StepOf { start, rows, learning_rate, next } };
        self.drive(py, |driver, steps| driver.step(steps, batch, ahead))
    }

    /// Ends all steps that are in flight, and returns what they gave.
    fn finish_steps(&self, py: Python<'_>) -> PyResult<Vec<StepAnswer>> {
        self.drive(py, |driver, steps| driver.finish(steps))
    }

    /// The checkpoint that training goes on from, and what was kept in it beside the variables.
    fn goes_on_from(&self) -> Option<(String, String)> {
        self.lock().goes_on_from().map(|(path, kept)| (path.display().to_string(), kept.to_owned()))
    }

    /// Takes the arena, and fills it with the checkpoint's values.
    fn open_from_checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        without_python(py, || self.lock().open_from_checkpoint())
    }

    /// Writes a checkpoint after some steps, with what is kept beside the variables; returns its path.
    fn write_checkpoint(
        &self,
        py: Python<'_>,
        step: u64,
        learning_rate: f32,
        kept: &str,
    ) -> PyResult<String> {
        drop(self.open_one()?);
        let path = without_python(py, || self.lock().write_checkpoint(step, learning_rate, kept))?;
        Ok(path.display().to_string())
    }

    /// Copies the predictions of the last step, which had this many rows, into `to`.
    fn prediction(&self, output: usize, rows: usize, mut to: PyReadwriteArray1<'_, u8>) -> PyResult<()> {
        let session = self.open_one()?;
        let (from, to) = (session.prediction(output, rows), to.as_slice_mut()?);
        if from.len() != to.len() {
            return Err(misuse(format!("{} bytes of predictions for {}", from.len(), to.len())));
        }
        to.copy_from_slice(from);
        Ok(())
    }
}
