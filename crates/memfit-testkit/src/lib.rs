//! What tests share: a harness that trains small graphs, an op table, random graphs, an f64 interpreter, an
//! exact oracle for the planner.
//!
//! # Decisions
//!
//! - **Plans are frozen** (`corpus`, and the texts in the folder `corpus`): examples, architectures of
//!   keras.applications, recurrent models, f16 and bf16, and GPU-like problems by a fixed rule, each at four
//!   budgets with a fixed share for the program, so that neither device nor model code is part of the test. A
//!   plan's digest is made of numbers alone. A commit that changes the text form raises the version in its
//!   first line and migrates the files (`tools/corpus.py --migrate`) and no digest; one that means to change
//!   a plan blesses the table (`UPDATE_EXPECT=1`) and says which plans changed and why.
//! - **The oracle shares no code with the planner** (`oracle`): an exact search over the same order.
//! - **Every op has a row in the op table** (`op_cases`), which serves shapes, references, gradients and
//!   devices.

mod attention_cases;
pub mod corpus;
pub mod device_cases;
pub mod device_graphs;
pub mod halves;
pub mod harness;
mod metric_cases;
pub mod node_runs;
mod norm_cases;
pub mod op_cases;
mod operation_cases;
pub mod oracle;
pub mod pooled_cases;
pub mod random_graphs;
pub mod random_training;
mod rectified_cases;
mod recurrent_cases;
pub mod reference;
mod spatial_cases;
pub mod specs;
mod unreached_cases;
mod volume_cases;
