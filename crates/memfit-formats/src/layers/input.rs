//! The layer that is fed.

use memfit_ir::{DType, Kind, Shape, TensorId};

use crate::error::{Fault, FormatError};
use crate::site::Site;

/// The tensor that an input layer is fed by. A batch size in the configuration is ignored: the job gives it.
/// Whole numbers that no layer looks up are fed as floats.
pub(crate) fn input(site: &mut Site<'_>, looked_up: impl FnOnce() -> bool) -> Result<TensorId, FormatError> {
    let (argument, dims) = match (site.settings.integers("shape"), site.settings.integers("batch_shape")) {
        (Some(shape), _) => ("shape", shape),
        (None, Some([_, shape @ ..])) => ("batch_shape", shape),
        (None, Some([]) | None) => {
            return Err(FormatError::Argument {
                layer: site.path.to_owned(),
                class: site.class,
                argument: "shape".to_owned(),
                fault: Fault::Missing { expected: "the dimensions after the batch".to_owned() },
            });
        }
    };
    let sizes: Option<Vec<usize>> = dims.iter().map(|size| usize::try_from(*size).ok()).collect();
    let Some(sizes) = sizes else {
        let supported = "a number for every dimension but the batch";
        return Err(site.unsupported(argument, format!("{dims:?}"), supported));
    };
    let shape = Shape::rows(sizes);
    site.require_size(&shape)?;
    let is_float = site.settings.choice("dtype").contains("float");
    let dtype = if is_float || !looked_up() { DType::F32 } else { DType::I32 };
    Ok(site.graph.tensor(site.path, shape, dtype, Kind::Input, site.layer))
}
