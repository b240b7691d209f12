//! Batch normalisation: statistics over all axes but the last, in double precision.

use memfit_ir::Operand::{Beta, Dx, Dy, Gamma, Mean, MovingMean, MovingVariance, Other, Variance, X, Y};
use memfit_ir::{Binary, Chain, Link, Norm, Operand, Shape, Unary};

use super::elementwise::{self, Links};
use super::floats::Floats;
use super::lanes::{Lanes, load, store};
use super::norm::{weight_gradients, weights};
use super::operands::Operands;
use super::optimizer::is_forbidden;
use super::sums::{Columns, Terms, add_or_overwrite};
use super::tasks::{self, BLOCK, Cut, Tasks};

/// Rows whose terms are added before totals in double precision take them.
const ROWS_NEAR: usize = 8;

/// Doubles, then floats of workspace that `statistics` needs: two sums and a pivot a channel.
pub(crate) fn statistics_workspace(x: &Shape) -> (usize, usize) {
    let width = Columns::width(x.last());
    (Columns::workspace(width, 2), width)
}

/// Mean and variance of this batch.
pub(crate) fn statistics(operands: &Operands) {
    let x = operands.input_floats(X);
    let (mean, variance) = (operands.output::<f32>(Mean), operands.output::<f32>(Variance));
    let (doubles, floats) = statistics_workspace(operands.shape(X));
    let mut workspace = operands.workspace();
    let (sums, pivots) = (workspace.take_doubles(doubles), workspace.take_floats(floats));

    let columns = Columns::folded(x.len(), mean.len());
    let count = x.len() as f64 / mean.len() as f64;
    // One pass for both moments, about a value of each channel, so that a mean far from 0 costs no digits.
    let pivots = spread(columns, pivots, |channel| {
        // SAFETY: the input is not written before the statistics are known.
        [unsafe { x.with(channel..channel + 1, |x| x[0]) }]
    });
    let finish = |channel: usize, [sum, squares]: [f64; 2]| {
        let shift = sum / count;
        mean[channel] = (f64::from(pivots[channel]) + shift) as f32;
        variance[channel] = clamp_to_zero(squares / count - shift * shift) as f32;
    };
    match x.is_half() {
        true => columns.sum(operands.threads, &Moments::<true> { x, pivots }, sums, finish),
        false => columns.sum(operands.threads, &Moments::<false> { x, pivots }, sums, finish),
    }
}

/// Floats of workspace that `forward` needs.
pub(crate) fn forward_workspace(x: &Shape) -> usize {
    3 * Columns::width(x.last())
}

/// Normalises by given statistics: the batch's own, or moving ones.
pub(crate) fn forward(operands: &Operands, norm: &Norm, statistics: [Operand; 2]) {
    let (x, y) = (operands.input_floats(X), operands.output_floats(Y));
    let [mean, variance] = statistics.map(|statistic| operands.input(statistic));
    let coefficients = operands.workspace().take_floats(forward_workspace(operands.shape(X)));
    let columns = Columns::folded(x.len(), mean.len());
    normalise(operands, norm, columns, [x, y], mean, variance, weights(operands), coefficients);
}

/// Floats of workspace that `forward_then` needs.
pub(crate) fn then_workspace(x: &Shape, chain: &Chain, half: bool, threads: usize) -> usize {
    forward_workspace(x) + elementwise::workspace(chain, half, threads)
}

/// Normalises by given statistics and runs a chain over the result, block by block.
pub(crate) fn forward_then(operands: &Operands, norm: &Norm, chain: &Chain) {
    let (x, y) = (operands.input_floats(X), operands.output_floats(Y));
    let (mean, variance) = (operands.input(Mean), operands.input(Variance));
    let mut workspace = operands.workspace();
    let coefficients = workspace.take_floats(forward_workspace(operands.shape(X)));
    let values = workspace.take_floats(elementwise::workspace(chain, x.is_half(), operands.threads.count()));
    let columns = Columns::folded(x.len(), mean.len());
    let coefficients = normaliser(norm, columns, mean, variance, weights(operands), coefficients);
    match clamp(chain) {
        Some((bounds, false)) => return apply(operands, columns, [x], y, coefficients, bounds),
        Some((bounds, true)) => {
            return apply(operands, columns, [x, operands.input_floats(Other)], y, coefficients, bounds);
        }
        None => {}
    }
    let cut = Cut::items(y.len().div_ceil(columns.width.max(1)), columns.width);
    let links = Links { chain, half: x.is_half(), values: Floats::over(values) };
    let work = Then { operands, columns, cut, x, y, coefficients, links };
    tasks::run(operands.threads, cut.count(), &work);
}

struct Then<'a> {
    operands: &'a Operands<'a>,
    columns: Columns,
    cut: Cut,
    x: Floats<'a>,
    y: Floats<'a>,
    coefficients: &'a [f32],
    links: Links<'a>,
}

impl Tasks for Then<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, worker: usize) {
        let (mut wide, mut normal, mut result) = ([0.0; BLOCK], [0.0; BLOCK], [0.0; BLOCK]);
        let Columns { elements, width, .. } = self.columns;
        for row in self.cut.range(task) {
            for column in (0..width).step_by(BLOCK) {
                let start = row * width + column;
                let count = BLOCK.min(width - column).min(elements.saturating_sub(start));
                let block = start..start + count;
                // SAFETY: the only write to the block is this task's own, after the reads.
                let x = unsafe { self.x.load(block.clone(), &mut wide) };
                let kind = |kind: usize| &self.coefficients[kind * width + column..][..count];
                let (coefficients, to) = ([kind(0), kind(1), kind(2)], normal.as_mut_ptr());
                // SAFETY: both hold the block.
                unsafe { combine::<L, 1, 3>(&Normalised, [x.as_ptr()], coefficients, to, count, false) };
                let normal = &normal[..count];
                let other = |input: usize| self.operands.input_floats((Other, input - 1));
                let read = |input: usize| match input {
                    0 => normal.as_ptr(),
                    _ => other(input).place(&block).cast_const(),
                };
                let load = |input: usize, to: &mut [f32]| match input {
                    0 => to.copy_from_slice(normal),
                    // SAFETY: as for `x`.
                    _ => unsafe {
                        other(input).load(block.clone(), to);
                    },
                };
                if !self.y.is_half() {
                    // SAFETY: the block belongs to this task; an operand shares all of it or nothing.
                    unsafe { self.links.run::<L>(worker, self.y.place(&block), count, read, load) };
                    continue;
                }
                // SAFETY: the buffer holds a block.
                unsafe { self.links.run::<L>(worker, result.as_mut_ptr(), count, read, load) };
                // SAFETY: the block belongs to this task, and the slices that read it are gone.
                unsafe { self.y.store(block.clone(), &result[..count]) };
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
    apply(operands, columns, [x], y, coefficients, Normalised);
}

/// Mean, scale and offset of every channel of a node that reads what a normalisation does.
pub(crate) fn coefficients<'a>(
    operands: &Operands,
    norm: &Norm,
    columns: Columns,
    coefficients: &'a mut [f32],
) -> &'a [f32] {
    let (mean, variance) = (operands.input(Mean), operands.input(Variance));
    normaliser(norm, columns, mean, variance, weights(operands), coefficients)
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
        let inverse = rstd(variance[channel], norm);
        [mean[channel], (gain(gamma, channel) * inverse) as f32, beta.map_or(0.0, |beta| beta[channel])]
    })
}

/// Floats of workspace that `inference_grad` needs.
pub(crate) fn inference_grad_workspace(dy: &Shape) -> usize {
    Columns::width(dy.last())
}

/// `dx = dy gamma / √(variance + epsilon)`.
pub(crate) fn inference_grad(operands: &Operands, norm: &Norm) {
    let (dy, dx) = (operands.input_floats(Dy), operands.output_floats(Dx));
    let gamma = operands.input_if_given(Gamma);
    let variance = operands.input(MovingVariance);
    let coefficients = operands.workspace().take_floats(inference_grad_workspace(operands.shape(Dy)));
    let columns = Columns::folded(dy.len(), variance.len());
    let coefficients = spread(columns, coefficients, |channel| {
        [(gain(gamma, channel) * rstd(variance[channel], norm)) as f32]
    });
    apply(operands, columns, [dy], dx, coefficients, Scaled);
}

/// Doubles, then floats of workspace that `grad` needs: two sums and four coefficients a channel, five
/// through a ReLU.
pub(crate) fn grad_workspace(dy: &Shape, through_relu: bool) -> (usize, usize) {
    let width = Columns::width(dy.last());
    (Columns::workspace(width, 2), (4 + usize::from(through_relu)) * width)
}

/// The gradient through normalised values, mean and variance; adds those of gamma and beta.
pub(crate) fn grad(operands: &Operands, norm: &Norm) {
    let (dy, x) = (operands.input_floats(Dy), operands.input_floats(X));
    match dy.is_half() || x.is_half() {
        true => grad_of::<true, false, 4>(operands, norm, [dy, x], f32::INFINITY, Gradient),
        false => grad_of::<false, false, 4>(operands, norm, [dy, x], f32::INFINITY, Gradient),
    }
}

/// The same of a sum of gradients, which is the second output.
pub(crate) fn grad_of_sum(operands: &Operands, norm: &Norm, dy: Floats<'_>) {
    let x = operands.input_floats(X);
    match dy.is_half() || x.is_half() {
        true => grad_of::<true, false, 4>(operands, norm, [dy, x], f32::INFINITY, Gradient),
        false => grad_of::<false, false, 4>(operands, norm, [dy, x], f32::INFINITY, Gradient),
    }
}

/// The same through a ReLU after the normalisation: `dy` counts only where it let a value pass, below a
/// bound.
pub(crate) fn relu_grad(operands: &Operands, norm: &Norm, below: f32) {
    let (dy, x) = (operands.input_floats(Dy), operands.input_floats(X));
    match dy.is_half() || x.is_half() {
        true => grad_of::<true, true, 5>(operands, norm, [dy, x], below, ReluGradient { below }),
        false => grad_of::<false, true, 5>(operands, norm, [dy, x], below, ReluGradient { below }),
    }
}

/// All batch-norm gradients. The formula reads mean and scale of a channel, beta where a ReLU comes after it, and two means
/// that come from the sums.
fn grad_of<const HALVES: bool, const RELU: bool, const N: usize>(
    operands: &Operands,
    norm: &Norm,
    [dy, x]: [Floats<'_>; 2],
    below: f32,
    formula: impl Formula<2, N>,
) {
    let dx = operands.output_floats(Dx);
    let (mean, variance) = (operands.input::<f32>(Mean), operands.input::<f32>(Variance));
    let gamma = operands.input_if_given(Gamma);
    let beta = if RELU { operands.input_if_given(Beta) } else { None };
    let (mut dgamma, mut dbeta) = weight_gradients(operands, norm);
    let (doubles, floats) = grad_workspace(operands.shape(Dy), RELU);
    let mut workspace = operands.workspace();
    let (sums, coefficients) = (workspace.take_doubles(doubles), workspace.take_floats(floats));

    let columns = Columns::folded(dy.len(), mean.len());
    let (count, width) = (dy.len() as f64 / mean.len() as f64, columns.width);
    let (known, means) = coefficients.split_at_mut((N - 2) * width);
    let known = match RELU {
        true => normaliser(norm, columns, mean, variance, (gamma, beta), known),
        false => spread(columns, known, |channel| {
            [mean[channel], (gain(gamma, channel) * rstd(variance[channel], norm)) as f32]
        }),
    };
    let finish = |channel: usize, [sum, product]: [f64; 2]| {
        let inverse = rstd(variance[channel], norm);
        if let Some(dgamma) = &mut dgamma {
            add_or_overwrite(&mut dgamma[channel], product * inverse, operands.fresh);
        }
        if let Some(dbeta) = &mut dbeta {
            add_or_overwrite(&mut dbeta[channel], sum, operands.fresh);
        }
        means[channel] = (sum / count) as f32;
        means[width + channel] = (product * inverse * inverse / count) as f32;
    };
    columns.sum(operands.threads, &Products::<HALVES, RELU> { dy, x, known, width, below }, sums, finish);
    for kind in 0..2 {
        let row = &mut means[kind * width..][..width];
        (mean.len()..width).for_each(|column| row[column] = row[column - mean.len()]);
    }
    apply(operands, columns, [dy, x], dx, coefficients, formula);
}

/// `moving = moving · momentum + value · (1 − momentum)`, unless a result is not finite: then both keep all
/// their values.
pub(crate) fn moving(operands: &Operands, momentum: f32) {
    if is_forbidden(operands) {
        return;
    }
    let values = [Mean, Variance].map(|operand| operands.input::<f32>(operand));
    let mut moving = [MovingMean, MovingVariance].map(|operand| operands.update(operand));
    let next = |moving: f32, value: f32| moving * momentum + value * (1.0 - momentum);
    let is_finite = moving.iter().zip(values).all(|(moving, values)| {
        moving.iter().zip(values).all(|(moving, value)| next(*moving, *value).is_finite())
    });
    if !is_finite {
        return operands.found_inf().raise(moving[0].len());
    }
    for (moving, values) in moving.iter_mut().zip(values) {
        for (moving, value) in moving.iter_mut().zip(values) {
            *moving = next(*moving, *value);
        }
    }
}

fn rstd(variance: f32, norm: &Norm) -> f64 {
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

struct Moments<'a, const HALVES: bool> {
    x: Floats<'a>,
    pivots: &'a [f32],
}

impl<const HALVES: bool> Terms<2> for Moments<'_, HALVES> {
    const ROWS: usize = ROWS_NEAR;
    const IN_REGISTERS: bool = true;

    #[inline(always)]
    unsafe fn terms<L: Lanes>(&self, _row: usize, element: usize, column: usize, count: usize) -> [L; 2] {
        // SAFETY: the input is not written while sums are taken, and there are as many pivots as columns.
        let distance = unsafe {
            self.x.vector_of::<L, HALVES>(element, count).sub(load(self.pivots.as_ptr().add(column), count))
        };
        [distance, distance.mul(distance)]
    }

    #[inline(always)]
    fn prefetch(&self, element: usize) {
        self.x.prefetch(element);
    }
}

struct Products<'a, const HALVES: bool, const RELU: bool> {
    dy: Floats<'a>,
    x: Floats<'a>,
    /// Rows of mean and scale, and after them of beta where there is a ReLU.
    known: &'a [f32],
    width: usize,
    below: f32,
}

impl<const HALVES: bool, const RELU: bool> Terms<2> for Products<'_, HALVES, RELU> {
    const ROWS: usize = ROWS_NEAR;

    #[inline(always)]
    unsafe fn terms<L: Lanes>(&self, _row: usize, element: usize, column: usize, count: usize) -> [L; 2] {
        // SAFETY: the inputs are not written while sums are taken, and every row is as wide as the columns.
        unsafe {
            let known = |kind: usize| load::<L>(self.known.as_ptr().add(kind * self.width + column), count);
            let dy = self.dy.vector_of::<L, HALVES>(element, count);
            let x = self.x.vector_of::<L, HALVES>(element, count);
            let dy = if RELU { passed(dy, x, [known(0), known(1), known(2)], self.below) } else { dy };
            [dy, dy.mul(x.sub(known(0)))]
        }
    }
}

/// `dy` where a ReLU after a normalisation lets values pass, found as forward finds them; else 0.
#[inline(always)]
fn passed<L: Lanes>(dy: L, x: L, coefficients: [L; 3], below: f32) -> L {
    dy.keep(Normalised.of([x], coefficients).between(L::splat(0.0), L::splat(below)))
}

/// A function of values at one place and of the coefficients of their channel.
pub(crate) trait Formula<const I: usize, const N: usize>: Sync {
    /// `#[inline(always)]`.
    fn of<L: Lanes>(&self, values: [L; I], coefficients: [L; N]) -> L;
}

/// `(x − mean) scale + beta`.
pub(crate) struct Normalised;

impl Formula<1, 3> for Normalised {
    #[inline(always)]
    fn of<L: Lanes>(&self, [x]: [L; 1], [mean, scale, beta]: [L; 3]) -> L {
        x.sub(mean).mul(scale).add(beta)
    }
}

/// What most chains after a normalisation are: another tensor added or not, then bounds.
pub(crate) struct Clamp {
    low: f32,
    high: f32,
}

impl Clamp {
    #[inline(always)]
    fn within<L: Lanes>(&self, value: L) -> L {
        value.at_least(L::splat(self.low)).at_most(L::splat(self.high))
    }
}

impl Formula<1, 3> for Clamp {
    #[inline(always)]
    fn of<L: Lanes>(&self, x: [L; 1], coefficients: [L; 3]) -> L {
        self.within(Normalised.of(x, coefficients))
    }
}

impl Formula<2, 3> for Clamp {
    #[inline(always)]
    fn of<L: Lanes>(&self, [x, other]: [L; 2], coefficients: [L; 3]) -> L {
        self.within(Normalised.of([x], coefficients).add(other))
    }
}

/// The bounds of a chain that only adds its second input, or none, and clamps; and whether it adds one.
pub(crate) fn clamp(chain: &Chain) -> Option<(Clamp, bool)> {
    let (function, adds) = match chain.links[..] {
        [Link::Unary(function, 0)] if chain.inputs == 1 => (function, false),
        [Link::Binary(Binary::Add, 0, 1) | Link::Binary(Binary::Add, 1, 0), Link::Unary(function, 2)]
            if chain.inputs == 2 =>
        {
            (function, true)
        }
        _ => return None,
    };
    let high = if function == Unary::Relu {
        f32::INFINITY
    } else if let Unary::ReluGeneral { negative_slope: 0.0, max_value, threshold: 0.0 } = function {
        max_value
    } else {
        return None;
    };
    Some((Clamp { low: 0.0, high }, adds))
}

/// `dy scale`.
struct Scaled;

impl Formula<1, 1> for Scaled {
    #[inline(always)]
    fn of<L: Lanes>(&self, [dy]: [L; 1], [scale]: [L; 1]) -> L {
        dy.mul(scale)
    }
}

/// `scale (dy − sum − (x − mean) product)`.
struct Gradient;

impl Formula<2, 4> for Gradient {
    #[inline(always)]
    fn of<L: Lanes>(&self, [dy, x]: [L; 2], [mean, scale, sum, product]: [L; 4]) -> L {
        scale.mul(dy.sub(sum).sub(x.sub(mean).mul(product)))
    }
}

/// The same, for a gradient through a ReLU.
struct ReluGradient {
    below: f32,
}

impl Formula<2, 5> for ReluGradient {
    #[inline(always)]
    fn of<L: Lanes>(&self, [dy, x]: [L; 2], [mean, scale, beta, sum, product]: [L; 5]) -> L {
        Gradient.of([passed(dy, x, [mean, scale, beta], self.below), x], [mean, scale, sum, product])
    }
}

/// Where at least this many bytes are read and written, a result has left every cache before it is read.
const STREAMED: usize = 96 << 20;

/// Writes a formula of `count` elements and of the coefficients of their channels; past the caches where that
/// is asked for and `to` is aligned.
///
/// # Safety
/// Every pointer holds `count` floats that no other task writes; `to` may be one of the inputs.
#[inline(always)]
unsafe fn combine<L: Lanes, const I: usize, const N: usize>(
    formula: &impl Formula<I, N>,
    inputs: [*const f32; I],
    coefficients: [&[f32]; N],
    to: *mut f32,
    count: usize,
    streams: bool,
) {
    let streams = streams && to.addr().is_multiple_of(size_of::<L>());
    assert!(coefficients.iter().all(|kind| kind.len() == count));
    let mut at = 0;
    while at < count {
        let left = L::COUNT.min(count - at);
        let (mut values, mut kinds) = ([L::splat(0.0); I], [L::splat(0.0); N]);
        for (value, input) in values.iter_mut().zip(inputs) {
            // SAFETY: every pointer holds what is left.
            *value = unsafe { load(input.add(at), left) };
        }
        for (value, kind) in kinds.iter_mut().zip(coefficients) {
            // SAFETY: as above.
            *value = unsafe { load(kind.as_ptr().add(at), left) };
        }
        let value = formula.of(values, kinds);
        if streams && left == L::COUNT {
            // SAFETY: as below, and aligned.
            unsafe { value.stream(to.add(at)) };
        } else {
            // SAFETY: as above, and what stood there has been read.
            unsafe { store(value, to.add(at), left) };
        }
        at += L::COUNT;
    }
}

/// Writes a formula of the inputs and of the coefficients of their channel.
fn apply<'a, F: Formula<I, N>, const I: usize, const N: usize>(
    operands: &Operands,
    columns: Columns,
    inputs: [Floats<'a>; I],
    output: Floats<'a>,
    coefficients: &'a [f32],
    formula: F,
) {
    let cut = Cut::items(output.len().div_ceil(columns.width.max(1)), columns.width);
    let streams = STREAMED <= (I + 1) * output.len() * size_of::<f32>();
    let work = Apply { columns, cut, inputs, output, coefficients, formula, streams };
    tasks::run(operands.threads, cut.count(), &work);
}

struct Apply<'a, F, const I: usize, const N: usize> {
    columns: Columns,
    cut: Cut,
    inputs: [Floats<'a>; I],
    output: Floats<'a>,
    coefficients: &'a [f32],
    formula: F,
    streams: bool,
}

impl<F: Formula<I, N>, const I: usize, const N: usize> Tasks for Apply<'_, F, I, N> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let (mut buffer, mut wide) = ([0.0; BLOCK], [[0.0; BLOCK]; I]);
        let Columns { elements, width, .. } = self.columns;
        for row in self.cut.range(task) {
            for column in (0..width).step_by(BLOCK) {
                let start = row * width + column;
                let count = BLOCK.min(width - column).min(elements.saturating_sub(start));
                let block = start..start + count;
                let mut inputs = [std::ptr::null(); I];
                for ((values, input), wide) in inputs.iter_mut().zip(&self.inputs).zip(&mut wide) {
                    // SAFETY: the only write to the block is this task's own, after the reads.
                    *values = unsafe { input.load(block.clone(), wide) }.as_ptr();
                }
                let mut coefficients: [&[f32]; N] = [&[]; N];
                for (kind, values) in coefficients.iter_mut().enumerate() {
                    *values = &self.coefficients[kind * width + column..][..count];
                }
                if self.output.is_half() {
                    let to = buffer.as_mut_ptr();
                    // SAFETY: the buffers hold a block.
                    unsafe { combine::<L, I, N>(&self.formula, inputs, coefficients, to, count, false) };
                    // SAFETY: the block belongs to this task.
                    unsafe { self.output.store(block, &buffer[..count]) };
                } else {
                    // SAFETY: the block belongs to this task, which has no slice of it.
                    let to = unsafe { self.output.write(block) }.as_mut_ptr();
                    let streams = self.streams && inputs.iter().all(|input| *input != to.cast_const());
                    // SAFETY: the block lies inside its tensors; an input shares all of it with the output or
                    // nothing.
                    unsafe { combine::<L, I, N>(&self.formula, inputs, coefficients, to, count, streams) };
                }
            }
        }
        L::fence();
    }
}
