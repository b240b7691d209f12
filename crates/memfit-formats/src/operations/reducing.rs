//! Functions over axes: sums, means, extremes, and what is built from them.

use memfit_ir::{Binary, Chain, Op, TensorId, Unary};
use serde_json::Value;

use super::Call;
use crate::error::FormatError;

/// The functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Sum,
    Mean,
    Max,
    Min,
    Variance,
    Deviation,
    LogSumExp,
    Softmax,
    LogSoftmax,
}

pub(super) const FUNCTIONS: &[(&str, Function)] = &[
    ("Sum", Function::Sum),
    ("Mean", Function::Mean),
    ("Max", Function::Max),
    ("Min", Function::Min),
    ("Var", Function::Variance),
    ("Std", Function::Deviation),
    ("Logsumexp", Function::LogSumExp),
    ("Softmax", Function::Softmax),
    ("LogSoftmax", Function::LogSoftmax),
];

impl Call<'_, '_> {
    pub(super) fn reducing(&mut self, function: Function) -> Result<TensorId, FormatError> {
        let x = self.single()?;
        let dims = self.dims(x);
        let axes = self.axes("axis", dims.len())?;
        match function {
            Function::Softmax => return self.softmax(x, &axes),
            Function::LogSoftmax => {
                let total = self.log_sum_exp(x, &axes)?;
                let wide = self.broadcast(total, &dims)?;
                return self.site.push(Op::Elementwise(Chain::binary(Binary::Subtract)), &[x, wide]);
            }
            Function::Sum
            | Function::Mean
            | Function::Max
            | Function::Min
            | Function::Variance
            | Function::Deviation
            | Function::LogSumExp => {}
        }
        let initial = self.argument("initial");
        if !initial.is_null() {
            return Err(self.refuse("initial", initial, "null"));
        }
        let kept = self.kept_dims(function, x, &axes)?;
        if self.argument("keepdims") == &Value::Bool(true) {
            return Ok(kept);
        }
        let left = (0..dims.len()).filter(|axis| !axes.contains(axis)).map(|axis| dims[axis]).collect();
        self.reshape(kept, left)
    }

    /// A reduction that leaves axes of 1.
    fn kept_dims(
        &mut self,
        function: Function,
        x: TensorId,
        axes: &[usize],
    ) -> Result<TensorId, FormatError> {
        match function {
            Function::Sum => self.sum(x, axes),
            Function::Max => self.largest(x, axes),
            Function::Min => {
                let negative = self.chained(x, &[Unary::Scale(-1.0)])?;
                let largest = self.largest(negative, axes)?;
                self.chained(largest, &[Unary::Scale(-1.0)])
            }
            Function::Variance => self.variance(x, axes),
            Function::Deviation => {
                let variance = self.variance(x, axes)?;
                self.chained(variance, &[Unary::Sqrt])
            }
            Function::LogSumExp => self.log_sum_exp(x, axes),
            Function::Mean | Function::Softmax | Function::LogSoftmax => self.mean(x, axes),
        }
    }

    fn sum(&mut self, x: TensorId, axes: &[usize]) -> Result<TensorId, FormatError> {
        let mut dims = self.dims(x);
        axes.iter().for_each(|axis| dims[*axis] = 1);
        self.site.push(Op::SumTo(dims), &[x])
    }

    fn mean(&mut self, x: TensorId, axes: &[usize]) -> Result<TensorId, FormatError> {
        let dims = self.dims(x);
        let count: usize = axes.iter().map(|axis| dims[*axis]).product();
        let sum = self.sum(x, axes)?;
        self.chained(sum, &[Unary::Scale(1.0 / count as f32)])
    }

    fn variance(&mut self, x: TensorId, axes: &[usize]) -> Result<TensorId, FormatError> {
        let dims = self.dims(x);
        let mean = self.mean(x, axes)?;
        let mean = self.broadcast(mean, &dims)?;
        let apart = self.site.push(Op::Elementwise(Chain::binary(Binary::Subtract)), &[x, mean])?;
        let squares = self.chained(apart, &[Unary::Square])?;
        self.mean(squares, axes)
    }

    /// The max over axes: these go to the front, where a global max pool finds the argmax.
    fn largest(&mut self, x: TensorId, axes: &[usize]) -> Result<TensorId, FormatError> {
        let dims = self.dims(x);
        let kept: Vec<usize> = (0..dims.len()).filter(|axis| !axes.contains(axis)).collect();
        let product = |axes: &[usize]| axes.iter().map(|axis| dims[*axis]).product::<usize>();
        let image = vec![product(axes), 1, product(&kept)];
        let front = self.transpose(x, axes.iter().chain(&kept).copied().collect())?;
        let pixels = self.reshape(front, image)?;
        let max = self.site.push(Op::GlobalMaxPool2D, &[pixels])?;
        let mut left = dims.clone();
        axes.iter().for_each(|axis| left[*axis] = 1);
        self.reshape(max, left)
    }

    /// `ln Σ eˣ`, with the max subtracted first, so that nothing overflows.
    fn log_sum_exp(&mut self, x: TensorId, axes: &[usize]) -> Result<TensorId, FormatError> {
        let dims = self.dims(x);
        let largest = self.largest(x, axes)?;
        let wide = self.broadcast(largest, &dims)?;
        let below = self.site.push(Op::Elementwise(Chain::binary(Binary::Subtract)), &[x, wide])?;
        let powers = self.chained(below, &[Unary::Exp])?;
        let sum = self.sum(powers, axes)?;
        let log = self.chained(sum, &[Unary::Log])?;
        self.site.push(Op::Elementwise(Chain::binary(Binary::Add)), &[log, largest])
    }

    /// Over one axis, which is the last while it runs.
    fn softmax(&mut self, x: TensorId, axes: &[usize]) -> Result<TensorId, FormatError> {
        let [axis] = axes else {
            return Err(self.refuse("axis", self.argument("axis"), "one axis"));
        };
        let last = self.dims(x).len() - 1;
        let mut order: Vec<usize> = (0..=last).collect();
        order.swap(*axis, last);
        let turned = self.transpose(x, order.clone())?;
        let soft = self.site.push(Op::Softmax, &[turned])?;
        self.transpose(soft, order)
    }
}
