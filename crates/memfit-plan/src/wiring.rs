//! Wiring: what each node reads, writes and changes, side by side in memory, since a search walks over all nodes again and again.

use memfit_ir::{Graph, NodeId, TensorId};

/// The operands of all nodes, in the order of the nodes.
pub struct Wiring {
    operands: Vec<TensorId>,
    nodes: Vec<Parts>,
}

/// Where the parts of a node's operands begin, and where the last ends.
#[derive(Clone, Copy)]
struct Parts {
    inputs: u32,
    outputs: u32,
    updates: u32,
    end: u32,
}

impl Wiring {
    /// Reads it off a graph.
    pub fn new(graph: &Graph) -> Wiring {
        let mut operands = Vec::new();
        let mut add = |tensors: &[TensorId]| {
            let first = operands.len() as u32;
            operands.extend_from_slice(tensors);
            first
        };
        let parts = graph.nodes.iter().map(|node| Parts {
            inputs: add(&node.inputs),
            outputs: add(&node.outputs),
            updates: add(&node.updates),
            end: add(&[]),
        });
        let nodes = parts.collect();
        Wiring { operands, nodes }
    }

    /// What a node reads.
    pub fn inputs(&self, node: NodeId) -> &[TensorId] {
        let Parts { inputs, outputs, .. } = self.nodes[node.0];
        &self.operands[inputs as usize..outputs as usize]
    }

    /// What it writes.
    pub fn outputs(&self, node: NodeId) -> &[TensorId] {
        let Parts { outputs, updates, .. } = self.nodes[node.0];
        &self.operands[outputs as usize..updates as usize]
    }

    /// What it changes in place.
    pub fn updates(&self, node: NodeId) -> &[TensorId] {
        let Parts { updates, end, .. } = self.nodes[node.0];
        &self.operands[updates as usize..end as usize]
    }

    /// How many operands it has.
    pub fn count(&self, node: NodeId) -> usize {
        let Parts { inputs, end, .. } = self.nodes[node.0];
        (end - inputs) as usize
    }
}
