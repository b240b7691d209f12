//! EinsumDense, as far as its equation is a product over the last axes, and the projections of attention.

use memfit_ir::{Op, TensorId};

use super::activations;
use crate::error::FormatError;
use crate::site::Site;

/// Names of a projection's weights.
pub(super) struct Names {
    pub kernel: &'static str,
    pub bias: &'static str,
}

const OWN: Names = Names { kernel: "kernel", bias: "bias" };

/// What a supported equation says.
#[derive(Debug, PartialEq)]
struct Equation<'a> {
    /// How many of the input's last axes are summed over.
    summed: usize,
    /// The axes that the kernel adds after those that stay.
    added: &'a str,
}

pub(crate) fn dense(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let settings = site.settings;
    let equation = settings.text("equation").unwrap_or_default();
    let Some(Equation { summed, added }) = read(equation, site.dims(x).len()) else {
        let supported = "a product over the last axes, as in `abc,cd->abd` or `abcd,cde->abe`";
        return Err(site.unsupported("equation", equation, supported));
    };
    let listed = settings.integers("output_shape").unwrap_or_default();
    let last = listed.len().checked_sub(added.len()).map(|first| &listed[first..]);
    let sizes: Option<Vec<usize>> =
        last.and_then(|sizes| sizes.iter().map(|size| usize::try_from(*size).ok()).collect());
    let Some(sizes) = sizes else {
        let supported = format!("sizes for the axes `{added}`");
        return Err(site.unsupported("output_shape", format!("{listed:?}"), &supported));
    };
    let bias = settings.text("bias_axes");
    if bias.is_some_and(|axes| axes != added) {
        return Err(site.unsupported("bias_axes", bias.unwrap_or_default(), &format!("`{added}`, or null")));
    }
    let y = project(site, &OWN, x, summed, &sizes, bias.is_some())?;
    activations::argument(site, y)
}

/// A product over the last `summed` axes, which gives new ones in their place.
pub(super) fn project(
    site: &mut Site<'_>,
    names: &Names,
    x: TensorId,
    summed: usize,
    sizes: &[usize],
    bias: bool,
) -> Result<TensorId, FormatError> {
    let dims = site.dims(x).to_vec();
    let (kept, inputs) = dims.split_at(dims.len() - summed);
    let with = |more: &[usize]| [kept, more].concat();
    let (width, outputs) = (inputs.iter().product(), sizes.iter().product());
    let settings = site.settings;
    let kernel = site.weight_begun_as(
        names.kernel,
        &[inputs, sizes].concat(),
        &[width, outputs],
        settings.initializer("kernel_initializer"),
    )?;
    let x = if summed == 1 { x } else { site.push(Op::Reshape(with(&[width])), &[x])? };
    let mut operands = vec![x, kernel];
    if bias {
        operands.push(site.weight(names.bias, sizes, settings.initializer("bias_initializer"))?);
    }
    let y = site.push(Op::Dense, &operands)?;
    if sizes.len() == 1 { Ok(y) } else { site.push(Op::Reshape(with(sizes)), &[y]) }
}

/// Reads the equation `kept summed, summed added -> kept added`. The input has `axes` axes after the batch;
/// the batch is the first kept axis. An ellipsis stands for kept axes.
fn read(equation: &str, axes: usize) -> Option<Equation<'_>> {
    let (operands, output) = equation.split_once("->")?;
    let (input, kernel) = operands.split_once(',')?;
    let (input, output) = match (input.strip_prefix("..."), output.strip_prefix("...")) {
        (Some(input), Some(output)) if input.len() <= axes => (input, output),
        (None, None) if input.len() == axes + 1 => (input, output),
        _ => return None,
    };
    let kept = input.bytes().zip(output.bytes()).take_while(|(input, output)| input == output).count();
    let (summed, added) = (input.get(kept..)?, output.get(kept..)?);
    let mut letters: Vec<char> = input.chars().chain(added.chars()).collect();
    letters.sort_unstable();
    let plain =
        letters.iter().all(char::is_ascii_alphabetic) && letters.windows(2).all(|pair| pair[0] != pair[1]);
    let batch = equation.starts_with("...") || 0 < kept;
    let fits =
        plain && batch && !summed.is_empty() && !added.is_empty() && kernel == [summed, added].concat();
    fits.then_some(Equation { summed: summed.len(), added })
}

#[cfg(test)]
mod tests {
    use super::{Equation, read};

    #[test]
    fn equations_over_the_last_axes_are_read_and_others_are_not() {
        for (equation, axes, expected) in [
            ("ab,bc->ac", 1, Some((1, "c"))),
            ("abc,cd->abd", 2, Some((1, "d"))),
            ("abc,cde->abde", 2, Some((1, "de"))),
            ("abcd,cde->abe", 3, Some((2, "e"))),
            ("...x,xy->...y", 3, Some((1, "y"))),
            ("...ab,abc->...c", 2, Some((2, "c"))),
            ("...ab,abc->...c", 1, None),
            ("abc,cd->abd", 3, None),
            ("abc,bd->adc", 2, None),
            ("abc,dc->abd", 2, None),
            ("ab,bc->ca", 1, None),
            ("abc,bcd->abd", 2, None),
            ("ab,bb->ab", 1, None),
            ("ab,abc->c", 1, None),
            ("ab,bc", 1, None),
            ("", 1, None),
        ] {
            let expected = expected.map(|(summed, added)| Equation { summed, added });
            assert_eq!(read(equation, axes), expected, "{equation}");
        }
    }
}
