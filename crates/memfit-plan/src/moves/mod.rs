//! Moves: methods to buy bytes, each a pure function in its own file.

pub mod fuse_producer;
pub mod fuse_update;
pub mod recompute;
pub mod region;
pub mod release;
pub mod reorder;
pub mod split;
