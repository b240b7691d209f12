//! The text of numbers, names, lists and other values that no list of fields describes.

use std::str::FromStr;

use super::{Parser, Printer, Text};
use crate::{Bytes, LayerId, NodeId, Shape, Slot, TensorId};

/// Types whose `Display` and `FromStr` are exact.
macro_rules! words {
    ($($name:ident)*) => {$(
        impl Text for $name {
            fn print(&self, printer: &mut Printer) {
                printer.write(&self.to_string());
            }

            fn parse(parser: &mut Parser<'_>) -> Result<$name, String> {
                number(parser.word()?)
            }
        }
    )*};
}

words!(usize u64 i32 i64 bool);

fn number<T: FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("`{word}` is no {}", std::any::type_name::<T>()))
}

/// Floats: the shortest digits that give the same bits, and the bits where there is no number.
macro_rules! floats {
    ($($name:ident $bits:ident)*) => {$(
        impl Text for $name {
            fn print(&self, printer: &mut Printer) {
                printer.write(&match self.is_nan() {
                    true => format!("NaN:{:x}", self.to_bits()),
                    false => format!("{self:?}"),
                });
            }

            fn parse(parser: &mut Parser<'_>) -> Result<$name, String> {
                let word = parser.word()?;
                match word.strip_prefix("NaN:") {
                    Some(bits) => $bits::from_str_radix(bits, 16)
                        .map($name::from_bits)
                        .map_err(|_| format!("`{word}` is no {}", stringify!($name))),
                    None => number(word),
                }
            }
        }
    )*};
}

floats!(f32 u32 f64 u64);

/// Numbers with a unit are printed as numbers.
macro_rules! units {
    ($($name:ident)*) => {$(
        impl Text for $name {
            fn print(&self, printer: &mut Printer) {
                self.0.print(printer);
            }

            fn parse(parser: &mut Parser<'_>) -> Result<$name, String> {
                Text::parse(parser).map($name)
            }
        }
    )*};
}

units!(Bytes TensorId NodeId LayerId);

impl Text for String {
    fn print(&self, printer: &mut Printer) {
        printer.write("\"");
        for character in self.chars() {
            match character {
                '"' => printer.write("\\\""),
                '\\' => printer.write("\\\\"),
                _ if character.is_control() => {
                    printer.write(&format!("\\u{{{:x}}}", u32::from(character)));
                }
                _ => printer.write(character.encode_utf8(&mut [0; 4])),
            }
        }
        printer.write("\"");
    }

    fn parse(parser: &mut Parser<'_>) -> Result<String, String> {
        parser.symbol('"')?;
        let mut text = String::new();
        loop {
            text.push(match parser.character()? {
                '"' => return Ok(text),
                '\\' => escaped(parser)?,
                character => character,
            });
        }
    }
}

fn escaped(parser: &mut Parser<'_>) -> Result<char, String> {
    match parser.character()? {
        character @ ('"' | '\\') => Ok(character),
        'u' => {
            parser.symbol('{')?;
            let word = parser.word()?;
            parser.symbol('}')?;
            let code = u32::from_str_radix(word, 16).ok().and_then(char::from_u32);
            code.ok_or_else(|| format!("`\\u{{{word}}}` is no character"))
        }
        other => Err(format!("`\\{other}` is no escape; write \\\\, \\\" or \\u{{…}}")),
    }
}

impl<T: Text> Text for Vec<T> {
    fn print(&self, printer: &mut Printer) {
        printer.write("[");
        self.iter().for_each(|item| printer.value(item));
        printer.write("]");
    }

    fn parse(parser: &mut Parser<'_>) -> Result<Vec<T>, String> {
        parser.symbol('[')?;
        let mut items = Vec::new();
        while !parser.has_symbol(']') {
            items.push(T::parse(parser)?);
        }
        Ok(items)
    }
}

impl<T: Text, const N: usize> Text for [T; N] {
    fn print(&self, printer: &mut Printer) {
        printer.write("[");
        self.iter().for_each(|item| printer.value(item));
        printer.write("]");
    }

    fn parse(parser: &mut Parser<'_>) -> Result<[T; N], String> {
        let items = Vec::parse(parser)?;
        items.try_into().map_err(|items: Vec<T>| format!("{} values where {N} are expected", items.len()))
    }
}

/// `-` where there is nothing, and `--` where there is nothing that could have been nothing.
impl<T: Text> Text for Option<T> {
    const OPTIONAL: usize = T::OPTIONAL + 1;

    fn print(&self, printer: &mut Printer) {
        match self {
            Some(value) => value.print(printer),
            None => printer.write(&"-".repeat(Self::OPTIONAL)),
        }
    }

    fn parse(parser: &mut Parser<'_>) -> Result<Option<T>, String> {
        if parser.has_word(&"-".repeat(Self::OPTIONAL)) { Ok(None) } else { T::parse(parser).map(Some) }
    }
}

impl<T: Text> Text for Box<T> {
    fn print(&self, printer: &mut Printer) {
        self.as_ref().print(printer);
    }

    fn parse(parser: &mut Parser<'_>) -> Result<Box<T>, String> {
        parser.nested().map(Box::new)
    }
}

impl<A: Text, B: Text> Text for (A, B) {
    fn print(&self, printer: &mut Printer) {
        printer.write("(");
        printer.value(&self.0);
        printer.value(&self.1);
        printer.write(")");
    }

    fn parse(parser: &mut Parser<'_>) -> Result<(A, B), String> {
        parser.symbol('(')?;
        let pair = (A::parse(parser)?, B::parse(parser)?);
        parser.symbol(')')?;
        Ok(pair)
    }
}

impl Text for Shape {
    fn print(&self, printer: &mut Printer) {
        let Shape { batched, dims } = self;
        printer.write(if *batched { "[batch" } else { "[" });
        dims.iter().for_each(|size| printer.value(size));
        printer.write("]");
    }

    fn parse(parser: &mut Parser<'_>) -> Result<Shape, String> {
        parser.symbol('[')?;
        let batched = parser.has_word("batch");
        let mut dims = Vec::new();
        while !parser.has_symbol(']') {
            dims.push(usize::parse(parser)?);
        }
        Ok(Shape { batched, dims })
    }
}

impl Text for Slot {
    fn print(&self, printer: &mut Printer) {
        let Slot { offset, bytes } = self;
        printer.write(&format!("@{}+{}", offset.0, bytes.0));
    }

    fn parse(parser: &mut Parser<'_>) -> Result<Slot, String> {
        parser.symbol('@')?;
        let word = parser.word()?;
        let (offset, bytes) = word.split_once('+').ok_or_else(|| format!("`@{word}` has no length"))?;
        let (offset, bytes): (u64, u64) = (number(offset)?, number(bytes)?);
        // The end of a slot is computed everywhere.
        offset.checked_add(bytes).ok_or_else(|| format!("`@{word}` ends beyond all addresses"))?;
        Ok(Slot { offset: Bytes(offset), bytes: Bytes(bytes) })
    }
}
