//! What an object's header says of an array: its type, its dimensions, its place.

use crate::Element;
use crate::section::{Cursor, Problem, Section};
use crate::weights::{Stored, StoredElement};

use super::{NOWHERE, message};

/// The most axes that HDF5 allows.
const MOST_AXES: usize = 32;

/// Messages of one header, as far as they matter here.
#[derive(Default)]
pub(super) struct Header {
    /// Address of the tree and the heap, where the object is a group.
    pub(super) group: Option<(u64, u64)>,
    dims: Option<Vec<usize>>,
    element: Option<StoredElement>,
    /// Place and length of the array's bytes.
    place: Option<(u64, u64)>,
    /// Why it cannot be read, though it is well formed.
    refusal: Option<&'static str>,
    /// Where the header goes on: address and length of each part.
    pub(super) continued: Vec<(u64, u64)>,
}

impl Header {
    /// Takes in one message, whose body stands at an address.
    pub(super) fn add(&mut self, kind: u64, flags: u64, body: &[u8], address: u64) -> Result<(), Problem> {
        let mut cursor = Cursor::new(body);
        let shared = flags & 2 != 0;
        match kind {
            message::SYMBOL_TABLE => self.group = Some((cursor.number(8)?, cursor.number(8)?)),
            message::CONTINUATION => self.continued.push((cursor.number(8)?, cursor.number(8)?)),
            message::DATASPACE | message::DATATYPE | message::LAYOUT if shared => {
                self.refusal = Some("shares its description with other arrays");
            }
            message::DATASPACE => self.dims = Some(dataspace(&mut cursor)?),
            message::DATATYPE => self.element = Some(datatype(&mut cursor)?),
            message::LAYOUT => self.layout(&mut cursor, address)?,
            message::FILTERS => self.refusal = Some("is compressed"),
            message::EXTERNAL => self.refusal = Some("lies in another file"),
            message::LINK | message::LINK_INFO => {
                return Err("has groups of HDF5 1.8 and later (libver=\"latest\")".to_owned());
            }
            _ => {}
        }
        Ok(())
    }

    fn layout(&mut self, cursor: &mut Cursor<'_>, address: u64) -> Result<(), Problem> {
        let (version, class) = (cursor.number(1)?, cursor.number(1)?);
        match (version, class) {
            (3 | 4, 0) => {
                let length = cursor.number(2)?;
                self.place = Some((address + 4, length));
            }
            (3 | 4, 1) => self.place = Some((cursor.number(8)?, cursor.number(8)?)),
            (3 | 4, 2) => self.refusal = Some("is stored in chunks"),
            (4, 3) => self.refusal = Some("is put together from other arrays"),
            _ => self.refusal = Some("is laid out in a way of an older HDF5"),
        }
        Ok(())
    }

    /// The array, where the object is one.
    pub(super) fn stored(self, section: &Section<'_>) -> Option<Stored> {
        let dims = self.dims?;
        let element = self.element?;
        let refused = |why: &'static str, dims: Vec<usize>| Stored { dims, element, place: Err(why) };
        if let Some(why) = self.refusal {
            return Some(refused(why, dims));
        }
        let (place, length) = self.place?;
        let needed = dims.iter().try_fold(element.bytes(), |bytes, size| bytes.checked_mul(*size as u64));
        Some(match needed {
            Some(needed) if needed == length && place != NOWHERE && section.holds(place, length) => {
                Stored { dims, element, place: Ok(section.place(place)) }
            }
            Some(_) | None => refused("does not lie within the file", dims),
        })
    }
}

fn dataspace(cursor: &mut Cursor<'_>) -> Result<Vec<usize>, Problem> {
    let (version, axes) = (cursor.number(1)?, cursor.small(1)?);
    cursor.skip(if version == 1 { 6 } else { 2 })?;
    if MOST_AXES < axes {
        return Err(format!("has an array of {axes} axes"));
    }
    (0..axes).map(|_| cursor.small(8)).collect()
}

fn datatype(cursor: &mut Cursor<'_>) -> Result<StoredElement, Problem> {
    let class = cursor.number(1)? & 0x0f;
    let bits = cursor.number(3)?;
    let size = cursor.number(4)?;
    let big_endian = bits & 1 != 0;
    let signed = bits & 0x08 != 0;
    Ok(match (class, size, big_endian, signed) {
        (1, 4, false, _) => StoredElement::Known(Element::F32),
        (0, 4, false, true) => StoredElement::Known(Element::I32),
        (0, 8, false, true) => StoredElement::Known(Element::I64),
        (1, ..) => StoredElement::Other { what: "floats", bytes: size },
        (0, ..) => StoredElement::Other { what: "integers", bytes: size },
        _ => StoredElement::Other { what: "values", bytes: size },
    })
}
