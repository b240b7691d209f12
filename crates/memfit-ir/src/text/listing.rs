//! Graphs and plans for people: names instead of numbers, and less than everything. Nothing parses this.

use std::fmt;

use crate::{CheckedPlan, Graph, Node, Op, Phase, Place, Plan, Slot, Step, TensorId};

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |id: &TensorId| self.tensors[id.0].name.as_str();
        let typed = |id: &TensorId| {
            let tensor = &self.tensors[id.0];
            format!("{} {}{}", tensor.name, tensor.dtype, tensor.shape)
        };
        for id in &self.inputs {
            writeln!(f, "feed   {}", typed(id))?;
        }
        for node in &self.nodes {
            let phase = match node.phase {
                Phase::Begin => "begin ",
                Phase::Piece => "piece ",
                Phase::End => "end   ",
            };
            write!(f, "{phase} {}", detail(&node.op))?;
            write_list(f, "(", node.inputs.iter().map(|id| name(id).to_owned()), ")")?;
            write_list(f, " -> ", node.outputs.iter().map(typed), "")?;
            write_list(f, " => ", node.updates.iter().map(typed), "")?;
            writeln!(f)?;
        }
        write_list(f, "output ", self.outputs.iter().map(typed), "\n")
    }
}

impl Graph {
    /// A node without any name: its op and the types of its operands. Nodes that take the same time have the same text.
    pub fn signature(&self, node: &Node) -> String {
        let types = |ids: &[TensorId]| {
            let types = ids.iter().map(|id| &self.tensors[id.0]);
            types.map(|tensor| format!("{}{}", tensor.dtype, tensor.shape)).collect::<Vec<_>>().join(", ")
        };
        // Which draws a dropout makes does not change how long drawing takes.
        let op = if let Op::Dropout { rate, .. } = node.op {
            detail(&Op::Dropout { rate, seed: 0 })
        } else {
            detail(&node.op)
        };
        let Node { inputs, outputs, updates, .. } = node;
        format!("{} ({}) -> ({}) => ({})", op.trim_end(), types(inputs), types(outputs), types(updates))
    }
}

fn write_list(
    f: &mut fmt::Formatter<'_>,
    before: &str,
    items: impl Iterator<Item = String>,
    after: &str,
) -> fmt::Result {
    let items: Vec<String> = items.collect();
    if items.is_empty() { Ok(()) } else { write!(f, "{before}{}{after}", items.join(", ")) }
}

/// The op with its arguments.
fn detail(op: &Op) -> String {
    if let Op::Elementwise(chain) = op {
        return format!("elementwise {chain} ");
    }
    if let Op::Fused(fused) = op
        && let Some((norm, chain)) = fused.as_norm_then()
    {
        return format!("{} {norm:?} {chain} ", op.name());
    }
    let text = format!("{op:?}");
    match text.find(['(', '{', '[']) {
        Some(start) => {
            format!("{} {} ", op.name(), text[start..].trim_start_matches('(').trim_end_matches(')'))
        }
        None => op.name().to_owned(),
    }
}

impl Plan {
    /// The plan for people, with the names of its graph.
    pub fn listing(&self, graph: &Graph) -> String {
        let mut lines = vec![format!(
            "plan  batch {} = {} x {}  peak {} bytes  bound {} bytes",
            self.batch,
            self.micro_batches(),
            self.micro_batch,
            self.bytes_peak.0,
            self.bytes_bound.0
        )];
        lines.push("persistent".to_owned());
        for (tensor, slot) in &self.persistent {
            lines.push(format!("  {}", named(graph, *tensor, slot)));
        }
        for (title, steps) in
            [("prologue", &self.prologue), ("body", &self.body), ("epilogue", &self.epilogue)]
        {
            if !steps.is_empty() {
                lines.push(title.to_owned());
            }
            lines.extend(steps.iter().map(|step| format!("  {}", step_line(graph, step))));
        }
        lines.push(String::new());
        lines.join("\n")
    }
}

impl CheckedPlan {
    /// The plan for people, with the names of its graph.
    pub fn listing(&self) -> String {
        self.plan().listing(&self.problem().graph)
    }
}

fn step_line(graph: &Graph, step: &Step) -> String {
    match step {
        Step::Launch { node, args, workspace, fresh } => {
            let node = &graph.nodes[node.0];
            let tensors = node.inputs.iter().chain(&node.outputs).chain(&node.updates);
            let texts: Vec<String> = tensors.zip(args).map(|(id, slot)| named(graph, *id, slot)).collect();
            let (inputs, rest) = texts.split_at(node.inputs.len());
            let (outputs, updates) = rest.split_at(node.outputs.len());
            let mut line = format!("{}({})", node.op.name(), inputs.join(", "));
            if !outputs.is_empty() {
                line += &format!(" -> {}", outputs.join(", "));
            }
            if !updates.is_empty() {
                line += &format!(" {} {}", if *fresh { "=>fresh" } else { "=>" }, updates.join(", "));
            }
            if workspace.bytes.0 > 0 {
                line += &format!("  workspace {}", place(workspace));
            }
            line
        }
        Step::Copy { from, to } => {
            let side = |end: &Place| match end {
                Place::Feed(tensor) => format!("feed {}", graph.tensors[tensor.0].name),
                Place::Arena(slot) => place(slot),
                Place::Host(slot) => format!("host {}", place(slot)),
            };
            format!("copy {} -> {}", side(from), side(to))
        }
        Step::Wait(slot) => format!("wait {}", place(slot)),
    }
}

fn named(graph: &Graph, tensor: TensorId, slot: &Slot) -> String {
    format!("{}{}", graph.tensors[tensor.0].name, place(slot))
}

fn place(slot: &Slot) -> String {
    format!("@{}+{}", slot.offset.0, slot.bytes.0)
}

#[cfg(test)]
mod tests {
    use crate::{Conv2D, DType, Graph, Kind, Op, Pads, Shape};

    #[test]
    fn a_signature_is_the_same_for_nodes_that_are_alike_and_for_no_others() {
        let mut graph = Graph::default();
        let (first, second) = (graph.layer("first"), graph.layer("second"));
        let mut tensor = |name: &str, shape| graph.tensor(name, shape, DType::F32, Kind::Activation, first);
        let (x, also_x) = (tensor("x", Shape::rows([9, 9, 8])), tensor("other", Shape::rows([9, 9, 8])));
        let (fixed, wide) =
            (tensor("fixed", Shape::fixed([9, 9, 8])), tensor("wide", Shape::rows([9, 9, 16])));
        let kernel = tensor("kernel", Shape::fixed([3, 3, 8, 16]));
        let conv = |strides| {
            Op::Conv2D(Conv2D {
                kernel: [3, 3],
                strides: [strides, strides],
                dilation: [1, 1],
                groups: 1,
                pads: Pads::default(),
            })
        };
        let mut add = |op: Op, inputs: &[crate::TensorId], layer| {
            graph.push(op, inputs, layer).unwrap();
            graph.signature(graph.nodes.last().unwrap())
        };
        let dropout = |rate, seed| Op::Dropout { rate, seed };
        let once = add(dropout(0.5, 1), &[x], first);
        assert_eq!(once, "dropout { rate: 0.5, seed: 0 } (f32[batch,9,9,8]) -> (f32[batch,9,9,8]) => ()");
        assert_eq!(once, add(dropout(0.5, 2), &[also_x], second), "names, layers and draws take no time");
        let others = [
            add(dropout(0.25, 1), &[x], first),
            add(dropout(0.5, 1), &[fixed], first),
            add(dropout(0.5, 1), &[wide], first),
            add(conv(1), &[x, kernel], first),
            add(conv(2), &[x, kernel], first),
        ];
        for (index, other) in others.iter().enumerate() {
            assert_ne!(once, *other);
            assert!(!others[..index].contains(other), "{other}");
        }
    }
}
