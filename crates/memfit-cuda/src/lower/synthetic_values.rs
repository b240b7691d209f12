//! Synthetic rows, drawn on the device: the same numbers as the host draws.

use memfit_ir::{SyntheticValues, Tensor, Values};

use crate::call::{THREADS, blocks_for, long};
use crate::work::{Address, Argument, Kernel, Lowered, Source, c_type};

const TEXT: &str = include_str!("../kernels/synthetic_values.cu");

/// Draws `rows` rows of a tensor, the first of which is row `row_start` of the micro-batch.
pub(crate) fn synthetic_values(
    tensor: &Tensor,
    synthetic_values: SyntheticValues,
    rows: usize,
    row_start: usize,
) -> Lowered {
    let (entry, low, high) = match synthetic_values.values {
        Values::Uniform { low, high } => {
            ("uniform", low.to_bits().cast_signed(), high.to_bits().cast_signed())
        }
        Values::Integers { low, high } => ("integers", low, high),
        Values::OneHot => ("one_hot", tensor.shape.last().max(1) as i64, 0),
    };
    let count = tensor.shape.elements(rows);
    Kernel {
        source: Source { text: TEXT, defines: format!("typedef {} T;\n", c_type(tensor.dtype)) },
        entry,
        blocks: blocks_for(count.div_ceil(4)),
        threads: THREADS,
        arguments: vec![
            Argument::At(Address::operand(0)),
            Argument::Context,
            long(count),
            long(tensor.shape.elements_per_row()),
            long(row_start),
            Argument::Long(synthetic_values.seed.cast_signed()),
            Argument::Long(low),
            Argument::Long(high),
        ],
    }
    .into()
}
