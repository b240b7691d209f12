//! Functions that move elements: other shapes, other orders of axes, side by side, apart, repeated.

use memfit_ir::{Op, TensorId};
use serde_json::Value;

use super::Call;
use crate::argument::SIDE_LIMIT;
use crate::error::FormatError;
use crate::layers::axis_after_batch;

/// The functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Reshape,
    ExpandDims,
    Squeeze,
    Transpose,
    SwapAxes,
    MoveAxis,
    Concatenate,
    Stack,
    Split,
    Repeat,
    Tile,
    Pad,
}

pub(super) const FUNCTIONS: &[(&str, Function)] = &[
    ("Reshape", Function::Reshape),
    ("ExpandDims", Function::ExpandDims),
    ("Squeeze", Function::Squeeze),
    ("Transpose", Function::Transpose),
    ("Swapaxes", Function::SwapAxes),
    ("Moveaxis", Function::MoveAxis),
    ("Concatenate", Function::Concatenate),
    ("Stack", Function::Stack),
    ("Split", Function::Split),
    ("Repeat", Function::Repeat),
    ("Tile", Function::Tile),
    ("Pad", Function::Pad),
];

impl Call<'_, '_> {
    pub(super) fn shaping(&mut self, function: Function) -> Result<Vec<TensorId>, FormatError> {
        let made = match function {
            Function::Split => return self.split(),
            Function::Reshape => self.reshaped()?,
            Function::ExpandDims => {
                let x = self.single()?;
                let mut dims = self.dims(x);
                dims.insert(self.axis("axis", dims.len() + 1)?, 1);
                self.reshape(x, dims)?
            }
            Function::Squeeze => self.squeeze()?,
            Function::Transpose => self.transposed()?,
            Function::SwapAxes => {
                let x = self.single()?;
                let axes = self.dims(x).len();
                let mut order: Vec<usize> = (0..axes).collect();
                order.swap(self.axis("axis1", axes)?, self.axis("axis2", axes)?);
                self.transpose(x, order)?
            }
            Function::MoveAxis => {
                let x = self.single()?;
                let axes = self.dims(x).len();
                let (from, to) = (self.axis("source", axes)?, self.axis("destination", axes)?);
                let mut order: Vec<usize> = (0..axes).collect();
                let moved = order.remove(from);
                order.insert(to, moved);
                self.transpose(x, order)?
            }
            Function::Concatenate => {
                let axis = self.axis("axis", self.dims(self.operands[0]).len())?;
                self.site.push(Op::Concat(axis), self.operands)?
            }
            Function::Stack => {
                let mut dims = self.dims(self.operands[0]);
                let axis = self.axis("axis", dims.len() + 1)?;
                dims.insert(axis, 1);
                let mut layers = Vec::with_capacity(self.operands.len());
                for operand in self.operands {
                    layers.push(self.reshape(*operand, dims.clone())?);
                }
                self.site.push(Op::Concat(axis), &layers)?
            }
            Function::Repeat => self.repeat()?,
            Function::Tile => self.tile()?,
            Function::Pad => self.pad()?,
        };
        Ok(vec![made])
    }

    /// The new shape has the batch in front, as -1 or null; one other size may be -1 where the batch is given as null.
    fn reshaped(&mut self) -> Result<TensorId, FormatError> {
        let x = self.single()?;
        let value = self.argument("newshape");
        let refuse = || self.refuse("newshape", value, "the batch as -1, then the row's own elements");
        let [first, rest @ ..] = value.as_array().map(Vec::as_slice).ok_or_else(refuse)? else {
            return Err(refuse());
        };
        let open_batch = first.is_null() || first.as_i64() == Some(-1);
        let sizes: Option<Vec<usize>> =
            rest.iter().map(|size| size.as_u64().and_then(|size| usize::try_from(size).ok())).collect();
        let elements: usize = self.dims(x).iter().product();
        let sizes = sizes.filter(|_| open_batch).ok_or_else(refuse)?;
        let product = sizes.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
        if product != Some(elements) {
            return Err(refuse());
        }
        self.reshape(x, sizes)
    }

    fn squeeze(&mut self) -> Result<TensorId, FormatError> {
        let x = self.single()?;
        let dims = self.dims(x);
        let gone = if self.argument("axis").is_null() {
            (0..dims.len()).filter(|axis| dims[*axis] == 1).collect()
        } else {
            self.axes("axis", dims.len())?
        };
        if gone.iter().any(|axis| dims[*axis] != 1) {
            return Err(self.refuse("axis", self.argument("axis"), "axes of size 1"));
        }
        let kept = (0..dims.len()).filter(|axis| !gone.contains(axis)).map(|axis| dims[axis]).collect();
        self.reshape(x, kept)
    }

    fn transposed(&mut self) -> Result<TensorId, FormatError> {
        let x = self.single()?;
        let axes = self.dims(x).len();
        let value = self.argument("axes");
        let listed = value.as_array().map(Vec::as_slice).unwrap_or_default();
        let refuse = || self.refuse("axes", value, "all axes, with the batch in front");
        let [batch, rest @ ..] = listed else { return Err(refuse()) };
        let order: Option<Vec<usize>> =
            rest.iter().map(|axis| axis_after_batch(axis.as_i64()?, axes)).collect();
        let in_front = batch.as_i64() == Some(0) && rest.len() == axes;
        let order = order.filter(|_| in_front).ok_or_else(refuse)?;
        self.transpose(x, order)
    }

    fn split(&mut self) -> Result<Vec<TensorId>, FormatError> {
        let x = self.single()?;
        let dims = self.dims(x);
        let axis = self.axis("axis", dims.len())?;
        let value = self.argument("indices_or_sections");
        let refuse = || self.refuse("indices_or_sections", value, "equal parts, or ascending indices");
        let size = dims[axis];
        let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
        let mut ends: Vec<usize> = match value.as_array() {
            Some(items) => items.iter().map(number).collect::<Option<Vec<_>>>().ok_or_else(refuse)?,
            None => {
                let parts = number(value).filter(|parts| *parts > 0 && size.is_multiple_of(*parts));
                let parts = parts.ok_or_else(refuse)?;
                (1..parts).map(|part| part * (size / parts)).collect()
            }
        };
        ends.push(size);
        let mut made = Vec::with_capacity(ends.len());
        let mut start = 0;
        for end in ends {
            let length = end.checked_sub(start).filter(|length| *length > 0 && end <= size);
            let Some(length) = length else {
                return Err(self.refuse(
                    "indices_or_sections",
                    self.argument("indices_or_sections"),
                    "ascending indices",
                ));
            };
            made.push(self.site.push(Op::Slice { axis, start, length }, &[x])?);
            start = end;
        }
        Ok(made)
    }

    /// Each index of an axis this many times, one copy after the other.
    fn repeat(&mut self) -> Result<TensorId, FormatError> {
        let x = self.single()?;
        let dims = self.dims(x);
        let axis = self.axis("axis", dims.len())?;
        let times = self.times("repeats", self.argument("repeats"))?;
        self.stretched(x, &dims, axis, times, axis + 1)
    }

    /// All indices of an axis this many times.
    fn tile(&mut self) -> Result<TensorId, FormatError> {
        let mut x = self.single()?;
        let value = self.argument("repeats").clone();
        let listed = value.as_array().map(Vec::as_slice).unwrap_or_default();
        if listed.len() != self.dims(x).len() + 1 || listed[0].as_u64() != Some(1) {
            return Err(self.refuse("repeats", &value, "1 for the batch, then a number for each axis"));
        }
        for (axis, times) in listed[1..].iter().enumerate() {
            let times = self.times("repeats", times)?;
            let dims = self.dims(x);
            x = self.stretched(x, &dims, axis, times, axis)?;
        }
        Ok(x)
    }

    fn times(&self, name: &str, value: &Value) -> Result<usize, FormatError> {
        let times = value.as_u64().and_then(|times| usize::try_from(times).ok()).filter(|times| *times > 0);
        times.ok_or_else(|| self.refuse(name, value, "a whole number from 1"))
    }

    /// Repeats along an axis: a new axis of 1 at `place` is broadcast and joined to it.
    fn stretched(
        &mut self,
        x: TensorId,
        dims: &[usize],
        axis: usize,
        times: usize,
        place: usize,
    ) -> Result<TensorId, FormatError> {
        if times == 1 {
            return Ok(x);
        }
        let mut apart = dims.to_vec();
        apart.insert(place, 1);
        let narrow = self.reshape(x, apart.clone())?;
        apart[place] = times;
        let wide = self.broadcast(narrow, &apart)?;
        let mut joined = dims.to_vec();
        joined[axis] *= times;
        self.reshape(wide, joined)
    }

    fn pad(&mut self) -> Result<TensorId, FormatError> {
        let mut x = self.single()?;
        let (mode, value) = (self.argument("mode"), self.argument("pad_width").clone());
        if mode != "constant" {
            return Err(self.refuse("mode", mode, "constant"));
        }
        let constant = self.argument("constant_values");
        if !constant.is_null() && constant.as_f64() != Some(0.0) {
            return Err(self.refuse("constant_values", constant, "0"));
        }
        let pair = |value: &Value| {
            let number = |value: &Value| {
                let number = value.as_u64().filter(|number| *number < SIDE_LIMIT);
                number.and_then(|number| usize::try_from(number).ok())
            };
            match value.as_array().map(Vec::as_slice) {
                Some([before, after]) => Some([number(before)?, number(after)?]),
                Some(_) | None => None,
            }
        };
        let pairs: Option<Vec<[usize; 2]>> = value.as_array().into_iter().flatten().map(pair).collect();
        let pairs = pairs.filter(|pairs| pairs.len() == self.dims(x).len() + 1 && pairs[0] == [0, 0]);
        let Some(pairs) = pairs else {
            return Err(self.refuse("pad_width", &value, "a pair for each axis, nothing around the batch"));
        };
        for (axis, [before, after]) in pairs[1..].iter().copied().enumerate() {
            if before + after > 0 {
                x = self.site.push(Op::PadAxis { axis, before, after }, &[x])?;
            }
        }
        Ok(x)
    }
}
