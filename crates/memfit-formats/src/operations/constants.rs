//! Tensors of numbers that a model was built with: means to subtract, positions to add.

use memfit_ir::{Op, TensorId};
use serde_json::Value;

use super::Call;
use super::elementwise::Two;
use crate::error::FormatError;

/// The most numbers of one: they are part of the graph, and every plan that is tried has them.
const MOST_NUMBERS: usize = 1 << 18;

/// Numbers with their dimensions.
pub(super) struct Constant {
    dims: Vec<usize>,
    numbers: Vec<f32>,
}

impl Constant {
    /// A tensor or an array as Keras writes it down; none for anything else, a single number among it.
    pub(super) fn read(value: &Value) -> Option<Constant> {
        let class = value.get("class_name").and_then(Value::as_str)?;
        let written =
            matches!(class, "__tensor__" | "__numpy__").then(|| value.pointer("/config/value"))??;
        let (mut dims, mut level) = (Vec::new(), written);
        while let Value::Array(items) = level {
            dims.push(items.len());
            level = items.first()?;
        }
        let mut numbers = Vec::new();
        flatten(written, &mut numbers)?;
        let whole = numbers.len() == dims.iter().product::<usize>() && numbers.len() <= MOST_NUMBERS;
        whole.then_some(Constant { dims, numbers })
    }

    /// The only number, where there is one.
    pub(super) fn single(&self) -> Option<f32> {
        match self.numbers[..] {
            [number] => Some(number),
            _ => None,
        }
    }

    /// The numbers for the last axes of a row, as few as there can be; none where they do not broadcast to
    /// it.
    fn spread(&self, row: &[usize]) -> Option<Vec<f32>> {
        // What stands before the row's axes is the batch, along which a constant is the same.
        let before = self.dims.len().saturating_sub(row.len());
        let own = self.dims[before..].iter().copied();
        if self.dims[..before].iter().any(|size| *size != 1) {
            return None;
        }
        let first = self.dims[before..].iter().position(|size| *size != 1).unwrap_or(own.len());
        let own: Vec<usize> = own.skip(first).collect();
        let over = &row[row.len() - own.len()..];
        let fits = own.iter().zip(over).all(|(own, over)| own == over || *own == 1);
        let count = over.iter().try_fold(1usize, |product, size| product.checked_mul(*size))?;
        if !fits || MOST_NUMBERS < count {
            return None;
        }
        let place = |mut at: usize| {
            let (mut place, mut step) = (0, 1);
            for (own, over) in own.iter().zip(over).rev() {
                place += if *own == 1 { 0 } else { at % over * step };
                at /= over;
                step *= own;
            }
            place
        };
        Some((0..count).map(|at| self.numbers[place(at)]).collect())
    }
}

fn flatten(value: &Value, numbers: &mut Vec<f32>) -> Option<()> {
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| flatten(item, numbers)),
        Value::Number(_) if numbers.len() < MOST_NUMBERS => {
            numbers.push(value.as_f64()? as f32);
            Some(())
        }
        Value::Number(_) | Value::Null | Value::Bool(_) | Value::String(_) | Value::Object(_) => None,
    }
}

impl Call<'_, '_> {
    /// A tensor and numbers, one of them first; none where they do not go together so.
    pub(super) fn with_constant(
        &mut self,
        function: Two,
        x: TensorId,
        constant: &Constant,
        constant_first: bool,
    ) -> Result<Option<TensorId>, FormatError> {
        let dims = self.dims(x);
        let Some(numbers) = constant.spread(&dims) else { return Ok(None) };
        let ones = || vec![1.0; numbers.len()];
        let zeros = || vec![0.0; numbers.len()];
        let negative = || numbers.iter().map(|number| -number).collect::<Vec<f32>>();
        let (scale, offset) = match (function, constant_first) {
            (Two::Add, _) => (ones(), numbers),
            (Two::Subtract, false) => (ones(), negative()),
            (Two::Subtract, true) => (vec![-1.0; numbers.len()], numbers),
            (Two::Multiply, _) => (numbers.clone(), zeros()),
            (Two::Divide, false) => (numbers.iter().map(|number| 1.0 / number).collect(), zeros()),
            (Two::Divide | Two::Maximum | Two::Minimum | Two::Power, _) => return Ok(None),
        };
        // The op's constants are those of the last axis, so all axes that they are broadcast over become that
        // axis.
        let rows = dims.iter().product::<usize>() / scale.len().max(1);
        let flat = self.reshape(x, vec![rows, scale.len()])?;
        let made = self.site.push(Op::AffineConstant { scale, offset }, &[flat])?;
        self.reshape(made, dims).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Constant;

    #[test]
    fn numbers_are_broadcast_over_the_axes_that_they_leave_open() {
        let read = |value| Constant::read(&json!({"class_name": "__tensor__", "config": {"value": value}}));
        let of_channels = read(json!([[[[1.0, 2.0]]]])).unwrap();
        assert_eq!(of_channels.spread(&[5, 4, 2]), Some(vec![1.0, 2.0]));
        assert_eq!(of_channels.spread(&[2, 3]), None);
        let of_steps = read(json!([[[1.0], [2.0], [3.0]]])).unwrap();
        assert_eq!(of_steps.spread(&[3, 2]), Some(vec![1.0, 1.0, 2.0, 2.0, 3.0, 3.0]));
        let of_rows = read(json!([[1.0], [2.0]])).unwrap();
        assert_eq!(of_rows.spread(&[1]), None);
        assert!(read(json!([[1.0, 2.0], [3.0]])).is_none());
        assert!(read(json!("words")).is_none());
    }
}
