//! The reference: every op by its definition, in double precision, by loops that a reader can check by eye.
//!
//! ```
//! use memfit_device::Context;
//! use memfit_ir::{Chain, DType, Graph, Kind, Op, Shape, Unary};
//! use memfit_reference::{Call, compute};
//!
//! let mut graph = Graph::default();
//! let layer = graph.layer("relu");
//! let x = graph.tensor("x", Shape::rows([2]), DType::F32, Kind::Input, layer);
//! graph.push(Op::Elementwise(Chain::unary(Unary::Relu)), &[x], layer)?;
//!
//! let context = Context { step: 0, iteration: 0, row_start: 0, rows: 2, rows_total: 2, learning_rate: 0.1, loss_scale: 1.0, seed: 7 };
//! let (node, inputs) = (&graph.nodes[0], vec![&[-1.0, 2.0, 3.0, -4.0][..]]);
//! let call = Call { graph: &graph, node, context: &context, overwrite: false, inputs, updates: vec![] };
//! assert_eq!(compute(&call).outputs, [[0.0, 2.0, 3.0, 0.0]]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Decisions
//!
//! - **It shares no code with the kernels** of other devices: where both agree, both are likely right.
//! - **A node is computed in f64 and rounded where it is stored.** So a fused op, whose parts it runs one after the other, may
//!   differ from them in the last bit, and it offers neither recomputing in the consumer nor fused optimizer updates.
//! - **It allocates.** Beside its arena, whose bytes are those of the plan, a launch holds its operands as f64. It serves tests; it
//!   is no device for users, whose budget is the whole process.
//! - **An element that would not be finite** keeps its old value alone, where kernels keep those of its block.

mod affine;
mod attention;
mod augment;
mod bits;
mod call;
mod convolution;
mod cost;
mod dense;
mod device;
mod elementwise;
mod embedding;
mod fused;
mod loss;
mod mask;
mod matmul;
mod metric;
mod node;
mod noise;
mod norm;
mod number;
mod optimizer;
mod pool;
mod rearrange;
mod recurrent;
mod softmax;
mod spatial;

pub use call::{Call, Computed};
pub use device::open;
pub use loss::mean as mean_loss;
pub use node::compute;
