//! The lines of a graph, a problem and a plan, and what must hold of ids in them.

use super::Text;
use super::page::{Reader, TextError, Writer};
use super::sound::{check_graph, check_problem};
use crate::{Graph, Node, Plan, Problem, Rewrite, Rewritten, Tensor, TensorId};

impl Graph {
    /// The graph as exact text.
    pub fn to_text(&self) -> String {
        let mut writer = Writer::new("graph");
        write_graph(&mut writer, self);
        writer.end()
    }

    /// Reads what [`Graph::to_text`] wrote.
    pub fn from_text(text: &str) -> Result<Graph, TextError> {
        let mut reader = Reader::new("graph", text)?;
        let graph = read_graph(&mut reader)?;
        reader.end()?;
        Ok(graph)
    }
}

impl Problem {
    /// The problem as exact text.
    pub fn to_text(&self) -> String {
        let Problem {
            graph,
            costs,
            costs_rewritten,
            budget,
            batch,
            allow_batchnorm_split,
            transfers,
            pinned,
        } = self;
        let mut writer = Writer::new("problem");
        writer.line("batch", batch);
        writer.line("budget", budget);
        writer.line("transfers", transfers);
        writer.line("allow_batchnorm_split", allow_batchnorm_split);
        writer.line("pinned", pinned);
        write_graph(&mut writer, graph);
        writer.list("cost", costs);
        writer.lines("cost_rewritten", costs_rewritten.iter().map(|(of, cost)| (*of, cost)));
        writer.end()
    }

    /// Reads what [`Problem::to_text`] wrote.
    pub fn from_text(text: &str) -> Result<Problem, TextError> {
        let mut reader = Reader::new("problem", text)?;
        let batch = reader.line("batch")?;
        let budget = reader.line("budget")?;
        let transfers = reader.line("transfers")?;
        let allow_batchnorm_split = reader.line("allow_batchnorm_split")?;
        let pinned = reader.line("pinned")?;
        let graph = read_graph(&mut reader)?;
        let costs = reader.list("cost", |_| Ok(()))?;
        let (nodes, tensors) = (graph.nodes.len(), graph.tensors.len());
        if costs.len() != nodes {
            return Err(reader.error_before(format!("{} costs of {nodes} nodes", costs.len())));
        }
        let costs_rewritten = keyed(reader.lines("cost_rewritten")?, |of: &Rewritten| match of {
            Rewritten::Reader(node) => in_range("node", node.0, nodes),
            Rewritten::Update(gradient) => in_range("tensor", gradient.0, tensors),
        })?;
        let problem = Problem {
            graph,
            costs,
            costs_rewritten,
            budget,
            batch,
            allow_batchnorm_split,
            transfers,
            pinned,
        };
        check_problem(&problem, reader.line_before())?;
        reader.end()?;
        Ok(problem)
    }
}

impl Plan {
    /// The plan as exact text: nodes and tensors are numbers of its problem's.
    pub fn to_text(&self) -> String {
        let Plan {
            batch,
            micro_batch,
            rewrites,
            bytes_peak,
            bytes_bound,
            bytes_host,
            persistent,
            kept,
            ahead,
            prologue,
            body,
            epilogue,
        } = self;
        let mut writer = Writer::new("plan");
        writer.line("batch", batch);
        writer.line("micro_batch", micro_batch);
        writer.line("rewrites", rewrites);
        writer.line("bytes_peak", bytes_peak);
        writer.line("bytes_bound", bytes_bound);
        writer.line("bytes_host", bytes_host);
        writer.line("ahead", ahead);
        writer.list("persistent", persistent);
        writer.list("kept", kept);
        writer.list("prologue", prologue);
        writer.list("body", body);
        writer.list("epilogue", epilogue);
        writer.end()
    }

    /// Reads what [`Plan::to_text`] wrote. Whether it is a plan of a problem is for [`crate::check`] to say.
    pub fn from_text(text: &str) -> Result<Plan, TextError> {
        let mut reader = Reader::new("plan", text)?;
        let plan = Plan {
            batch: reader.line("batch")?,
            micro_batch: reader.line("micro_batch")?,
            rewrites: reader.line("rewrites")?,
            bytes_peak: reader.line("bytes_peak")?,
            bytes_bound: reader.line("bytes_bound")?,
            bytes_host: reader.line("bytes_host")?,
            ahead: reader.line("ahead")?,
            persistent: reader.list("persistent", |_| Ok(()))?,
            kept: reader.list("kept", |_| Ok(()))?,
            prologue: reader.list("prologue", |_| Ok(()))?,
            body: reader.list("body", |_| Ok(()))?,
            epilogue: reader.list("epilogue", |_| Ok(()))?,
        };
        reader.end()?;
        Ok(plan)
    }
}

fn write_graph(writer: &mut Writer, graph: &Graph) {
    let Graph {
        layers,
        tensors,
        nodes,
        inputs,
        outputs,
        keep,
        initial,
        rewrites,
        penalties,
        activities,
        masks,
        constraints,
    } = graph;
    writer.list("layer", layers);
    writer.list("tensor", tensors);
    writer.list("node", nodes);
    writer.line("inputs", inputs);
    writer.line("outputs", outputs);
    writer.line("keep", keep);
    writer.line("rewrites", rewrites);
    writer.list("initial", initial);
    writer.list("penalty", penalties);
    writer.list("activity", activities);
    writer.list("mask", masks);
    writer.list("constraint", constraints);
}

fn read_graph(reader: &mut Reader<'_>) -> Result<Graph, TextError> {
    let layers: Vec<String> = reader.list("layer", |_| Ok(()))?;
    let first_tensor = reader.line_before() + 1;
    let tensors = reader.list("tensor", |tensor: &Tensor| in_range("layer", tensor.layer.0, layers.len()))?;
    let known = |id: TensorId| in_range("tensor", id.0, tensors.len());
    let all_known = |ids: &[TensorId]| ids.iter().try_for_each(|id| known(*id));
    let first_node = reader.line_before() + 1;
    let nodes = reader.list("node", |node: &Node| {
        in_range("layer", node.layer.0, layers.len())?;
        [&node.inputs, &node.outputs, &node.updates].into_iter().try_for_each(|ids| all_known(ids))
    })?;
    let inputs = ids(reader, "inputs", all_known)?;
    let outputs = ids(reader, "outputs", all_known)?;
    let keep = ids(reader, "keep", all_known)?;
    let rewrites: Vec<Rewrite> = reader.line("rewrites")?;
    let mut tensors_rewritten = rewrites.iter().map(Rewrite::tensor);
    tensors_rewritten.try_for_each(known).map_err(|problem| reader.error_before(problem))?;
    let initial = pairs(reader, "initial", known)?;
    let penalties = pairs(reader, "penalty", known)?;
    let activities = pairs(reader, "activity", known)?;
    let masks = reader.list("mask", |(prediction, mask)| all_known(&[*prediction, *mask]))?;
    let constraints = pairs(reader, "constraint", known)?;
    let graph = Graph {
        layers,
        tensors,
        nodes,
        inputs,
        outputs,
        keep,
        initial,
        rewrites,
        penalties,
        activities,
        masks,
        constraints,
    };
    check_graph(&graph, first_tensor, first_node)?;
    Ok(graph)
}

/// A line of ids of tensors.
fn ids(
    reader: &mut Reader<'_>,
    keyword: &str,
    all_known: impl Fn(&[TensorId]) -> Result<(), String>,
) -> Result<Vec<TensorId>, TextError> {
    let ids: Vec<TensorId> = reader.line(keyword)?;
    all_known(&ids).map_err(|problem| reader.error_before(problem))?;
    Ok(ids)
}

/// Lines of a tensor and what is said of it.
fn pairs<T: Text>(
    reader: &mut Reader<'_>,
    keyword: &str,
    known: impl Fn(TensorId) -> Result<(), String>,
) -> Result<Vec<(TensorId, T)>, TextError> {
    reader.list(keyword, |(id, _): &(TensorId, T)| known(*id))
}

fn keyed<K: Ord, T>(
    lines: Vec<(usize, K, T)>,
    check: impl Fn(&K) -> Result<(), String>,
) -> Result<std::collections::BTreeMap<K, T>, TextError> {
    let mut map = std::collections::BTreeMap::new();
    for (line, key, value) in lines {
        check(&key).map_err(|problem| TextError { line, problem })?;
        if map.last_key_value().is_some_and(|(last, _)| key <= *last) {
            return Err(TextError { line, problem: "the keys are not in order".to_owned() });
        }
        map.insert(key, value);
    }
    Ok(map)
}

fn in_range(what: &str, index: usize, count: usize) -> Result<(), String> {
    if index < count { Ok(()) } else { Err(format!("{what} {index} of {count} does not exist")) }
}
