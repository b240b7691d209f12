//! What tests share: a harness that trains small graphs, an op table, random graphs, a slow f64 reference, an exact oracle
//! for the planner.

mod attention_cases;
pub mod corpus;
pub mod device_cases;
pub mod device_graphs;
mod distances;
pub mod halves;
pub mod harness;
mod metric_cases;
pub mod node_runs;
mod norm_cases;
pub mod op_cases;
mod operation_cases;
pub mod oracle;
mod pooled_cases;
pub mod random_graphs;
pub mod random_training;
mod rectified_cases;
mod recurrent_cases;
pub mod reference;
mod spatial_cases;
pub mod specs;
mod unreached_cases;
mod volume_cases;
