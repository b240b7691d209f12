//! Attention layers: projections around one fused op, which never stores a score for every query and key.

use memfit_ir::{Attention, AttentionDropout, Binary, Chain, Op, TensorId};

use super::einsum::{self, Names};
use super::noise;
use crate::error::FormatError;
use crate::site::Site;

const QUERY: Names = Names { kernel: "query/kernel", bias: "query/bias" };
const KEY: Names = Names { kernel: "key/kernel", bias: "key/bias" };
const VALUE: Names = Names { kernel: "value/kernel", bias: "value/bias" };
const OUTPUT: Names = Names { kernel: "attention_output/kernel", bias: "attention_output/bias" };

/// Heads and their sizes.
struct Heads {
    queries: usize,
    keys: usize,
    key_dim: usize,
    value_dim: usize,
}

pub(crate) fn multi_head(site: &mut Site<'_>, operands: &[TensorId]) -> Result<TensorId, FormatError> {
    let axes = site.settings.integers("attention_axes").unwrap_or(&[1]);
    if !matches!(axes, [1 | -2]) {
        return Err(site.unsupported("attention_axes", format!("{axes:?}"), "1, the axis of steps"));
    }
    let (heads, key_dim) = (site.settings.size("num_heads"), site.settings.size("key_dim"));
    let value_dim = site.settings.maybe_size("value_dim").unwrap_or(key_dim);
    let output = site.settings.integers("output_shape").map(<[i64]>::to_vec);
    projected(site, operands, &Heads { queries: heads, keys: heads, key_dim, value_dim }, output)
}

pub(crate) fn grouped_query(site: &mut Site<'_>, operands: &[TensorId]) -> Result<TensorId, FormatError> {
    let (queries, keys) = (site.settings.size("num_query_heads"), site.settings.size("num_key_value_heads"));
    if !queries.is_multiple_of(keys) {
        let supported = format!("a divisor of {queries}, the number of query heads");
        return Err(site.unsupported("num_key_value_heads", keys, &supported));
    }
    let width = site.settings.size("head_dim");
    projected(site, operands, &Heads { queries, keys, key_dim: width, value_dim: width }, None)
}

/// One head, and nothing that learns.
pub(crate) fn dot_product(site: &mut Site<'_>, operands: &[TensorId]) -> Result<TensorId, FormatError> {
    let mut heads = Vec::with_capacity(3);
    for tensor in in_order(operands) {
        let [steps, features] = site.sequence(tensor)?;
        heads.push(site.push(Op::Reshape(vec![steps, 1, features]), &[tensor])?);
    }
    let value_mask = if operands.len() == 1 { site.mask(0) } else { site.mask(1) };
    let y = attend(site, &heads, 1.0, [None, value_mask])?;
    let dims = site.dims(y).to_vec();
    let y = site.push(Op::Reshape(vec![dims[0], dims[2]]), &[y])?;
    match site.mask(0) {
        Some(mask) => site.masked(y, mask),
        None => Ok(y),
    }
}

fn projected(
    site: &mut Site<'_>,
    operands: &[TensorId],
    heads: &Heads,
    output: Option<Vec<i64>>,
) -> Result<TensorId, FormatError> {
    let [query, key, value] = in_order(operands);
    let [_, features] = site.sequence(query)?;
    for tensor in [key, value] {
        site.sequence(tensor)?;
    }
    let bias = site.settings.flag("use_bias");
    let q = einsum::project(site, &QUERY, query, 1, &[heads.queries, heads.key_dim], bias)?;
    let k = einsum::project(site, &KEY, key, 1, &[heads.keys, heads.key_dim], bias)?;
    let v = einsum::project(site, &VALUE, value, 1, &[heads.keys, heads.value_dim], bias)?;
    let scale = 1.0 / (heads.key_dim as f32).sqrt();
    let masks = key_and_query_masks(site, operands)?;
    let y = attend(site, &[q, k, v], scale, masks)?;
    let output = match output {
        None => vec![features],
        Some(listed) => {
            let known: Option<Vec<usize>> = listed.iter().map(|size| usize::try_from(*size).ok()).collect();
            known.ok_or_else(|| site.unsupported("output_shape", format!("{listed:?}"), "known sizes"))?
        }
    };
    einsum::project(site, &OUTPUT, y, 2, &output, bias)
}

/// The mask of queries, and that of keys: a key counts where its value and itself do.
fn key_and_query_masks(
    site: &mut Site<'_>,
    operands: &[TensorId],
) -> Result<[Option<TensorId>; 2], FormatError> {
    let value = if operands.len() == 1 { site.mask(0) } else { site.mask(1) };
    let key = match (value, site.mask(2)) {
        (Some(value), Some(key)) if value != key => {
            Some(site.push(Op::Elementwise(Chain::binary(Binary::Multiply)), &[value, key])?)
        }
        (value, key) => value.or(key),
    };
    Ok([site.mask(0), key])
}

/// Weighs values; masks are those of queries and of keys.
fn attend(
    site: &mut Site<'_>,
    heads: &[TensorId],
    scale: f32,
    masks: [Option<TensorId>; 2],
) -> Result<TensorId, FormatError> {
    let rate = site.settings.number("dropout") as f32;
    let seed = noise::seed(site, site.settings.seed("seed"));
    let dropout = (rate > 0.0 && site.training).then_some(AttentionDropout { rate, seed });
    let causal = site.settings.flag("use_causal_mask");
    let [query_mask, key_mask] = masks.map(|mask| mask.is_some());
    let operands: Vec<TensorId> = heads.iter().copied().chain(masks.into_iter().flatten()).collect();
    site.push(Op::Attention(Attention { scale, causal, query_mask, key_mask, dropout }), &operands)
}

/// Query, key and value, from what Keras is called with: query, value, and a key where it is not the value. A query
/// alone looks at itself.
fn in_order(operands: &[TensorId]) -> [TensorId; 3] {
    match *operands {
        [query, value, key] => [query, key, value],
        [query, value] => [query, value, value],
        _ => [operands[0]; 3],
    }
}
