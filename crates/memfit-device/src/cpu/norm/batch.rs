//! Batch normalisation: statistics over all axes but the last, in double precision.

use memfit_ir::{Chain, Norm, Shape};

use super::super::elementwise::{self, Links};
use super::super::operands::{Floats, Operands};
use super::super::sums::{COLUMNS, Columns, Terms, settle};
use super::super::tasks::{self, BLOCK, Cut, Tasks};
use super::{weight_gradients, weights};

/// Doubles, then floats of workspace that `statistics` wants: two sums and a pivot a channel.
pub(crate) fn statistics_workspace(x: &Shape) -> (usize, usize) {
    let width = Columns::width(x.last());
    (Columns::workspace(width, 2), width)
}

/// Mean and variance of this batch.
pub(crate) fn statistics(operands: &Operands) {
    let x = operands.input_floats(0);
    let (mean, variance) = (operands.output::<f32>(0), operands.output::<f32>(1));
    let (doubles, floats) = statistics_workspace(operands.input_shape(0));
    let mut workspace = operands.workspace();
    let (sums, pivots) = (workspace.take_doubles(doubles), workspace.take_floats(floats));

    let columns = Columns::folded(x.len(), mean.len());
    let count = x.len() as f64 / mean.len() as f64;
    // One pass for both moments, about a value of each channel, so that a mean far from 0 costs no digits.
    // SAFETY: nobody writes yet.
    let pivots = spread(columns, pivots, |channel| [unsafe { x.read(channel..channel + 1) }[0]]);
    columns.sum(operands.threads, &Moments { x, pivots }, sums, |channel, [sum, squares]| {
        let shift = sum / count;
        mean[channel] = (f64::from(pivots[channel]) + shift) as f32;
        variance[channel] = clamp_to_zero(squares / count - shift * shift) as f32;
    });
}

/// Floats of workspace that `forward` wants.
pub(crate) fn forward_workspace(x: &Shape) -> usize {
    3 * Columns::width(x.last())
}

/// Normalises by given statistics: the batch's own, or moving ones.
pub(crate) fn forward(operands: &Operands, norm: &Norm) {
    let (x, y) = (operands.input_floats(0), operands.output_floats(0));
    let given = 1 + usize::from(norm.scale) + usize::from(norm.center);
    let (mean, variance) = (operands.input(given), operands.input(given + 1));
    let coefficients = operands.workspace().take_floats(forward_workspace(operands.input_shape(0)));
    let columns = Columns::folded(x.len(), mean.len());
    normalise(operands, norm, columns, [x, y], mean, variance, weights(operands, norm, 1), coefficients);
}

/// Floats of workspace that `forward_then` wants.
pub(crate) fn then_workspace(x: &Shape, chain: &Chain, threads: usize) -> usize {
    forward_workspace(x) + elementwise::workspace(chain, threads)
}

/// Normalises by given statistics and runs a chain over the result, block by block.
pub(crate) fn forward_then(operands: &Operands, norm: &Norm, chain: &Chain) {
    let (x, y) = (operands.input_floats(0), operands.output_floats(0));
    let given = 1 + usize::from(norm.scale) + usize::from(norm.center);
    let (mean, variance) = (operands.input(given), operands.input(given + 1));
    let mut workspace = operands.workspace();
    let coefficients = workspace.take_floats(forward_workspace(operands.input_shape(0)));
    let values = workspace.take_floats(elementwise::workspace(chain, operands.threads.count()));
    let columns = Columns::folded(x.len(), mean.len());
    let coefficients = normaliser(norm, columns, mean, variance, weights(operands, norm, 1), coefficients);
    let cut = Cut::items(y.len().div_ceil(columns.width.max(1)), columns.width);
    let links = Links { chain, values: Floats::over(values) };
    let work = Then { operands, others: given + 2, columns, cut, x, y, coefficients, links };
    tasks::run(operands.threads, cut.count(), &work);
}

struct Then<'a> {
    operands: &'a Operands<'a>,
    /// The first of the chain's other inputs.
    others: usize,
    columns: Columns,
    cut: Cut,
    x: Floats<'a>,
    y: Floats<'a>,
    coefficients: &'a [f32],
    links: Links<'a>,
}

impl Tasks for Then<'_> {
    #[inline(always)]
    fn task(&self, task: usize, worker: usize) {
        let (mut normal, mut result) = ([0.0; BLOCK], [0.0; BLOCK]);
        let Columns { elements, width, .. } = self.columns;
        for row in self.cut.range(task) {
            for column in (0..width).step_by(BLOCK) {
                let start = row * width + column;
                let count = BLOCK.min(width - column).min(elements.saturating_sub(start));
                let block = start..start + count;
                // SAFETY: the only write to the block is this task's own, behind the reads.
                let x = unsafe { self.x.read(block.clone()) };
                let [mean, scale, beta]: [&[f32]; 3] =
                    std::array::from_fn(|kind| &self.coefficients[kind * width + column..][..count]);
                for (i, to) in normal[..count].iter_mut().enumerate() {
                    *to = (x[i] - mean[i]) * scale[i] + beta[i];
                }
                self.links.run(worker, &mut result[..count], |input| match input.checked_sub(1) {
                    None => &normal[..count],
                    // SAFETY: as for `x`.
                    Some(other) => unsafe {
                        self.operands.input_floats(self.others + other).read(block.clone())
                    },
                });
                // SAFETY: the block belongs to this task, and the slices that read it are gone.
                unsafe { self.y.write(block) }.copy_from_slice(&result[..count]);
            }
        }
    }
}

/// `y = (x − mean) (gamma / √(variance + epsilon)) + beta`.
fn normalise<'a>(
    operands: &Operands,
    norm: &Norm,
    columns: Columns,
    [x, y]: [Floats<'a>; 2],
    mean: &[f32],
    variance: &[f32],
    (gamma, beta): (Option<&[f32]>, Option<&[f32]>),
    coefficients: &mut [f32],
) {
    let coefficients = normaliser(norm, columns, mean, variance, (gamma, beta), coefficients);
    apply(operands, columns, [x], y, coefficients, |[x], [mean, scale, beta]| (x - mean) * scale + beta);
}

/// Mean, scale and offset of every channel.
fn normaliser<'a>(
    norm: &Norm,
    columns: Columns,
    mean: &[f32],
    variance: &[f32],
    (gamma, beta): (Option<&[f32]>, Option<&[f32]>),
    coefficients: &'a mut [f32],
) -> &'a [f32] {
    spread(columns, coefficients, |channel| {
        let inverse = inverse_deviation(variance[channel], norm);
        [mean[channel], (gain(gamma, channel) * inverse) as f32, beta.map_or(0.0, |beta| beta[channel])]
    })
}

/// Floats of workspace that `inference_grad` wants.
pub(crate) fn inference_grad_workspace(dy: &Shape) -> usize {
    Columns::width(dy.last())
}

/// `dx = dy gamma / √(variance + epsilon)`.
pub(crate) fn inference_grad(operands: &Operands, norm: &Norm) {
    let (dy, dx) = (operands.input_floats(0), operands.output_floats(0));
    let gamma = operands.input_if(norm.scale, 1);
    let variance = operands.input(1 + usize::from(norm.scale));
    let coefficients = operands.workspace().take_floats(inference_grad_workspace(operands.input_shape(0)));
    let columns = Columns::folded(dy.len(), variance.len());
    let coefficients = spread(columns, coefficients, |channel| {
        [(gain(gamma, channel) * inverse_deviation(variance[channel], norm)) as f32]
    });
    apply(operands, columns, [dy], dx, coefficients, |[dy], [scale]| dy * scale);
}

/// Doubles, then floats of workspace that `grad` wants: two sums and four coefficients a channel.
pub(crate) fn grad_workspace(dy: &Shape) -> (usize, usize) {
    let width = Columns::width(dy.last());
    (Columns::workspace(width, 2), 4 * width)
}

/// The gradient through normalised values, mean and variance; adds those of gamma and beta.
pub(crate) fn grad(operands: &Operands, norm: &Norm) {
    let (dy, x, dx) = (operands.input_floats(0), operands.input_floats(1), operands.output_floats(0));
    let (mean, variance) = (operands.input::<f32>(2), operands.input::<f32>(3));
    let gamma = operands.input_if(norm.scale, 4);
    let (mut dgamma, mut dbeta) = weight_gradients(operands, norm);
    let (doubles, floats) = grad_workspace(operands.input_shape(0));
    let mut workspace = operands.workspace();
    let (sums, coefficients) = (workspace.take_doubles(doubles), workspace.take_floats(floats));

    let columns = Columns::folded(dy.len(), mean.len());
    let count = dy.len() as f64 / mean.len() as f64;
    let (means, rest) = coefficients.split_at_mut(columns.width);
    means.iter_mut().enumerate().for_each(|(column, value)| *value = mean[column % mean.len()]);
    let terms = Products { dy, x, mean: means };
    columns.sum(operands.threads, &terms, sums, |channel, [sum, product]| {
        let inverse = inverse_deviation(variance[channel], norm);
        if let Some(dgamma) = &mut dgamma {
            settle(&mut dgamma[channel], product * inverse, operands.fresh);
        }
        if let Some(dbeta) = &mut dbeta {
            settle(&mut dbeta[channel], sum, operands.fresh);
        }
        let scale = gain(gamma, channel) * inverse;
        let values = [scale, sum / count, product * inverse * inverse / count];
        for (kind, value) in values.into_iter().enumerate() {
            rest[kind * columns.width + channel] = value as f32;
        }
    });
    for kind in 0..3 {
        let row = &mut rest[kind * columns.width..][..columns.width];
        (mean.len()..columns.width).for_each(|column| row[column] = row[column - mean.len()]);
    }
    apply(operands, columns, [dy, x], dx, coefficients, |[dy, x], [mean, scale, sum, product]| {
        scale * (dy - sum - (x - mean) * product)
    });
}

/// `moving = moving · momentum + value · (1 − momentum)`.
pub(crate) fn moving(operands: &Operands, momentum: f32) {
    for index in 0..2 {
        let values = operands.input::<f32>(index);
        for (moving, value) in operands.update(index).iter_mut().zip(values) {
            *moving = *moving * momentum + value * (1.0 - momentum);
        }
    }
}

fn inverse_deviation(variance: f32, norm: &Norm) -> f64 {
    1.0 / (f64::from(variance) + f64::from(norm.epsilon)).sqrt()
}

fn gain(gamma: Option<&[f32]>, channel: usize) -> f64 {
    gamma.map_or(1.0, |gamma| f64::from(gamma[channel]))
}

/// A difference of squares may fall a rounding below 0; NaN stays.
fn clamp_to_zero(value: f64) -> f64 {
    if value < 0.0 { 0.0 } else { value }
}

/// Writes the coefficients of every channel as rows over the folded width.
fn spread<const N: usize>(
    columns: Columns,
    to: &mut [f32],
    coefficients: impl Fn(usize) -> [f32; N],
) -> &[f32] {
    for channel in 0..columns.columns {
        for (kind, value) in coefficients(channel).into_iter().enumerate() {
            let row = &mut to[kind * columns.width..][..columns.width];
            row.iter_mut().skip(channel).step_by(columns.columns).for_each(|to| *to = value);
        }
    }
    to
}

struct Moments<'a> {
    x: Floats<'a>,
    pivots: &'a [f32],
}

impl Terms<2> for Moments<'_> {
    #[inline(always)]
    fn add(&self, element: usize, column: usize, count: usize, sums: &mut [[f64; COLUMNS]; 2]) {
        // SAFETY: nobody writes while sums are taken.
        let x = unsafe { self.x.read(element..element + count) };
        let pivots = &self.pivots[column..column + count];
        let [sum, squares] = sums.each_mut().map(|sums| &mut sums[..count]);
        for i in 0..count {
            let distance = f64::from(x[i]) - f64::from(pivots[i]);
            sum[i] += distance;
            squares[i] += distance * distance;
        }
    }
}

struct Products<'a> {
    dy: Floats<'a>,
    x: Floats<'a>,
    mean: &'a [f32],
}

impl Terms<2> for Products<'_> {
    #[inline(always)]
    fn add(&self, element: usize, column: usize, count: usize, sums: &mut [[f64; COLUMNS]; 2]) {
        let part = element..element + count;
        // SAFETY: nobody writes while sums are taken.
        let (dy, x) = unsafe { (self.dy.read(part.clone()), self.x.read(part)) };
        let mean = &self.mean[column..column + count];
        let [sum, product] = sums.each_mut().map(|sums| &mut sums[..count]);
        for i in 0..count {
            sum[i] += f64::from(dy[i]);
            product[i] += f64::from(dy[i]) * f64::from(x[i] - mean[i]);
        }
    }
}

/// Writes a function of the inputs and of the coefficients of their channel.
fn apply<'a, const I: usize, const N: usize>(
    operands: &Operands,
    columns: Columns,
    inputs: [Floats<'a>; I],
    output: Floats<'a>,
    coefficients: &'a [f32],
    function: impl Fn([f32; I], [f32; N]) -> f32 + Sync,
) {
    let cut = Cut::items(output.len().div_ceil(columns.width.max(1)), columns.width);
    let work = Apply { columns, cut, inputs, output, coefficients, function };
    tasks::run(operands.threads, cut.count(), &work);
}

struct Apply<'a, F, const I: usize, const N: usize> {
    columns: Columns,
    cut: Cut,
    inputs: [Floats<'a>; I],
    output: Floats<'a>,
    coefficients: &'a [f32],
    function: F,
}

impl<F: Fn([f32; I], [f32; N]) -> f32 + Sync, const I: usize, const N: usize> Tasks for Apply<'_, F, I, N> {
    #[inline(always)]
    fn task(&self, task: usize, _worker: usize) {
        let mut buffer = [0.0; BLOCK];
        let Columns { elements, width, .. } = self.columns;
        for row in self.cut.range(task) {
            for column in (0..width).step_by(BLOCK) {
                let start = row * width + column;
                let count = BLOCK.min(width - column).min(elements.saturating_sub(start));
                let block = start..start + count;
                // SAFETY: the only write to the block is this task's own, behind the reads.
                let inputs = self.inputs.map(|input| unsafe { input.read(block.clone()) });
                let coefficients: [&[f32]; N] =
                    std::array::from_fn(|kind| &self.coefficients[kind * width + column..][..count]);
                for (i, to) in buffer[..count].iter_mut().enumerate() {
                    *to = (self.function)(inputs.map(|input| input[i]), coefficients.map(|kind| kind[i]));
                }
                // SAFETY: the block belongs to this task, and the slices that read it are gone.
                unsafe { self.output.write(block) }.copy_from_slice(&buffer[..count]);
            }
        }
    }
}
