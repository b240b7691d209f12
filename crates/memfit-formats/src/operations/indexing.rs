//! Slices and indices: `x[:, 1:]`, `x[:, 0]`, `x[..., None]`.

use memfit_ir::{Op, TensorId};
use serde_json::Value;

use super::{Call, Given};
use crate::error::FormatError;

/// What one item of an index does.
enum Item {
    /// Takes indices `start..end` of an axis.
    Range { start: usize, end: usize },
    /// Takes one index and drops the axis.
    One(usize),
    /// Puts an axis of 1.
    New,
}

impl Call<'_, '_> {
    pub(super) fn get_item(&mut self) -> Result<TensorId, FormatError> {
        let ([x], [Given::Tensor, Given::Constant(index)]) = (self.operands, self.given) else {
            let given = Value::from(self.given.len());
            return Err(self.refuse("call", &given, "numbers and slices as an index"));
        };
        let dims = self.dims(*x);
        let listed = index.as_array().cloned().unwrap_or_else(|| vec![index.clone()]);
        let items = self.items(&listed, &dims)?;
        let (mut y, mut axis, mut shape) = (*x, 0, Vec::new());
        for item in items {
            match item {
                Item::New => shape.push(1),
                Item::One(start) => {
                    y = self.site.push(Op::Slice { axis, start, length: 1 }, &[y])?;
                    axis += 1;
                }
                Item::Range { start, end } => {
                    let length = end - start;
                    if length != dims[axis] {
                        y = self.site.push(Op::Slice { axis, start, length }, &[y])?;
                    }
                    shape.push(length);
                    axis += 1;
                }
            }
        }
        if self.site.dims(y) == shape { Ok(y) } else { self.reshape(y, shape) }
    }

    /// An item for each axis after the batch, and for each new one.
    fn items(&self, listed: &[Value], dims: &[usize]) -> Result<Vec<Item>, FormatError> {
        let is_ellipsis = |value: &Value| class(value) == Some("__ellipsis__");
        let refuse = |value: &Value, supported: &str| self.refuse("call", value, supported);
        let axes = dims.len() + 1;
        let used = listed.iter().filter(|value| !value.is_null() && !is_ellipsis(value)).count();
        let whole = |axis: usize| Item::Range { start: 0, end: dims[axis - 1] };
        let (mut items, mut axis, mut seen) = (Vec::new(), 0, false);
        for value in listed {
            if is_ellipsis(value) && !seen {
                seen = true;
                for _ in 0..axes.saturating_sub(used) {
                    // The batch has no item of its own.
                    items.extend((0 < axis).then(|| whole(axis)));
                    axis += 1;
                }
            } else if value.is_null() {
                if axis == 0 {
                    return Err(refuse(value, "new axes after the batch"));
                }
                items.push(Item::New);
            } else if axis == 0 {
                if !is_whole(value) {
                    return Err(refuse(value, "`:` for the batch"));
                }
                axis += 1;
            } else {
                let Some(size) = dims.get(axis - 1) else {
                    return Err(refuse(value, "an item for each axis of the tensor"));
                };
                let item = item(value, *size);
                items.push(
                    item.ok_or_else(|| {
                        refuse(value, "a number or a slice with step 1 that takes something")
                    })?,
                );
                axis += 1;
            }
        }
        items.extend((axis.max(1)..axes).map(whole));
        Ok(items)
    }
}

fn class(value: &Value) -> Option<&str> {
    value.get("class_name").and_then(Value::as_str)
}

fn field<'a>(value: &'a Value, name: &str) -> &'a Value {
    value.get("config").and_then(|config| config.get(name)).unwrap_or(&Value::Null)
}

/// Whether a slice takes everything.
fn is_whole(value: &Value) -> bool {
    let whole = |name: &str| field(value, name).is_null();
    class(value) == Some("__slice__") && whole("start") && whole("stop") && (whole("step") || one_step(value))
}

fn one_step(value: &Value) -> bool {
    field(value, "step").is_null() || field(value, "step").as_i64() == Some(1)
}

fn item(value: &Value, size: usize) -> Option<Item> {
    // Negative places count from the end.
    let place = |value: &Value| {
        let place = value.as_i64()?;
        let length = i64::try_from(size).ok()?;
        Some(if place < 0 { place + length } else { place })
    };
    if class(value) != Some("__slice__") {
        let place = usize::try_from(place(value)?).ok()?;
        return (place < size).then_some(Item::One(place));
    }
    let bound = |name: &str, default: usize| {
        let given = field(value, name);
        if given.is_null() {
            return Some(default);
        }
        Some(usize::try_from(place(given)?.max(0)).ok()?.min(size))
    };
    let (start, end) = (bound("start", 0)?, bound("stop", size)?);
    (one_step(value) && start < end).then_some(Item::Range { start, end })
}
