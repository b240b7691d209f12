//! Weights and optimizer state in files: what stands where, straight from file to slot and from slot to file.

use memfit_files::{Array, Bytes, Element, FileKind, WeightsFile};
use memfit_grad::{Optimizer, Schedule};
use memfit_ir::{DType, Graph, Op, TensorId, UpdateRule};
use memfit_run::Runner;

use crate::Error;
use crate::model_file::ModelFile;

/// An array of a model file, and what stands behind it.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) place: String,
    pub(crate) name: String,
    pub(crate) dims: Vec<usize>,
    pub(crate) holds: Holds,
}

/// What stands behind an array of a model file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// A tensor of the graph.
    Tensor(TensorId),
    /// A whole number among the weights.
    Count(TensorId),
    /// The number of steps that were taken.
    Iteration,
    /// The learning rate, where it is no schedule.
    LearningRate,
    /// State of a weight that never gets a gradient.
    Nothing,
}

/// The weights, in Keras's order.
pub(crate) fn weights(opened: &ModelFile) -> Vec<Variable> {
    let tensors = &opened.model.graph.tensors;
    let variable = |weight: &memfit_formats::StoredWeight| Variable {
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

/// The optimizer's variables in Keras's order: iteration, learning rate, then its state, weight by weight.
pub(crate) fn optimizer_variables(opened: &ModelFile, graph: &Graph, optimizer: &Optimizer) -> Vec<Variable> {
    let mut found: Vec<(String, Vec<usize>, Holds)> =
        vec![("iteration".to_owned(), vec![], Holds::Iteration)];
    if let Schedule::Constant(_) = optimizer.schedule {
        found.push(("learning_rate".to_owned(), vec![], Holds::LearningRate));
    }
    let names = optimizer.rule.state();
    // Adam adds its two means together; whatever else there is comes for all weights in turn.
    let together = match optimizer.rule {
        UpdateRule::Adam { .. } => 2,
        UpdateRule::Sgd { .. } | UpdateRule::Rmsprop { .. } => 1,
    };
    let states = states(graph);
    let mut rest = &names[..];
    while !rest.is_empty() {
        let (now, later) = rest.split_at(together.min(rest.len()).max(1));
        let first = names.len() - rest.len();
        for weight in opened.model.weights.iter().filter(|weight| weight.trainable) {
            for (index, state) in now.iter().enumerate() {
                let name = format!("{}/{state}", graph.tensors[weight.tensor.0].name);
                let tensor = states[weight.tensor.0].get(first + index);
                let holds = tensor.map_or(Holds::Nothing, |tensor| Holds::Tensor(*tensor));
                found.push((name, weight.dims.clone(), holds));
            }
        }
        rest = later;
    }
    let place = |index: usize| format!("optimizer/vars/{index}");
    let variable = |(index, (name, dims, holds))| Variable { place: place(index), name, dims, holds };
    found.into_iter().enumerate().map(variable).collect()
}

/// The state tensors of each weight.
fn states(graph: &Graph) -> Vec<Vec<TensorId>> {
    let mut states = vec![Vec::new(); graph.tensors.len()];
    for node in &graph.nodes {
        if let Op::Update(_) = node.op {
            states[node.updates[0].0] = node.updates[1..].to_vec();
        }
    }
    states
}

/// Reads every weight from the file straight into its slot.
pub(crate) fn load_weights(runner: &mut Runner, opened: &ModelFile, file: &WeightsFile) -> Result<(), Error> {
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
        (Some(_), Some(stored)) => crate::compile::parse_optimizer(stored).is_ok_and(|stored| {
            std::mem::discriminant(&stored.rule) == std::mem::discriminant(&optimizer.rule)
                && stored.rule.state() == optimizer.rule.state()
        }),
        (Some(_), None) => false,
        (None, _) => true,
    };
    same_rule && count == variables.len()
}

/// Reads the optimizer's state into its slots and returns how many steps were taken.
pub(crate) fn load_optimizer(
    runner: &mut Runner,
    file: &WeightsFile,
    variables: &[Variable],
) -> Result<u64, Error> {
    let mut iteration = 0;
    for variable in variables {
        match variable.holds {
            Holds::Iteration => iteration = file.integer(&variable.place)?,
            Holds::Tensor(tensor) => {
                let to = runner.bytes_mut(tensor);
                file.read(&variable.place, &variable.name, &variable.dims, to)?;
            }
            Holds::LearningRate | Holds::Nothing | Holds::Count(_) => {}
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
            Holds::Tensor(_) | Holds::LearningRate | Holds::Nothing => Element::F32,
        };
        Array { name: name.clone(), dims: self.dims.clone(), element }
    }

    /// Its bytes as they are now.
    pub(crate) fn bytes<'a>(&self, runner: &'a Runner, iteration: u64, learning_rate: f32) -> Bytes<'a> {
        match self.holds {
            Holds::Tensor(tensor) | Holds::Count(tensor) => Bytes::Borrowed(runner.bytes(tensor)),
            Holds::Iteration => Bytes::Number(iteration.to_le_bytes()),
            Holds::LearningRate => {
                let rate = learning_rate.to_le_bytes();
                Bytes::Number([rate[0], rate[1], rate[2], rate[3], 0, 0, 0, 0])
            }
            Holds::Nothing => Bytes::Zeros,
        }
    }
}
