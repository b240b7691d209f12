//! Gradients as Keras's TensorFlow backend has them, where memfit's differ by intent: see docs/differences.md.

use memfit_ir::Operand::{Dy, Ids};
use memfit_ir::{Chain, DType, Graph, Kind, LossKind, Op, TensorId, Unary, UpdateRule};

use crate::optimizer::{ClipBy, Optimizer};
use crate::training::GradError;

/// Sums of squared gradients of an embedding, which one state of its optimizer follows.
pub(crate) struct SquareSums {
    pub(crate) weight: TensorId,
    pub(crate) squares: TensorId,
    /// Which state of the rule.
    pub(crate) state: usize,
    /// See [`Op::CorrectSquares`].
    pub(crate) factor: f32,
}

/// A cross-entropy of logits with the gradient that takes targets to sum to 1.
pub(crate) fn of_units(kind: LossKind) -> LossKind {
    match kind {
        LossKind::CategoricalCrossentropy { from_logits: true, label_smoothing } => {
            LossKind::UnitCategoricalCrossentropy { label_smoothing }
        }
        LossKind::Reduced { kind, reduction, ignore_class } => {
            LossKind::Reduced { kind: Box::new(of_units(*kind)), reduction, ignore_class }
        }
        LossKind::CategoricalCrossentropy { from_logits: false, .. }
        | LossKind::UnitCategoricalCrossentropy { .. }
        | LossKind::MeanSquaredError
        | LossKind::MeanAbsoluteError
        | LossKind::Huber { .. }
        | LossKind::BinaryCrossentropy { .. }
        | LossKind::SparseCategoricalCrossentropy { .. }
        | LossKind::Distance(_) => kind,
    }
}

/// Adds up the squares of each position's gradient for every embedding whose gradient nothing else adds to: TensorFlow keeps such a
/// gradient as one row for each position, and its optimizers square those rows.
pub(crate) fn sums_of_squares(
    graph: &mut Graph,
    gradients: &[(TensorId, TensorId)],
    optimizer: &Optimizer,
) -> Result<Vec<SquareSums>, GradError> {
    let mut found = Vec::new();
    // Gradients of several steps add up in one dense sum, in TensorFlow too.
    if optimizer.accumulation_steps != 1 {
        return Ok(found);
    }
    for (weight, gradient) in gradients {
        let nodes: Vec<usize> =
            (0..graph.nodes.len()).filter(|index| graph.nodes[*index].updates.contains(gradient)).collect();
        let is_sparse = nodes.iter().all(|index| graph.nodes[*index].op == Op::EmbeddingGrad)
            && !graph.penalties.iter().any(|(penalised, _)| penalised == weight);
        if nodes.is_empty() || !is_sparse {
            continue;
        }
        let Some((state, factor)) = followed(graph, optimizer)? else { continue };
        let (name, shape, layer) = {
            let tensor = &graph.tensors[gradient.0];
            (format!("{} squared", tensor.name), tensor.shape.clone(), tensor.layer)
        };
        let squares = graph.tensor(name, shape, DType::F32, Kind::Gradient, layer);
        for index in nodes {
            let (ids, dy) = (graph.nodes[index].input(Ids), graph.nodes[index].input(Dy));
            let passed = "operands come from a node that passed the shape rules";
            let square = Op::Elementwise(Chain::unary(Unary::Square));
            let squared = graph.push_updating(square, &[dy], &[], Kind::Flow, layer).expect(passed)[0];
            graph
                .push_updating(Op::EmbeddingGrad, &[ids, squared], &[squares], Kind::Flow, layer)
                .expect(passed);
        }
        found.push(SquareSums { weight: *weight, squares, state, factor });
    }
    Ok(found)
}

/// The state that follows squared gradients, and by how much it is corrected before the update; none where a rule has no squares.
fn followed(graph: &Graph, optimizer: &Optimizer) -> Result<Option<(usize, f32)>, GradError> {
    let mean = |state: usize, share: f32| (state, (1.0 - share) / share);
    let (state, factor) = match optimizer.rule {
        UpdateRule::Sgd { .. } | UpdateRule::Lion { .. } => return Ok(None),
        UpdateRule::Adam { beta_2, .. }
        | UpdateRule::Nadam { beta_2, .. }
        | UpdateRule::Lamb { beta_2, .. } => mean(1, beta_2),
        UpdateRule::Rmsprop { rho, .. } => mean(0, rho),
        UpdateRule::Adagrad { .. } => (0, 1.0),
        UpdateRule::Adadelta { .. } => return Err(GradError::UnlikeTensorflow("Adadelta")),
        UpdateRule::Adamax { .. } => return Err(GradError::UnlikeTensorflow("Adamax")),
        UpdateRule::Ftrl { .. } => return Err(GradError::UnlikeTensorflow("Ftrl")),
        UpdateRule::Adafactor { .. } => return Err(GradError::UnlikeTensorflow("Adafactor")),
    };
    if optimizer.clip != ClipBy::None {
        return Err(GradError::UnlikeTensorflow("clipped gradients"));
    }
    if graph.tensors.iter().any(|tensor| tensor.dtype == DType::F16) {
        return Err(GradError::UnlikeTensorflow("mixed_float16"));
    }
    Ok(Some((state, factor)))
}
