//! The job's data as a source whose fields stand in the order of the graph's inputs.

use std::path::PathBuf;

use memfit_data::{DataError, Field, Npy, Part, Shuffled, Source, Synthetic, Values};
use memfit_ir::{DType, Graph, Loss, LossKind, Mask, Node, Op, SyntheticValues, TensorId, random};
use memfit_run::{Culprit, Feed, FeedError, RunError};

use crate::train::{Event, Observer};
use crate::{Error, Job, Shuffle};

/// Opens what the job says: its files, or synthetic rows; without those that are held out, or those alone; in the order that
/// the job says.
pub fn open(job: &Job, graph: &Graph) -> Result<Box<dyn Source>, Error> {
    if let Some(rows) = &job.caller.rows {
        return Ok(rows.planned(fields(graph)));
    }
    let source = open_in_order(job, graph)?;
    let is_files = !job.data.x.paths().is_empty() || !job.data.y.paths().is_empty();
    let seed = match job.data.shuffle {
        Some(Shuffle::Off) => return Ok(source),
        None if !is_files => return Ok(source),
        None | Some(Shuffle::On) => job.train.seed,
        Some(Shuffle::Seed(seed)) => seed,
    };
    let endless = || Error::job("data.shuffle", "synthetic data has no end; give `rows` under [data]");
    Ok(Box::new(Shuffled::new(source, seed).ok_or_else(endless)?))
}

fn open_in_order(job: &Job, graph: &Graph) -> Result<Box<dyn Source>, Error> {
    let source = open_all(job, graph)?;
    let Some(share) = job.caller.held_out.or(job.data.validation_split) else { return Ok(source) };
    let Some(rows) = source.rows() else {
        return Err(Error::job(SPLIT, "synthetic data has no end; give `rows` under [data]"));
    };
    let trained = rows_trained(rows, share)?;
    Ok(Box::new(match job.caller.held_out {
        Some(_) => Part::new(source, trained, rows - trained),
        None => Part::new(source, 0, trained),
    }))
}

/// Where a share of rows to validate on is given.
const SPLIT: &str = "data.validation_split";

/// How many rows are trained on where a share of them, the last ones, is held out.
pub(crate) fn rows_trained(rows: u64, share: f64) -> Result<u64, Error> {
    if !(0.0 < share && share < 1.0) {
        return Err(Error::job(SPLIT, format!("it is {share}; give a share between 0 and 1")));
    }
    // As Keras counts them.
    let trained = (rows as f64 * (1.0 - share)) as u64;
    if trained == 0 || trained == rows {
        let problem = format!("it leaves {trained} of {rows} rows to train on; give another share");
        return Err(Error::job(SPLIT, problem));
    }
    Ok(trained)
}

/// What a row of a graph's data has.
fn fields(graph: &Graph) -> Vec<Field> {
    let field = |id: &TensorId| {
        let tensor = &graph.tensors[id.0];
        Field { name: tensor.name.clone(), dims: tensor.shape.dims.clone(), dtype: tensor.dtype }
    };
    graph.inputs.iter().map(field).collect()
}

fn open_all(job: &Job, graph: &Graph) -> Result<Box<dyn Source>, Error> {
    let fields = fields(graph);
    let (x, y) = (job.data.x.paths(), job.data.y.paths());
    if x.is_empty() && y.is_empty() {
        return Ok(Box::new(synthetic_values(job, graph, fields)));
    }
    if job.data.rows.is_some() {
        return Err(Error::job("data.rows", "rows are counted from the files; remove the key or the files"));
    }
    let paths: Vec<PathBuf> =
        x.iter().chain(y).chain(&job.data.sample_weight).map(|path| job.path(path)).collect();
    if paths.len() != fields.len() {
        let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        let problem = format!("expected one file for each of {}, got {}", names.join(", "), paths.len());
        return Err(Error::job("data", problem));
    }
    Ok(Box::new(Npy::open(paths.into_iter().zip(fields).collect())?))
}

fn synthetic_values(job: &Job, graph: &Graph, fields: Vec<Field>) -> Synthetic {
    let seed = random::derive(job.train.seed, random::purpose("data"));
    let values = graph.inputs.iter().map(|id| values_for(graph, *id));
    Synthetic::new(seed, job.data.rows, fields.into_iter().zip(values).collect())
}

/// What suits the first reader of an input: ids within a table, class numbers, one class of a softmax, else `[0, 1)`.
fn values_for(graph: &Graph, input: TensorId) -> Values {
    let uniform = Values::Uniform { low: 0.0, high: 1.0 };
    // A mask does not say what it was computed from.
    let reads = |node: &&Node| node.inputs.contains(&input) && !matches!(node.op, Op::Mask(_));
    let Some(node) = graph.nodes.iter().find(reads) else { return uniform };
    if node.op == Op::Embedding {
        let entries = graph.tensors[node.inputs[1].0].shape.dims[0];
        return Values::Integers { low: 0, high: entries as i64 };
    }
    let is_target = node.inputs.get(1) == Some(&input) && matches!(node.op, Op::Loss(_) | Op::Metric(_));
    let prediction = &graph.tensors[node.inputs[0].0];
    if !is_target {
        return uniform;
    }
    let classes = prediction.shape.last();
    let sparse = graph.tensors[input.0].dtype == DType::I32;
    let from_softmax = graph.producer(node.inputs[0]).is_some_and(|id| graph.nodes[id.0].op == Op::Softmax);
    let is_categorical =
        |op: &Op| matches!(op, Op::Loss(Loss { kind: LossKind::CategoricalCrossentropy { .. }, .. }));
    let categorical = graph.nodes.iter().any(|node| is_categorical(&node.op) && node.inputs[1] == input);
    if sparse {
        Values::Integers { low: 0, high: classes as i64 }
    } else if from_softmax || categorical {
        Values::OneHot
    } else {
        uniform
    }
}

/// What stopped a step, with the wrong label where there is one: a class number that is no class gives a NaN
/// loss.
pub(crate) fn explain(
    error: RunError,
    graph: &Graph,
    source: &mut dyn Source,
    start: u64,
    rows: usize,
) -> Error {
    let is_loss = matches!(&error, RunError::NotFinite(found) if found.culprit == Culprit::Loss);
    let label = if is_loss { wrong_label(graph, source, start, rows) } else { None };
    label.map_or_else(|| error.into(), Error::Data)
}

/// The first label of some rows that is no class of its output.
fn wrong_label(graph: &Graph, source: &mut dyn Source, start: u64, rows: usize) -> Option<DataError> {
    for (field, input) in graph.inputs.iter().enumerate() {
        let is_of = |node: &&Node| {
            let is_sparse = matches!(&node.op, Op::Loss(loss) if loss.kind.is_sparse());
            is_sparse && node.inputs.get(1) == Some(input)
        };
        let Some(node) = graph.nodes.iter().find(is_of) else { continue };
        let classes = graph.tensors[node.inputs[0].0].shape.last();
        let is_ignored = |label: i32| {
            let op = Op::Mask(Mask::OtherClass(label));
            graph.nodes.iter().any(|node| node.op == op && node.inputs.contains(input))
        };
        let mut row = vec![0; source.fields()[field].bytes(1).to_usize()];
        for position in start..start + rows as u64 {
            source.read(field, position, 1, &mut row).ok()?;
            let labels = row.as_chunks().0.iter().map(|four| i32::from_ne_bytes(*four));
            let is_class = |label: i32| usize::try_from(label).is_ok_and(|label| label < classes);
            let wrong = |label: &i32| !is_class(*label) && !is_ignored(*label);
            if let Some(value) = labels.into_iter().find(wrong) {
                let (name, row) = (source.fields()[field].name.clone(), source.file_row(position));
                return Some(DataError::Label { field: name, row, value, classes });
            }
        }
    }
    None
}

/// Feeds the rows of one batch after the other, and passes on how far the batch has come.
pub struct Feeder<'a> {
    pub source: &'a mut dyn Source,
    pub inputs: &'a [TensorId],
    /// The batch's first row in the source.
    pub start: u64,
    /// The next batch's first row in the source and its rows, where it is known already.
    pub next: Option<(u64, usize)>,
    /// The epochs of the batch and of the next one.
    pub epochs: [u64; 2],
    pub observer: &'a mut dyn Observer,
}

impl Feeder<'_> {
    /// Which array of the source an input is.
    fn field(&self, tensor: TensorId) -> usize {
        let place = self.inputs.iter().position(|input| *input == tensor);
        place.expect("the plan feeds only the graph's inputs")
    }
}

impl Feed for Feeder<'_> {
    fn feed(&mut self, tensor: TensorId, first: usize, rows: usize, to: &mut [u8]) -> Result<(), FeedError> {
        self.source.set_epoch(self.epochs[0]);
        Ok(self.source.read(self.field(tensor), self.start + first as u64, rows, to)?)
    }

    fn rows_next(&self) -> Option<usize> {
        self.next.map(|(_, rows)| rows)
    }

    fn feed_next(
        &mut self,
        tensor: TensorId,
        first: usize,
        rows: usize,
        to: &mut [u8],
    ) -> Result<(), FeedError> {
        let (start, _) = self.next.expect("only a batch that was promised is asked for");
        self.source.set_epoch(self.epochs[1]);
        Ok(self.source.read(self.field(tensor), start + first as u64, rows, to)?)
    }

    fn synthetic_values(&self, tensor: TensorId) -> Option<(SyntheticValues, u64)> {
        let field = self.inputs.iter().position(|input| *input == tensor)?;
        Some((self.source.synthetic_values(field)?, self.start))
    }

    /// Only the batch that is fed now is asked for, so the source's epoch is its own.
    fn file_row(&self, row_in_batch: usize) -> Option<u64> {
        Some(self.source.file_row(self.start + row_in_batch as u64))
    }

    fn piece_done(&mut self, rows_done: usize, rows_total: usize) {
        self.observer.event(Event::Piece { rows_done, rows_total });
    }
}
