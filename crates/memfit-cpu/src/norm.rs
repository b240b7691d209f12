//! What batch and layer normalisation share.

use memfit_ir::Norm;
use memfit_ir::Operand::{Beta, DBeta, DGamma, Gamma};

use super::operands::Operands;

/// Gamma and beta, where the normalisation has them.
pub(super) fn weights<'a>(operands: &Operands<'a>) -> (Option<&'a [f32]>, Option<&'a [f32]>) {
    (operands.input_if_given(Gamma), operands.input_if_given(Beta))
}

/// The gradients of gamma and beta, where the node has them: both or neither may be left out of a frozen
/// layer.
pub(super) fn weight_gradients<'a>(
    operands: &Operands<'a>,
    norm: &Norm,
) -> (Option<&'a mut [f32]>, Option<&'a mut [f32]>) {
    let updates = operands.node.updates.len();
    let wanted = usize::from(norm.scale) + usize::from(norm.center);
    assert!(
        updates == 0 || updates == wanted,
        "a normalisation has the gradients of all its weights or of none"
    );
    (operands.update_if_given(DGamma), operands.update_if_given(DBeta))
}
