//! Graphs and plans as text that a person can read and a review can compare.

use std::fmt;

use crate::{CheckedPlan, Graph, Op, Phase, Place, Plan, Slot, Step, TensorId};

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

fn write_list(
    f: &mut fmt::Formatter<'_>,
    before: &str,
    items: impl Iterator<Item = String>,
    behind: &str,
) -> fmt::Result {
    let items: Vec<String> = items.collect();
    if items.is_empty() { Ok(()) } else { write!(f, "{before}{}{behind}", items.join(", ")) }
}

/// The op with its arguments.
fn detail(op: &Op) -> String {
    if let Op::Elementwise(chain) = op {
        return format!("elementwise {chain} ");
    }
    if let Op::BatchNormThen(norm, chain) = op {
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
    /// The plan as text, with the names of its graph.
    pub fn to_text(&self, graph: &Graph) -> String {
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
    /// The plan as text, with the names of its graph.
    pub fn to_text(&self) -> String {
        self.plan().to_text(&self.problem().graph)
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
    }
}

fn named(graph: &Graph, tensor: TensorId, slot: &Slot) -> String {
    format!("{}{}", graph.tensors[tensor.0].name, place(slot))
}

fn place(slot: &Slot) -> String {
    format!("@{}+{}", slot.offset.0, slot.bytes.0)
}
