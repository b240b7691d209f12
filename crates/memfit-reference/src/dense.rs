//! Dense layers and the sums for their biases.

use super::call::Call;

/// `y = x · kernel + bias` over the last axis.
pub(crate) fn forward(call: &Call) -> Vec<f64> {
    let (x, kernel, bias) = (call.input(0), call.input(1), call.inputs.get(2));
    let wide = call.last(0);
    let units = kernel.len() / wide;
    let mut y = Vec::new();
    for row in x.chunks(wide) {
        for unit in 0..units {
            let sum: f64 = (0..wide).map(|i| row[i] * kernel[i * units + unit]).sum();
            y.push(sum + bias.map_or(0.0, |bias| bias[unit]));
        }
    }
    y
}

/// `dx = dy · kernelᵀ`.
pub(crate) fn grad_input(call: &Call) -> Vec<f64> {
    let (dy, kernel) = (call.input(0), call.input(1));
    let units = call.last(0);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    dy.chunks(units).flat_map(|dy| kernel.chunks(units).map(move |line| dot(dy, line))).collect()
}

/// `dkernel = xᵀ · dy`.
pub(crate) fn grad_kernel(call: &Call) -> Vec<f64> {
    let (wide, units) = (call.last(0), call.last(1));
    let mut dkernel = vec![0.0; wide * units];
    for (x, dy) in call.input(0).chunks(wide).zip(call.input(1).chunks(units)) {
        for i in 0..wide {
            for unit in 0..units {
                dkernel[i * units + unit] += x[i] * dy[unit];
            }
        }
    }
    dkernel
}

/// The sum over every axis but the last, of this length.
pub(crate) fn column_sums(values: &[f64], columns: usize) -> Vec<f64> {
    let mut sums = vec![0.0; columns];
    for (index, value) in values.iter().enumerate() {
        sums[index % columns] += value;
    }
    sums
}
