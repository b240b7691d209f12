//! `.safetensors`: a header in JSON, then every array as one contiguous block.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::section::{Problem, Section};
use crate::weights::{Stored, StoredElement};
use crate::{Array, Element};

/// Whether a file begins as one of these does: a length that it has, and an object.
pub(crate) fn is_safetensors(whole: &Section<'_>) -> bool {
    begins(whole) && header_length(whole).is_ok_and(|length| whole.holds(8, length))
}

/// What to say of a file that begins as one of these and does not have the header that it claims.
pub(crate) fn claim(whole: &Section<'_>) -> Option<String> {
    let length = header_length(whole).ok().filter(|_| begins(whole))?;
    let has = whole.length();
    Some(format!("claims a .safetensors header of {length} bytes and has {has} in all; copy the file again"))
}

fn begins(whole: &Section<'_>) -> bool {
    whole.bytes(8, 1).is_ok_and(|byte| byte == *b"{")
}

fn header_length(whole: &Section<'_>) -> Result<u64, Problem> {
    let head = whole.bytes(0, 8)?;
    Ok(head.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Every array by its name.
pub(crate) fn arrays(whole: Section<'_>) -> Result<BTreeMap<String, Stored>, Problem> {
    let length = header_length(&whole)?;
    let text = whole.bytes(8, length)?;
    let header = crate::json::parse(&text).map_err(|problem| format!("has a header that {problem}"))?;
    let header = header.as_object().ok_or("has a header that is no object".to_owned())?;
    let start = 8 + length;
    let tensors = header.iter().filter(|(name, _)| *name != "__metadata__");
    tensors
        .map(|(name, value)| {
            let stored = tensor(&whole, start, value);
            stored.map(|stored| (name.clone(), stored)).ok_or_else(|| format!("is damaged at `{name}`"))
        })
        .collect()
}

fn tensor(whole: &Section<'_>, start: u64, value: &Value) -> Option<Stored> {
    let number = |value: &Value| value.as_u64();
    let element = match value.get("dtype")?.as_str()? {
        "F32" => StoredElement::Known(Element::F32),
        "I32" => StoredElement::Known(Element::I32),
        "I64" => StoredElement::Known(Element::I64),
        "F16" | "BF16" => StoredElement::Other { what: "floats", bytes: 2 },
        "F64" => StoredElement::Other { what: "floats", bytes: 8 },
        _ => StoredElement::Other { what: "values", bytes: 1 },
    };
    let shape = value.get("shape")?.as_array()?;
    let dims =
        shape.iter().map(|size| usize::try_from(number(size)?).ok()).collect::<Option<Vec<usize>>>()?;
    let [from, to] = value.get("data_offsets")?.as_array()?.as_slice() else { return None };
    let (from, to) = (number(from)?, number(to)?);
    let needed = dims.iter().try_fold(element.bytes(), |bytes, size| bytes.checked_mul(*size as u64));
    let lies = from.checked_add(start).is_some_and(|place| whole.holds(place, to.saturating_sub(from)));
    let place = match needed {
        Some(needed) if from.checked_add(needed) == Some(to) && lies => Ok(whole.place(start + from)),
        Some(_) | None => Err("does not lie within the file"),
    };
    Some(Stored { dims, element, place })
}

/// What stands in front of the arrays: the header's length and the header, filled up so that they begin at a multiple of 8.
pub(crate) fn header(arrays: &[Array]) -> Vec<u8> {
    let mut entries = Map::new();
    entries.insert("__metadata__".to_owned(), json!({"format": "keras"}));
    let mut offset = 0;
    for array in arrays {
        let end = offset + array.bytes();
        let dtype = match array.element {
            Element::F32 => "F32",
            Element::I32 => "I32",
            Element::I64 => "I64",
        };
        let entry = json!({"dtype": dtype, "shape": array.dims, "data_offsets": [offset, end]});
        entries.insert(array.name.clone(), entry);
        offset = end;
    }
    let mut text = Value::Object(entries).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.append(&mut text);
    header
}
