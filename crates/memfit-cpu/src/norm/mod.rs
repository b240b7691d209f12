//! Normalisation: over the batch, one statistic a channel, or over the last axes, one a position.

pub(crate) mod batch;
pub(crate) mod layer;

use memfit_ir::Norm;

use super::operands::Operands;

/// The weights of a normalisation, where it has them: they come after input `first`.
fn weights<'a>(operands: &Operands<'a>, norm: &Norm, first: usize) -> (Option<&'a [f32]>, Option<&'a [f32]>) {
    let gamma = operands.input_if(norm.scale, first);
    (gamma, operands.input_if(norm.center, first + usize::from(norm.scale)))
}

/// The gradients of gamma and beta, where the node has them: both or neither may be left out of a frozen
/// layer.
fn weight_gradients<'a>(
    operands: &Operands<'a>,
    norm: &Norm,
) -> (Option<&'a mut [f32]>, Option<&'a mut [f32]>) {
    let updates = operands.node.updates.len();
    let wanted = usize::from(norm.scale) + usize::from(norm.center);
    assert!(
        updates == 0 || updates == wanted,
        "a normalisation has the gradients of all its weights or of none"
    );
    let dgamma = (updates > 0 && norm.scale).then(|| operands.update(0));
    let dbeta = (updates > 0 && norm.center).then(|| operands.update(usize::from(norm.scale)));
    (dgamma, dbeta)
}
