//! One node with its operands as numbers, and what it computes.

use memfit_device::{Context, Kept};
use memfit_ir::{Graph, Node, Shape, TensorId};

/// A node, and the values of what it reads and changes, as f64 whatever their type.
pub struct Call<'a> {
    /// The graph that has the types of the operands.
    pub graph: &'a Graph,
    /// The node.
    pub node: &'a Node,
    /// The step and the rows that it runs in.
    pub context: &'a Context,
    /// Whether sums count as 0 before the node adds to them.
    pub overwrite: bool,
    /// What it reads.
    pub inputs: Vec<&'a [f64]>,
    /// What it changes in place.
    pub updates: Vec<&'a [f64]>,
}

/// What a node computes, not rounded yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Computed {
    /// What it writes.
    pub outputs: Vec<Vec<f64>>,
    /// The new values of what it changes.
    pub updates: Vec<Vec<f64>>,
    /// What keeps its old values, because the new ones are not finite.
    pub kept: Kept,
}

impl Computed {
    /// One output and nothing else.
    pub(crate) fn output(values: Vec<f64>) -> Computed {
        Computed::outputs(vec![values])
    }

    /// Outputs and nothing else.
    pub(crate) fn outputs(outputs: Vec<Vec<f64>>) -> Computed {
        Computed { outputs, ..Computed::default() }
    }

    /// New values of what the node changes, and nothing else.
    pub(crate) fn updates(updates: Vec<Vec<f64>>) -> Computed {
        Computed { updates, ..Computed::default() }
    }
}

impl<'a> Call<'a> {
    pub(crate) fn input(&self, index: usize) -> &'a [f64] {
        self.inputs[index]
    }

    /// An input that the node may be without.
    pub(crate) fn input_if(&self, given: bool, index: usize) -> Option<&'a [f64]> {
        given.then(|| self.input(index))
    }

    /// Rows of the batch that the node works on.
    pub(crate) fn rows(&self) -> usize {
        self.context.rows
    }

    pub(crate) fn shape(&self, index: usize) -> &'a Shape {
        self.shape_of(self.node.inputs[index])
    }

    /// The dimensions of an input, without the batch.
    pub(crate) fn dims(&self, index: usize) -> &'a [usize] {
        &self.shape(index).dims
    }

    /// The dimensions of an output, without the batch.
    pub(crate) fn output_dims(&self, index: usize) -> &'a [usize] {
        &self.shape_of(self.node.outputs[index]).dims
    }

    /// Elements of an output.
    pub(crate) fn output_elements(&self, index: usize) -> usize {
        self.shape_of(self.node.outputs[index]).elements(self.rows())
    }

    /// The dimensions of what is changed in place.
    pub(crate) fn update_dims(&self, index: usize) -> &'a [usize] {
        &self.shape_of(self.node.updates[index]).dims
    }

    /// The length of the last axis of an input.
    pub(crate) fn last(&self, index: usize) -> usize {
        self.shape(index).last().max(1)
    }

    /// What the node adds to, before it does.
    pub(crate) fn before(&self, index: usize) -> Vec<f64> {
        let old = self.updates[index];
        if self.overwrite { vec![0.0; old.len()] } else { old.to_vec() }
    }

    /// A sum that the node changes, with its terms added.
    pub(crate) fn added(&self, index: usize, terms: &[f64]) -> Vec<f64> {
        assert_eq!(self.updates[index].len(), terms.len(), "a term for every sum");
        self.before(index).iter().zip(terms).map(|(sum, term)| sum + term).collect()
    }

    /// All sums that the node changes, with their terms added.
    pub(crate) fn sums(&self, terms: &[Vec<f64>]) -> Computed {
        assert_eq!(self.updates.len(), terms.len(), "terms for every sum");
        Computed::updates((0..terms.len()).map(|index| self.added(index, &terms[index])).collect())
    }

    fn shape_of(&self, id: TensorId) -> &'a Shape {
        &self.graph.tensors[id.0].shape
    }
}

/// The dimensions of an image.
pub(crate) fn image(dims: &[usize]) -> [usize; 3] {
    dims.try_into().expect("the shape rules let only images in")
}

/// All places of an index of three axes, in order.
pub(crate) fn indices([a, b, c]: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    (0..a * b * c).map(move |index| [index / (b * c), index / c % b, index % c])
}
