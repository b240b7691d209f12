//! Weights and optimizer state in files: what stands where, straight from file to slot and from slot to file.

use std::ops::Range;

use memfit_files::{Array, Bytes, Element, FileKind, WeightsFile};
use memfit_formats::StoredWeight;
use memfit_grad::{Optimizer, Schedule};
use memfit_ir::{DType, Graph, Node, Op, TensorId, Update, UpdateRule};
use memfit_run::Runner;

use crate::Error;
use crate::model_file::ModelFile;

/// An array of a model file, and what holds its values.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) place: String,
    pub(crate) name: String,
    pub(crate) dims: Vec<usize>,
    pub(crate) holds: Holds,
}

/// What holds the values of an array of a model file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Holds {
    /// A tensor of the graph.
    Tensor(TensorId),
    /// A whole number among the weights.
    Count(TensorId),
    /// The number of steps that were taken.
    Iteration,
    /// The learning rate, where it is no schedule.
    LearningRate,
    /// State of a weight that never gets a gradient, or that no node reads.
    Nothing,
    /// Gradients summed over several steps. The sum is reset after the last of them.
    Sum {
        /// Where they add up.
        tensor: TensorId,
        /// The number of steps.
        steps: u64,
    },
    /// Nadam's product of all its momenta, which follows from the number of steps.
    NadamProduct {
        /// Its decay of the mean.
        beta_1: f32,
        /// Steps to an update.
        steps: u64,
    },
    /// An integer 0 that Keras stores for what a weight does not have.
    Placeholder,
}

/// The weights, in Keras's order.
pub(crate) fn weights(opened: &ModelFile) -> Vec<Variable> {
    let tensors = &opened.model.graph.tensors;
    let variable = |weight: &StoredWeight| Variable {
        place: weight.place.clone(),
        name: tensors[weight.tensor.0].name.clone(),
        dims: weight.dims.clone(),
        holds: match tensors[weight.tensor.0].dtype {
            DType::I64 => Holds::Count(weight.tensor),
            DType::F32 | DType::F16 | DType::BF16 | DType::I32 | DType::U8 | DType::Bool => {
                Holds::Tensor(weight.tensor)
            }
        },
    };
    opened.model.weights.iter().map(variable).collect()
}

/// The optimizer's variables in Keras's order: iteration, learning rate, averages, sums of gradients, then the state of
/// its rule, weight by weight.
pub(crate) fn optimizer_variables(opened: &ModelFile, graph: &Graph, optimizer: &Optimizer) -> Vec<Variable> {
    let mut found = vec![("iteration".to_owned(), vec![], Holds::Iteration)];
    if let Schedule::Constant(_) = optimizer.schedule {
        found.push(("learning_rate".to_owned(), vec![], Holds::LearningRate));
    }
    let updates = updates(graph);
    let trainable = || opened.model.weights.iter().filter(|weight| weight.trainable);
    let named = |weight: &StoredWeight, what: &str| format!("{}/{what}", graph.tensors[weight.tensor.0].name);
    if optimizer.average.is_some() {
        for weight in trainable() {
            // What never gets a gradient is its own average.
            let average = updates[weight.tensor.0].and_then(|node| node.updates.last());
            let holds = Holds::Tensor(*average.unwrap_or(&weight.tensor));
            found.push((named(weight, "average"), weight.dims.clone(), holds));
        }
    }
    if optimizer.accumulation_steps != 1 {
        for weight in trainable() {
            let holds = updates[weight.tensor.0].map_or(Holds::Nothing, |node| Holds::Sum {
                tensor: accumulator(graph, node.inputs[0]),
                steps: optimizer.accumulation_steps,
            });
            found.push((named(weight, "gradient_accumulator"), weight.dims.clone(), holds));
        }
    }
    for group in groups(&optimizer.rule) {
        for weight in trainable() {
            let states = updates[weight.tensor.0].map_or(&[][..], |node| &node.updates[1..]);
            for (name, dims, holds) in stored_state(&optimizer.rule, &weight.dims, states, group.clone()) {
                found.push((named(weight, name), dims, holds));
            }
        }
    }
    if let UpdateRule::Nadam { beta_1, .. } = optimizer.rule {
        let holds = Holds::NadamProduct { beta_1, steps: optimizer.accumulation_steps };
        found.push(("product".to_owned(), vec![], holds));
    }
    let place = |index: usize| format!("optimizer/vars/{index}");
    let variable = |(index, (name, dims, holds))| Variable { place: place(index), name, dims, holds };
    found.into_iter().enumerate().map(variable).collect()
}

/// Adafactor's means are over a weight's axes, which must be those that Keras gives it.
pub(crate) fn require_axes(opened: &ModelFile, optimizer: &Optimizer) -> Result<(), Error> {
    let UpdateRule::Adafactor { .. } = optimizer.rule else { return Ok(()) };
    let tensors = &opened.model.graph.tensors;
    let is_other = |weight: &&StoredWeight| tensors[weight.tensor.0].shape.dims != weight.dims;
    match opened.model.weights.iter().filter(|weight| weight.trainable).find(is_other) {
        None => Ok(()),
        Some(weight) => {
            let name = &tensors[weight.tensor.0].name;
            let problem =
                format!("Adafactor cannot train the depthwise kernel `{name}`; freeze it or take another");
            Err(Error::job("train.optimizer", problem))
        }
    }
}

/// States that Keras adds together for one weight after the other; the next group comes after all weights.
fn groups(rule: &UpdateRule) -> Vec<Range<usize>> {
    let count = rule.state(&[1]).len();
    match rule {
        UpdateRule::Adam { .. } => [0..2, 2..count].into_iter().filter(|group| !group.is_empty()).collect(),
        UpdateRule::Sgd { .. } | UpdateRule::Rmsprop { .. } => (0..count).map(|at| at..at + 1).collect(),
        UpdateRule::Adagrad { .. }
        | UpdateRule::Adadelta { .. }
        | UpdateRule::Adamax { .. }
        | UpdateRule::Nadam { .. }
        | UpdateRule::Ftrl { .. }
        | UpdateRule::Lion { .. }
        | UpdateRule::Adafactor { .. }
        | UpdateRule::Lamb { .. } => std::iter::once(0..count).collect(),
    }
}

/// One group of a weight's states as files have them.
fn stored_state(
    rule: &UpdateRule,
    dims: &[usize],
    states: &[TensorId],
    group: Range<usize>,
) -> Vec<(&'static str, Vec<usize>, Holds)> {
    let holds = |index: usize| states.get(index).map_or(Holds::Nothing, |tensor| Holds::Tensor(*tensor));
    let known = rule.state(dims);
    if let UpdateRule::Adafactor { .. } = rule {
        // Of a matrix, Keras also stores the squares that it computes again before it reads them; memfit does
        // not keep them.
        return if dims.len() < 2 {
            let none = ("placeholder", vec![], Holds::Placeholder);
            vec![none.clone(), none, ("velocity", dims.to_vec(), holds(0))]
        } else {
            let means = known.into_iter().enumerate().map(|(index, (name, dims))| (name, dims, holds(index)));
            means.chain([("velocity", dims.to_vec(), Holds::Nothing)]).collect()
        };
    }
    group.map(|index| (known[index].0, known[index].1.clone(), holds(index))).collect()
}

/// The update of each weight.
fn updates(graph: &Graph) -> Vec<Option<&Node>> {
    let mut updates = vec![None; graph.tensors.len()];
    for node in &graph.nodes {
        if let Op::Update(_) = node.op {
            updates[node.updates[0].0] = Some(node);
        }
    }
    updates
}

/// Where gradients are summed over steps: what the update reads, or under `guard = "step"` what keeps it.
fn accumulator(graph: &Graph, read: TensorId) -> TensorId {
    let mut keepers = graph.nodes.iter().filter(|node| node.op == Op::KeepAccumulated);
    keepers.find(|node| node.inputs[0] == read).map_or(read, |node| node.updates[0])
}

/// When training ends, the averages become the weights, as in Keras.
pub(crate) fn finish_averages(runner: &mut Runner, graph: &Graph) {
    for node in &graph.nodes {
        if let Op::Update(Update { average: Some(_), .. }) = node.op {
            let average = *node.updates.last().expect("the average is the last of the updates");
            runner.copy(average, node.updates[0]);
        }
    }
}

/// Reads every weight from the file straight into its slot.
pub(crate) fn load_weights(runner: &mut Runner, opened: &ModelFile, file: &WeightsFile) -> Result<(), Error> {
    file.verify()?;
    for weight in &opened.model.weights {
        let name = &opened.model.graph.tensors[weight.tensor.0].name;
        let place = opened.place_of(weight, &opened.model.graph);
        if opened.model.graph.tensors[weight.tensor.0].dtype == DType::I64 {
            runner.bytes_mut(weight.tensor).copy_from_slice(&file.integer(place)?.to_le_bytes());
            continue;
        }
        file.read(place, name, &weight.dims, runner.bytes_mut(weight.tensor))?;
    }
    Ok(())
}

/// Whether a file holds the state of this optimizer: as Keras does, by what the model was compiled with and by how many
/// variables there are.
pub(crate) fn resumes(opened: &ModelFile, variables: &[Variable], optimizer: &Optimizer) -> bool {
    let Some(file) = &opened.stored else { return false };
    let count = file.names().filter(|name| name.starts_with("optimizer/vars/")).count();
    let same_rule = match (file.config(), opened.compile_config().and_then(|config| config.get("optimizer")))
    {
        (Some(_), Some(stored)) => crate::parse_optimizer(stored).is_ok_and(|stored| {
            std::mem::discriminant(&stored.rule) == std::mem::discriminant(&optimizer.rule)
                && stored.rule.state(&[1]) == optimizer.rule.state(&[1])
                && stored.average.is_some() == optimizer.average.is_some()
                && stored.accumulation_steps == optimizer.accumulation_steps
        }),
        (Some(_), None) => false,
        (None, _) => true,
    };
    same_rule && count == variables.len()
}

/// Reads variables into their slots and returns the number of updates that the file counts.
pub(crate) fn load(runner: &mut Runner, file: &WeightsFile, variables: &[Variable]) -> Result<u64, Error> {
    let mut iteration = 0;
    for variable in variables {
        match variable.holds {
            Holds::Iteration => iteration = file.integer(&variable.place)?,
            Holds::Count(tensor) => {
                runner.bytes_mut(tensor).copy_from_slice(&file.integer(&variable.place)?.to_le_bytes());
            }
            Holds::Tensor(tensor) | Holds::Sum { tensor, .. } => {
                let to = runner.bytes_mut(tensor);
                file.read(&variable.place, &variable.name, &variable.dims, to)?;
            }
            Holds::LearningRate | Holds::Nothing | Holds::NadamProduct { .. } | Holds::Placeholder => {}
        }
    }
    u64::try_from(iteration).map_err(|_| {
        Error::job(file.path().display().to_string(), format!("its iteration is {iteration}, below 0"))
    })
}

impl Variable {
    /// As an array of a file of some kind.
    pub(crate) fn array(&self, kind: FileKind) -> Array {
        let name = if kind == FileKind::Safetensors { &self.name } else { &self.place };
        let element = match self.holds {
            Holds::Iteration | Holds::Count(_) => Element::I64,
            Holds::Placeholder => Element::I32,
            Holds::Tensor(_)
            | Holds::LearningRate
            | Holds::Nothing
            | Holds::Sum { .. }
            | Holds::NadamProduct { .. } => Element::F32,
        };
        Array { name: name.clone(), dims: self.dims.clone(), element }
    }

    /// Its bytes as they are now.
    pub(crate) fn bytes<'a>(&self, runner: &'a Runner, iteration: u64, learning_rate: f32) -> Bytes<'a> {
        match self.holds {
            Holds::Tensor(tensor) | Holds::Count(tensor) => Bytes::Borrowed(runner.bytes(tensor)),
            Holds::Iteration => Bytes::Number(iteration.to_le_bytes()),
            Holds::LearningRate => number(learning_rate),
            Holds::NadamProduct { beta_1, steps } => {
                number(UpdateRule::nadam_product(beta_1, iteration / steps) as f32)
            }
            // Keras sets the sums to 0 with the update, and not with the next gradient.
            Holds::Sum { steps, .. } if iteration.is_multiple_of(steps) => Bytes::Zeros,
            Holds::Sum { tensor, .. } => Bytes::Borrowed(runner.bytes(tensor)),
            Holds::Nothing | Holds::Placeholder => Bytes::Zeros,
        }
    }
}

/// One float.
fn number(value: f32) -> Bytes<'static> {
    let bytes = value.to_le_bytes();
    Bytes::Number([bytes[0], bytes[1], bytes[2], bytes[3], 0, 0, 0, 0])
}
