//! What a sample counts in a loss: weights of rows, masks and ignored classes become one weight a sample.

use memfit_ir::{Binary, Chain, Graph, LayerId, LossKind, Mask, Op, Reduction, Shape, ShapeError, TensorId};

/// The loss as its op computes it, and the weights of its samples.
pub(crate) fn of_samples(
    graph: &mut Graph,
    kind: LossKind,
    target: TensorId,
    rows: Option<TensorId>,
    mask: Option<TensorId>,
    layer: LayerId,
) -> Result<(LossKind, Option<TensorId>), ShapeError> {
    let (kind, reduction, ignored) = match kind {
        LossKind::Reduced { kind, reduction, ignore_class } => (*kind, reduction, ignore_class),
        LossKind::MeanSquaredError
        | LossKind::MeanAbsoluteError
        | LossKind::Huber { .. }
        | LossKind::BinaryCrossentropy { .. }
        | LossKind::CategoricalCrossentropy { .. }
        | LossKind::UnitCategoricalCrossentropy { .. }
        | LossKind::SparseCategoricalCrossentropy { .. }
        | LossKind::Distance(_) => (kind, Reduction::Mean, None),
    };
    let mut push = |op: Op, inputs: &[TensorId]| graph.push(op, inputs, layer).map(|made| made[0]);
    let ignored = ignored.map(|class| push(Op::Mask(Mask::OtherClass(class)), &[target])).transpose()?;
    let mut mask = both(&mut push, mask, ignored)?;
    // Where places do not count, the others count as if they were all there are.
    if reduction == Reduction::Mean
        && let Some(of_places) = mask
    {
        mask = Some(push(Op::BalanceWeights, &[of_places])?);
    }
    let weights = within(graph, rows, mask, layer)?;
    let weights = match weights {
        Some(weights) if reduction == Reduction::MeanOfWeights => {
            Some(graph.push(Op::BalanceWeights, &[weights], layer)?[0])
        }
        weights => weights,
    };
    let kind = match reduction {
        Reduction::Sum => LossKind::Reduced { kind: Box::new(kind), reduction, ignore_class: None },
        Reduction::Mean | Reduction::MeanOfWeights => kind,
    };
    debug_assert!(weights.is_none_or(|id| graph.tensors[id.0].shape != Shape::fixed([])));
    Ok((kind, weights))
}

/// Weights of rows or of samples, and none where the mask is 0.
pub(crate) fn within(
    graph: &mut Graph,
    given: Option<TensorId>,
    mask: Option<TensorId>,
    layer: LayerId,
) -> Result<Option<TensorId>, ShapeError> {
    let (Some(given), Some(mask)) = (given, mask) else { return Ok(given.or(mask)) };
    let dims = graph.tensors[mask.0].shape.dims.clone();
    let is_spread = graph.tensors[given.0].shape.dims == dims;
    let mut push = |op: Op, inputs: &[TensorId]| graph.push(op, inputs, layer).map(|made| made[0]);
    let spread = if is_spread {
        given
    } else {
        let column = push(Op::Reshape(vec![1; dims.len()]), &[given])?;
        push(Op::Broadcast(dims), &[column])?
    };
    both(&mut push, Some(spread), Some(mask))
}

/// The product of two weights, where there are two.
fn both(
    push: &mut impl FnMut(Op, &[TensorId]) -> Result<TensorId, ShapeError>,
    a: Option<TensorId>,
    b: Option<TensorId>,
) -> Result<Option<TensorId>, ShapeError> {
    match (a, b) {
        (Some(a), Some(b)) => push(Op::Elementwise(Chain::binary(Binary::Multiply)), &[a, b]).map(Some),
        (a, b) => Ok(a.or(b)),
    }
}
