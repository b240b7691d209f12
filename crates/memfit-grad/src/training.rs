//! Assembling the training graph: zeros, forward, losses, backward, updates.

use std::fmt;

use memfit_ir::Operand::X;
use memfit_ir::{
    Accumulate, Capabilities, Chain, Clip, DType, Graph, Initializer, Kind, LayerId, Link, Loss, LossKind,
    Mask, Metric, Node, NodeId, Op, Phase, RowValue, Shape, ShapeError, TensorId, Unary, Update,
};

use crate::commute::relu_after_pools;
use crate::like::{self, SquareSums};
use crate::rules::Backward;
use crate::{
    ClipBy, Optimizer, batch_norm, biases, compact, fuse, guard, neighbours, penalties, pooled, rounded,
    weights,
};

/// What to train for.
#[derive(Clone, Debug)]
pub struct Training {
    /// One loss for each output of the graph.
    pub losses: Vec<Loss>,
    /// Metrics, in the order in which they are read back.
    pub metrics: Vec<OutputMetric>,
    /// Inputs after the targets that bring rows' weights: none, one for all outputs, or one for each.
    pub sample_weights: usize,
    /// Which of them weigh every sample of a row, and not the row: false where it is not said.
    pub weights_of_samples: Vec<bool>,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Tensors whose gradients are kept for reading when the step ends.
    pub gradients_of: Vec<TensorId>,
    /// Whether a step with a result that is not finite changes nothing at all: every result is computed before the first is written.
    pub guard: bool,
    /// What the device offers that it runs on: which nodes become one, and what products read.
    pub capabilities: Capabilities,
    /// Whether gradients are those of Keras on TensorFlow where memfit's differ by intent.
    pub like_tensorflow: bool,
}

/// A metric of one output.
#[derive(Clone, Debug)]
pub struct OutputMetric {
    /// Which output.
    pub output: usize,
    /// Which metric.
    pub metric: Metric,
    /// Whether rows count by their weights, where they have any.
    pub weighted: bool,
}

impl Training {
    /// Training with this optimizer, on a device that offers nothing optional; losses are still to be given.
    pub fn new(optimizer: Optimizer) -> Training {
        let weights_of_samples = vec![];
        let (losses, metrics, gradients_of) = (vec![], vec![], vec![]);
        let (guard, like_tensorflow) = (false, false);
        Training {
            losses,
            metrics,
            sample_weights: 0,
            weights_of_samples,
            optimizer,
            gradients_of,
            guard,
            capabilities: Capabilities::default(),
            like_tensorflow,
        }
    }
}

/// Why there is no training graph.
#[derive(Clone, Debug, PartialEq)]
pub enum GradError {
    /// Not one loss for each output.
    Losses {
        /// Outputs of the model.
        outputs: usize,
        /// Losses given.
        losses: usize,
    },
    /// A loss or metric does not suit its output.
    Shape {
        /// The output's layer.
        layer: String,
        /// What does not suit.
        error: ShapeError,
    },
    /// Nothing to train: no weight leads to a loss.
    NothingToTrain,
    /// What TensorFlow computes for the gradient of an embedding is not known here.
    UnlikeTensorflow(&'static str),
    /// The op has no gradient.
    NoRule {
        /// The node's layer.
        layer: String,
        /// The op.
        op: &'static str,
    },
}

impl fmt::Display for GradError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GradError::Losses { outputs, losses } => {
                write!(
                    f,
                    "the model has {outputs} outputs and {losses} losses; give one loss for each output"
                )
            }
            GradError::Shape { layer, error } => write!(f, "layer `{layer}`: {error}"),
            GradError::NothingToTrain => {
                write!(f, "no trainable weight leads to a loss; make at least one layer trainable")
            }
            GradError::UnlikeTensorflow(what) => write!(
                f,
                "`like = \"tensorflow\"` does not reproduce an Embedding with {what}; take Adam, RMSprop, Adagrad, Nadam, Lamb, SGD \
                 or Lion in float32 and without a clip, or leave `like` out"
            ),
            GradError::NoRule { layer, op } => write!(f, "layer `{layer}`: {op} has no gradient"),
        }
    }
}

impl std::error::Error for GradError {}

/// Forward, backward and optimizer in one list of nodes.
pub fn training_graph(forward: &Graph, training: &Training) -> Result<Graph, GradError> {
    require_losses(forward, training)?;
    let forward = &*relu_after_pools(forward, &training.gradients_of);
    let mut graph = forward.clone();
    fuse::pad_inside(&mut graph);
    fuse::pad_inside_pools(&mut graph);
    let Capabilities { fusions, rounds_weights, .. } = training.capabilities;
    pooled::pool_inside(&mut graph, fusions.winograd_max_pool, &training.gradients_of);
    if fusions.max_pool_dense {
        pooled::dense_inside(&mut graph, &training.gradients_of);
    }
    pooled::relu_inside(&mut graph, &training.gradients_of);
    let forward_nodes = graph.nodes.len();
    let seeds = add_losses(&mut graph, forward, training)?;
    let mut backward = Backward::new(graph, fusions.winograd_max_pool, &training.gradients_of);
    for (prediction, gradient) in seeds {
        backward.add(prediction, gradient);
    }
    for index in (0..forward_nodes).rev() {
        backward.pull_back(NodeId(index))?;
    }
    let (mut graph, weight_gradients, wanted) = backward.finish(&training.gradients_of);
    let trains =
        |graph: &Graph| graph.tensors.iter().any(|tensor| tensor.kind == Kind::Weight { trainable: true });
    if weight_gradients.is_empty() && wanted.is_empty() && trains(&graph) {
        return Err(GradError::NothingToTrain);
    }
    graph.keep.extend(wanted);
    let squares = match training.like_tensorflow {
        true => like::sums_of_squares(&mut graph, &weight_gradients, &training.optimizer)?,
        false => Vec::new(),
    };
    batch_norm::relu_inside(&mut graph);
    batch_norm::drop_bias_gradients(&mut graph);
    compact::sign_bits(&mut graph, forward_nodes);
    compact::drop_dead_nodes(&mut graph);
    biases::before_pools(&mut graph);
    fuse::fuse(&mut graph);
    fuse::fuse(&mut graph);
    biases::with_masks(&mut graph);
    if fusions.neighbours {
        neighbours::bring_together(&mut graph);
    }
    if rounds_weights {
        rounded::round_weights(&mut graph);
    }
    if training.guard && !squares.is_empty() {
        return Err(GradError::UnlikeTensorflow("guard = \"step\""));
    }
    if training.guard {
        guard::add_updates(&mut graph, &weight_gradients, &training.optimizer);
    } else {
        add_updates(&mut graph, &weight_gradients, &squares, &training.optimizer);
    }
    add_zeros(&mut graph);
    Ok(graph)
}

/// Forward, losses and metrics: what a model is evaluated by.
pub fn evaluation_graph(forward: &Graph, training: &Training) -> Result<Graph, GradError> {
    require_losses(forward, training)?;
    let forward = &*relu_after_pools(forward, &training.gradients_of);
    let mut graph = forward.clone();
    fuse::pad_inside(&mut graph);
    fuse::pad_inside_pools(&mut graph);
    let fusions = training.capabilities.fusions;
    pooled::pool_inside(&mut graph, fusions.winograd_max_pool, &[]);
    if fusions.max_pool_dense {
        pooled::dense_inside(&mut graph, &[]);
    }
    add_losses(&mut graph, forward, training)?;
    compact::drop_dead_nodes(&mut graph);
    penalties::add(&mut graph, &[]);
    add_zeros(&mut graph);
    Ok(graph)
}

/// The forward graph alone, which keeps its outputs for reading.
pub fn prediction_graph(forward: &Graph) -> Graph {
    let mut graph = relu_after_pools(forward, &[]).into_owned();
    copy_inputs(&mut graph);
    let unkept = graph.outputs.iter().filter(|output| !graph.keep.contains(output)).copied();
    graph.keep.extend(unkept.collect::<Vec<_>>());
    pooled::pool_inside(&mut graph, None, &[]);
    graph
}

/// An output that is an input, as after layers that do nothing at inference, becomes a copy of it: inputs are not kept.
fn copy_inputs(graph: &mut Graph) {
    for index in 0..graph.outputs.len() {
        let output = graph.outputs[index];
        if graph.producer(output).is_some() {
            continue;
        }
        let (layer, dims) = (graph.tensors[output.0].layer, graph.tensors[output.0].shape.dims.clone());
        let copy = graph.push(Op::Reshape(dims), &[output], layer);
        graph.outputs[index] = copy.expect("any value can take its own shape")[0];
    }
}

fn require_losses(forward: &Graph, training: &Training) -> Result<(), GradError> {
    let (outputs, losses) = (forward.outputs.len(), training.losses.len());
    if losses == outputs { Ok(()) } else { Err(GradError::Losses { outputs, losses }) }
}

/// Appends targets, metrics and losses; returns each prediction with its gradient.
fn add_losses(
    graph: &mut Graph,
    forward: &Graph,
    training: &Training,
) -> Result<Vec<(TensorId, TensorId)>, GradError> {
    let loss_layer = graph.layer("loss");
    let mut seeds = Vec::new();
    let mut targets = Vec::new();
    for (index, (output, loss)) in forward.outputs.iter().zip(&training.losses).enumerate() {
        let prediction = &forward.tensors[output.0];
        let name = &forward.layers[prediction.layer.0];
        let (mut dims, mut dtype) = (prediction.shape.dims.clone(), DType::F32);
        if loss.kind.is_sparse() {
            dims.pop();
            dtype = DType::I32;
        }
        let target = format!("target/{name}");
        targets.push(graph.tensor(target, Shape::rows(dims), dtype, Kind::Input, loss_layer));
        graph.inputs.push(targets[index]);
    }
    let weights: Vec<TensorId> = (0..training.sample_weights)
        .map(|index| {
            let name = match training.sample_weights {
                1 => "sample_weight".to_owned(),
                _ => format!(
                    "sample_weight/{}",
                    forward.layers[forward.tensors[forward.outputs[index].0].layer.0]
                ),
            };
            let of_samples = training.weights_of_samples.get(index).is_some_and(|of_samples| *of_samples);
            let prediction = &forward.tensors[forward.outputs[index].0].shape.dims;
            let samples = prediction.len().saturating_sub(1);
            let dims = if of_samples { prediction[..samples].to_vec() } else { vec![] };
            let weights = graph.tensor(name, Shape::rows(dims), DType::F32, Kind::Input, loss_layer);
            graph.inputs.push(weights);
            weights
        })
        .collect();
    let weights_of = |output: usize| weights.get(output).or(weights.first()).copied();
    let layer_of = |output: usize| forward.tensors[forward.outputs[output].0].layer;
    let mask_of = |output: usize| {
        let mut masks = forward.masks.iter();
        masks.find(|(known, _)| *known == forward.outputs[output]).map(|(_, mask)| *mask)
    };
    let at_output = |output: usize, error| {
        let layer = forward.layers[layer_of(output).0].clone();
        GradError::Shape { layer, error }
    };
    for OutputMetric { output, metric, weighted } in &training.metrics {
        let prediction = forward.outputs[*output];
        let (prediction, metric) = match metric {
            Metric::Mean(RowValue::Loss(kind)) => {
                let (prediction, kind) = before_softmax(forward, prediction, kind);
                (prediction, Metric::Mean(RowValue::Loss(kind)))
            }
            Metric::Mean(_)
            | Metric::RootMeanSquaredError
            | Metric::Counts(_)
            | Metric::Iou(_)
            | Metric::FBeta(_) => (prediction, metric.clone()),
        };
        let count = metric.sums(&forward.tensors[prediction.0].shape);
        let sums = statistic(graph, "metric", count, loss_layer);
        let mut weights = weights_of(*output).filter(|_| *weighted);
        // As in Keras, means leave out what is masked, and counts do not.
        if let Metric::Mean(_) = metric {
            weights = weights::within(graph, weights, mask_of(*output), layer_of(*output))
                .map_err(|error| at_output(*output, error))?;
        }
        let metric = without_ignored(graph, metric, targets[*output], &mut weights, layer_of(*output))
            .map_err(|error| at_output(*output, error))?;
        let inputs: Vec<TensorId> = [prediction, targets[*output]].into_iter().chain(weights).collect();
        graph
            .push_updating(Op::Metric(metric), &inputs, &[sums], Kind::Flow, layer_of(*output))
            .map_err(|error| at_output(*output, error))?;
    }
    for (index, (output, loss)) in forward.outputs.iter().zip(&training.losses).enumerate() {
        let (prediction, kind) = before_softmax(forward, *output, &loss.kind);
        let (mask, layer) = (mask_of(index), layer_of(index));
        let (kind, weights) =
            weights::of_samples(graph, kind, targets[index], weights_of(index), mask, layer)
                .map_err(|error| at_output(index, error))?;
        let kind = if training.like_tensorflow { like::of_units(kind) } else { kind };
        let sum = statistic(graph, "loss", 1, loss_layer);
        let op = Op::Loss(Loss { kind, weight: loss.weight });
        let inputs: Vec<TensorId> = [prediction, targets[index]].into_iter().chain(weights).collect();
        let gradient = graph
            .push_updating(op, &inputs, &[sum], Kind::Flow, layer_of(index))
            .map_err(|error| at_output(index, error))?;
        seeds.push((prediction, gradient[0]));
    }
    seeds.extend(penalties::of_values(graph));
    Ok(seeds)
}

/// A metric whose weights are 0 where the class is ignored. As in Keras, such a sample is left out of a mean that has weights, and
/// counts as 0 in one that has none.
fn without_ignored(
    graph: &mut Graph,
    metric: Metric,
    target: TensorId,
    weights: &mut Option<TensorId>,
    layer: LayerId,
) -> Result<Metric, ShapeError> {
    let Metric::Mean(RowValue::Loss(LossKind::Reduced { kind, ignore_class: Some(class), .. })) = &metric
    else {
        return Ok(metric);
    };
    let plain = weights.is_some().then(|| Metric::Mean(RowValue::Loss((**kind).clone())));
    let other = graph.push(Op::Mask(Mask::OtherClass(*class)), &[target], layer)?[0];
    *weights = weights::within(graph, *weights, Some(other), layer)?;
    Ok(plain.unwrap_or(metric))
}

fn statistic(graph: &mut Graph, name: &str, count: usize, layer: LayerId) -> TensorId {
    graph.tensor(name, Shape::fixed([count]), DType::F32, Kind::Statistic, layer)
}

/// A softmax and its cross-entropy are one op, and so are a sigmoid and its: exact where probabilities saturate, and the
/// probabilities need not be kept. As in Keras, any cross-entropy takes the logits of whichever of the two comes last.
fn before_softmax(forward: &Graph, output: TensorId, kind: &LossKind) -> (TensorId, LossKind) {
    let logits = forward.producer(output).map(|id| &forward.nodes[id.0]).and_then(|producer| {
        let is_probability =
            producer.op == Op::Softmax || producer.op == Op::Elementwise(Chain::unary(Unary::Sigmoid));
        is_probability.then(|| producer.input(X))
    });
    let Some(logits) = logits else { return (output, kind.clone()) };
    let from_logits = true;
    match *kind {
        LossKind::Reduced { ref kind, reduction, ignore_class } => {
            let (prediction, kind) = before_softmax(forward, output, kind);
            (prediction, LossKind::Reduced { kind: Box::new(kind), reduction, ignore_class })
        }
        LossKind::CategoricalCrossentropy { label_smoothing, .. } => {
            (logits, LossKind::CategoricalCrossentropy { from_logits, label_smoothing })
        }
        LossKind::SparseCategoricalCrossentropy { .. } => {
            (logits, LossKind::SparseCategoricalCrossentropy { from_logits })
        }
        LossKind::BinaryCrossentropy { label_smoothing, .. } => {
            (logits, LossKind::BinaryCrossentropy { from_logits, label_smoothing })
        }
        LossKind::MeanSquaredError
        | LossKind::UnitCategoricalCrossentropy { .. }
        | LossKind::MeanAbsoluteError
        | LossKind::Huber { .. }
        | LossKind::Distance(_) => (output, kind.clone()),
    }
}

/// Appends the optimizer: one update for each weight, after the norms where they are asked for.
fn add_updates(
    graph: &mut Graph,
    gradients: &[(TensorId, TensorId)],
    squares: &[SquareSums],
    optimizer: &Optimizer,
) {
    penalties::add(graph, gradients);
    let found_inf = scaled(graph, gradients);
    let gradients = &accumulated(graph, gradients, optimizer.accumulation_steps, found_inf);
    let global = global_norm(graph, gradients, optimizer);
    for (weight, gradient) in gradients {
        let written = Written::of(graph, *weight, *gradient, optimizer, global);
        if let Some(sums) = squares.iter().find(|sums| sums.weight == *weight) {
            let (state, layer) = (written.writes[1 + sums.state], graph.tensors[weight.0].layer);
            let op = Op::CorrectSquares(sums.factor);
            push_end(graph, op, vec![*gradient, sums.squares], vec![], vec![state], layer);
        }
        written.add(graph, optimizer, found_inf);
        penalties::constrain(graph, *weight, found_inf);
    }
}

/// The sum of all gradients' squares, where they are clipped by it.
pub(crate) fn global_norm(
    graph: &mut Graph,
    gradients: &[(TensorId, TensorId)],
    optimizer: &Optimizer,
) -> Option<TensorId> {
    match optimizer.clip {
        ClipBy::GlobalNorm(_) => {
            let layer = graph.layer("optimizer");
            let sum = opened(graph, "global norm", Kind::Gradient, layer);
            for (_, gradient) in gradients {
                push_end(graph, Op::SumSquares, vec![*gradient], vec![], vec![sum], layer);
            }
            Some(sum)
        }
        ClipBy::None | ClipBy::Value(_) | ClipBy::Norm(_) => None,
    }
}

/// What the update of one weight reads, and what it writes: the weight, its state and its average.
pub(crate) struct Written {
    pub(crate) reads: Vec<TensorId>,
    pub(crate) writes: Vec<TensorId>,
}

impl Written {
    /// Adds state and average of a weight to the graph, and the norm of its gradient where it is clipped by that.
    pub(crate) fn of(
        graph: &mut Graph,
        weight: TensorId,
        gradient: TensorId,
        optimizer: &Optimizer,
        global: Option<TensorId>,
    ) -> Written {
        let (name, shape, layer) = {
            let tensor = &graph.tensors[weight.0];
            (tensor.name.clone(), tensor.shape.clone(), tensor.layer)
        };
        let mut reads = vec![gradient];
        reads.extend(global);
        if let ClipBy::Norm(_) = optimizer.clip {
            let sum = opened(graph, &format!("{name}/norm"), Kind::Gradient, layer);
            push_end(graph, Op::SumSquares, vec![gradient], vec![], vec![sum], layer);
            reads.push(sum);
        }
        let mut writes = vec![weight];
        for (index, (state, dims)) in optimizer.rule.state(&shape.dims).into_iter().enumerate() {
            let state = format!("{name}/{state}");
            let state = graph.tensor(state, Shape::fixed(dims), DType::F32, Kind::Optimizer, layer);
            writes.push(state);
            let first = optimizer.rule.first_state();
            if index == 0 && first != 0.0 {
                graph.initial.push((state, Initializer::Constant(first)));
            }
        }
        if optimizer.average.is_some() {
            let average = format!("{name}/average");
            writes.push(graph.tensor(average, shape, DType::F32, Kind::Optimizer, layer));
        }
        Written { reads, writes }
    }

    /// Appends the update.
    pub(crate) fn add(self, graph: &mut Graph, optimizer: &Optimizer, found_inf: Option<TensorId>) {
        let layer = graph.tensors[self.writes[0].0].layer;
        let inputs = self.reads.into_iter().chain(found_inf).collect();
        let op = Op::Update(update_of(optimizer, self.writes[0], found_inf.is_some()));
        push_end(graph, op, inputs, vec![], self.writes, layer);
    }
}

/// The update of a weight.
pub(crate) fn update_of(optimizer: &Optimizer, weight: TensorId, guarded: bool) -> Update {
    Update {
        rule: optimizer.rule.clone(),
        clip: match optimizer.clip {
            ClipBy::None => Clip::None,
            ClipBy::Value(limit) => Clip::Value(limit),
            ClipBy::Norm(limit) | ClipBy::GlobalNorm(limit) => Clip::Norm(limit),
        },
        weight_decay: if optimizer.undecayed.contains(&weight) { 0.0 } else { optimizer.weight_decay },
        guarded,
        steps: optimizer.accumulation_steps,
        average: optimizer.average,
    }
}

/// Where several steps make one update, their gradients add up in tensors that stay from step to step.
fn accumulated(
    graph: &mut Graph,
    gradients: &[(TensorId, TensorId)],
    steps: u64,
    found_inf: Option<TensorId>,
) -> Vec<(TensorId, TensorId)> {
    if steps == 1 {
        return gradients.to_vec();
    }
    let mut sums = Vec::with_capacity(gradients.len());
    for (weight, gradient) in gradients {
        let (name, shape, layer) = {
            let tensor = &graph.tensors[weight.0];
            (format!("{}/gradient_accumulator", tensor.name), tensor.shape.clone(), tensor.layer)
        };
        let sum = graph.tensor(name, shape, DType::F32, Kind::Optimizer, layer);
        let op = Op::Accumulate(Accumulate { steps, guarded: found_inf.is_some() });
        let inputs = std::iter::once(*gradient).chain(found_inf).collect();
        push_end(graph, op, inputs, vec![], vec![sum], layer);
        sums.push((*weight, sum));
    }
    sums
}

/// Where values are f16, gradients are scaled lest they vanish, and so may overflow. One `found_inf` for all
/// of them, computed before the first weight changes, lets the step be skipped. Numbers follow backward, so
/// that the smallest is the first gradient that was not finite.
fn scaled(graph: &mut Graph, gradients: &[(TensorId, TensorId)]) -> Option<TensorId> {
    if gradients.is_empty() || !graph.tensors.iter().any(|tensor| tensor.dtype == DType::F16) {
        return None;
    }
    let layer = graph.layer("optimizer");
    let found_inf = opened(graph, "first gradient not finite", Kind::Statistic, layer);
    for (index, (_, gradient)) in gradients.iter().enumerate() {
        push_end(graph, Op::CheckFinite(index + 1), vec![*gradient], vec![], vec![found_inf], layer);
    }
    Some(found_inf)
}

/// One number that is set to 0 after the last micro-batch.
pub(crate) fn opened(graph: &mut Graph, name: &str, kind: Kind, layer: LayerId) -> TensorId {
    let sum = graph.tensor(name, Shape::fixed([1]), DType::F32, kind, layer);
    push_end(graph, Op::Zero, vec![], vec![sum], vec![], layer);
    sum
}

pub(crate) fn push_end(
    graph: &mut Graph,
    op: Op,
    inputs: Vec<TensorId>,
    outputs: Vec<TensorId>,
    updates: Vec<TensorId>,
    layer: LayerId,
) {
    graph.nodes.push(Node { op, inputs, outputs, updates, layer, phase: Phase::End });
}

/// Puts a zero in front for every tensor that micro-batches add to.
fn add_zeros(graph: &mut Graph) {
    let mut seen = vec![false; graph.tensors.len()];
    let mut zeros = Vec::new();
    for node in graph.nodes.iter().filter(|node| node.phase == Phase::Piece) {
        for tensor in &node.updates {
            let sums = match graph.tensors[tensor.0].kind {
                Kind::Gradient | Kind::Statistic => true,
                Kind::Input | Kind::Weight { .. } | Kind::Optimizer | Kind::Flow | Kind::Activation => false,
            };
            if sums && !seen[tensor.0] {
                seen[tensor.0] = true;
                let layer = graph.tensors[tensor.0].layer;
                let (inputs, outputs, updates) = (vec![], vec![*tensor], vec![]);
                zeros.push(Node { op: Op::Zero, inputs, outputs, updates, layer, phase: Phase::Begin });
            }
        }
    }
    zeros.append(&mut graph.nodes);
    graph.nodes = zeros;
}

/// The chain of a single link, where the op is one.
pub(crate) fn single_link(op: &Op) -> Option<&Link> {
    if let Op::Elementwise(Chain { links, .. }) = op
        && let [link] = &links[..]
    {
        return Some(link);
    }
    None
}
