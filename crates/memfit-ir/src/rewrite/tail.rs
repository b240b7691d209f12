//! A tail: the last layer, its loss and its gradients run in slices of the batch, so that what it predicts never exists whole.
//!
//! ```text
//!         ┌ take ─▶ last layer ─▶ loss ─▶ gradients ─▶ put ┐  slice 0
//! value ──┼ take ─▶ last layer ─▶ loss ─▶ gradients ─▶ put ┼▶ boundary ─▶ … backward …  slice 1
//!         └ take ─▶ last layer ─▶ loss ─▶ gradients ─▶ put ┘  slice 2
//! ```

use crate::{Bytes, Graph, Kind, Node, NodeId, Op, TensorId};

/// What runs in slices at the end of a network.
#[derive(Clone, Debug)]
pub struct Tail {
    /// The gradient that leaves it, which the rest of backward reads whole.
    pub boundary: TensorId,
    /// What the last layer predicts.
    pub prediction: TensorId,
    /// The last layer, metrics, the loss and the layer's gradients, in order.
    pub nodes: Vec<NodeId>,
}

impl Tail {
    /// The tails of a graph: one for each loss whose last layer can run in slices.
    pub fn all(graph: &Graph) -> Vec<Tail> {
        let is_loss = |node: &&Node| matches!(node.op, Op::Loss(_));
        let gradients = graph.nodes.iter().filter(is_loss).filter_map(|node| node.outputs.first());
        let readers = gradients.flat_map(|gradient| {
            let reads = move |node: &&Node| node.inputs.contains(gradient);
            graph.nodes.iter().filter(reads)
        });
        readers.filter_map(|node| Tail::at(graph, *node.outputs.first()?)).collect()
    }

    /// The tail that a gradient leaves; none where rows meet in it, or where more than this gradient leaves it.
    pub fn at(graph: &Graph, boundary: TensorId) -> Option<Tail> {
        let last = graph.producer(boundary)?;
        let is_loss = |node: &&Node| {
            let gives = |gradient: &TensorId| graph.nodes[last.0].inputs.contains(gradient);
            matches!(node.op, Op::Loss(_)) && node.outputs.iter().any(gives)
        };
        let loss = graph.nodes.iter().find(is_loss)?;
        let (prediction, gradient) = (*loss.inputs.first()?, *loss.outputs.first()?);
        let first = graph.producer(prediction)?;
        let belongs = |index: usize| {
            let node = &graph.nodes[index];
            NodeId(index) == first || node.inputs.iter().any(|id| *id == prediction || *id == gradient)
        };
        let nodes: Vec<NodeId> = (0..graph.nodes.len()).filter(|index| belongs(*index)).map(NodeId).collect();
        let stays =
            |node: &Node| node.outputs.iter().all(|output| [prediction, gradient, boundary].contains(output));
        let fits =
            nodes.iter().map(|id| &graph.nodes[id.0]).all(|node| stays(node) && graph.has_own_rows(node));
        let is_gradient = |id: TensorId| graph.tensors[id.0].kind == Kind::Flow;
        let is_whole = graph.tensors.iter().all(|tensor| tensor.slice.is_none());
        let is_kept = graph.keep.iter().any(|id| *id == prediction || *id == gradient);
        (fits && is_gradient(boundary) && is_whole && !is_kept && nodes.last() == Some(&last))
            .then_some(Tail { boundary, prediction, nodes })
    }

    /// Bytes of a row that the last layer predicts.
    pub fn bytes_predicted(&self, graph: &Graph) -> Bytes {
        graph.tensors[self.prediction.0].bytes(1)
    }

    /// The layer that runs in slices.
    pub fn layers(&self, graph: &Graph) -> Vec<String> {
        self.nodes.first().map(|node| graph.layers[graph.nodes[node.0].layer.0].clone()).into_iter().collect()
    }
}
