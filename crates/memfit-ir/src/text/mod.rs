//! Graphs, problems and plans as text: exact, one line for a tensor, node, cost or step, and parsed back to the same value.
//!
//! ```text
//! memfit graph 3
//! layer 0 "dense"
//! tensor 0 {name="x" shape=[batch 4] dtype=F32 kind=Input layer=0}
//! node 0 {op=Softmax inputs=[0] outputs=[1] layer=0}
//! …
//! end
//! ```
//!
//! The first line has the format's version, the last says that nothing is missing. Floats are printed by their shortest digits that
//! parse back to the same bits. A type's text form follows from one list of its fields (`fields.rs`, for fused ops
//! `../fused/mod.rs`), which does not compile while a field or a variant is missing.

mod documents;
mod fields;
mod listing;
mod page;
mod parser;
mod printer;
mod sound;
mod values;

pub(crate) use fields::enums;
pub use page::TextError;
pub(crate) use parser::Parser;
pub(crate) use printer::Printer;

/// A commit that changes the text raises this and migrates all files.
const VERSION: u32 = 3;

/// A value within a line.
pub(crate) trait Text: Sized {
    /// How many times it is optional.
    const OPTIONAL: usize = 0;
    /// Writes it.
    fn print(&self, printer: &mut Printer);
    /// Reads it, or says what is wrong.
    fn parse(parser: &mut Parser<'_>) -> Result<Self, String>;
}
