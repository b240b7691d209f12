//! Moves: methods to buy bytes, each a pure function in its own file.

pub mod apply;
pub mod fold;
pub mod recompute;
pub mod region;
pub mod release;
pub mod reorder;
pub mod split;
