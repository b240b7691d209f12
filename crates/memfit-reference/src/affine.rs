//! Values times and plus numbers that repeat along the last axes.

use super::call::Call;
use super::dense::column_sums;

/// `y = x · scale + offset`.
pub(crate) fn forward(x: &[f64], scale: Option<&[f64]>, offset: Option<&[f64]>) -> Vec<f64> {
    let at = |numbers: Option<&[f64]>, index: usize, without: f64| {
        numbers.map_or(without, |numbers| numbers[index % numbers.len()])
    };
    x.iter().enumerate().map(|(index, x)| x * at(scale, index, 1.0) + at(offset, index, 0.0)).collect()
}

/// `dscale = Σ x · dy`.
pub(crate) fn grad_scale(call: &Call) -> Vec<f64> {
    let products: Vec<f64> = call.input(0).iter().zip(call.input(1)).map(|(x, dy)| x * dy).collect();
    column_sums(&products, call.updates[0].len())
}
