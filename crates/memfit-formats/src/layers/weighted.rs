//! Layers that are one weight and a product: Dense and Embedding.

use memfit_ir::{Op, TensorId};

use super::activations;
use crate::error::FormatError;
use crate::site::Site;

pub(crate) fn dense(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let Some(width) = site.dims(x).last().copied() else {
        return Err(site.mismatch("at least one axis after the batch", x));
    };
    let units = site.settings.size("units");
    let kernel = site.weight("kernel", &[width, units], site.settings.initializer("kernel_initializer"))?;
    let mut operands = vec![x, kernel];
    operands.extend(bias(site, units)?);
    let y = site.push(Op::Dense, &operands)?;
    activations::argument(site, y)
}

pub(crate) fn embedding(site: &mut Site<'_>, ids: TensorId) -> Result<TensorId, FormatError> {
    let dims = [site.settings.size("input_dim"), site.settings.size("output_dim")];
    let table = site.weight("embeddings", &dims, site.settings.initializer("embeddings_initializer"))?;
    site.push(Op::Embedding, &[ids, table])
}

/// A product with the transposed table of an Embedding, which thereby learns from both ends of the network.
pub(crate) fn tied_dense(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let embedding = site.settings.text("embedding").unwrap_or_default().to_owned();
    let beside = site.path.rsplit_once('/').map_or(String::new(), |(model, _)| format!("{model}/"));
    let name = format!("{beside}{embedding}/embeddings");
    let Some(table) = site.graph.tensors.iter().position(|tensor| tensor.name == name) else {
        return Err(site.unsupported("embedding", &embedding, "the name of an Embedding before this layer"));
    };
    let table = TensorId(table);
    if site.dims(table).last() != site.dims(x).last() {
        let width = site.dims(table).last().copied().unwrap_or(0);
        return Err(site.mismatch(&format!("a last axis of {width}, as the embedding gives"), x));
    }
    site.push(Op::DenseGradInput, &[x, table])
}

/// The bias, where the layer uses one.
pub(super) fn bias(site: &mut Site<'_>, width: usize) -> Result<Option<TensorId>, FormatError> {
    if !site.settings.flag("use_bias") {
        return Ok(None);
    }
    site.weight("bias", &[width], site.settings.initializer("bias_initializer")).map(Some)
}
