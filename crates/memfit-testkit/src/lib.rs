//! What tests share: a harness that trains small graphs, an op table, random graphs, a slow f64 reference.

mod attention_cases;
mod distances;
pub mod halves;
pub mod harness;
pub mod op_cases;
pub mod random_graphs;
pub mod reference;
pub mod specs;
