//! Values of a model's variables in the program's memory, taken from the slots of a training and given to those of the next.

use memfit_files::{Bytes as Stored, FileKind};
use memfit_ir::{Bytes, TensorId};
use memfit_run::Runner;

use crate::state::{Holds, Variable};

/// Variables by Keras's order, all weights first, with their values as Keras stores them.
#[derive(Debug)]
pub(crate) struct Values {
    arrays: Vec<(Variable, Vec<u8>)>,
    /// How many of them are weights.
    weights: usize,
    /// How often weights were updated.
    pub(crate) iteration: u64,
}

impl Values {
    /// Moves values out of a runner, which takes no step after it: the pages of each slot go back when it is read.
    pub(crate) fn take(
        runner: &mut Runner,
        variables: Vec<Variable>,
        weights: usize,
        iteration: u64,
        learning_rate: f32,
    ) -> Values {
        runner.give_back_transient();
        let tensors: Vec<Option<TensorId>> = variables.iter().map(tensor).collect();
        let mut arrays = Vec::with_capacity(variables.len());
        for (index, variable) in variables.into_iter().enumerate() {
            let mut bytes = vec![0; stored_bytes(&variable)];
            match variable.bytes(runner, iteration, learning_rate) {
                Stored::Borrowed(slot) => bytes.copy_from_slice(slot),
                Stored::Number(number) => {
                    let length = bytes.len();
                    bytes.copy_from_slice(&number[..length]);
                }
                Stored::Zeros => {}
            }
            arrays.push((variable, bytes));
            if let Some(tensor) = tensors[index].filter(|own| !tensors[index + 1..].contains(&Some(*own))) {
                runner.give_back_tensor(tensor);
            }
        }
        Values { arrays, weights, iteration }
    }

    /// What they hold.
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes(self.arrays.iter().map(|(_, bytes)| bytes.len() as u64).sum())
    }

    /// The variables.
    pub(crate) fn variables(&self) -> (Vec<Variable>, usize) {
        (self.arrays.iter().map(|(variable, _)| variable.clone()).collect(), self.weights)
    }

    /// The values of a variable.
    pub(crate) fn of(&self, variable: usize) -> &[u8] {
        &self.arrays[variable].1
    }

    /// Writes the weights into the slots of these variables, which begin with those of the same model, and the optimizer's state
    /// where it is the same; returns the number of updates that the state is of.
    pub(crate) fn write(&self, runner: &mut Runner, variables: &[Variable]) -> u64 {
        let is_same = |(variable, (own, _)): (&Variable, &(Variable, Vec<u8>))| {
            (&variable.name, &variable.dims) == (&own.name, &own.dims)
        };
        let same_state =
            variables.len() == self.arrays.len() && variables.iter().zip(&self.arrays).all(is_same);
        let count = if same_state { self.arrays.len() } else { self.weights };
        for (variable, (_, bytes)) in variables.iter().zip(&self.arrays).take(count) {
            if let Some(tensor) = tensor(variable) {
                runner.bytes_mut(tensor).copy_from_slice(bytes);
            }
        }
        if same_state { self.iteration } else { 0 }
    }
}

/// What a variable holds in a file.
fn stored_bytes(variable: &Variable) -> usize {
    usize::try_from(variable.array(FileKind::Keras).bytes()).expect("a variable lies in memory")
}

/// The tensor in whose slot a variable stands.
fn tensor(variable: &Variable) -> Option<TensorId> {
    match variable.holds {
        Holds::Tensor(tensor) | Holds::Count(tensor) | Holds::Sum { tensor, .. } => Some(tensor),
        Holds::Iteration
        | Holds::LearningRate
        | Holds::Nothing
        | Holds::NadamProduct { .. }
        | Holds::Placeholder => None,
    }
}
