//! From a forward graph to a training graph: losses, gradients and the optimizer as ordinary nodes.
//!
//! ```
//! use memfit_grad::{Optimizer, Training, training_graph};
//! use memfit_ir::{DType, Graph, Kind, Loss, LossKind, Op, Shape};
//!
//! let mut forward = Graph::default();
//! let layer = forward.layer("dense");
//! let x = forward.tensor("x", Shape::rows([3]), DType::F32, Kind::Input, layer);
//! let kernel =
//!     forward.tensor("dense/kernel", Shape::fixed([3, 2]), DType::F32, Kind::Weight { trainable: true }, layer);
//! forward.inputs.push(x);
//! forward.outputs = forward.push(Op::Dense, &[x, kernel], layer).unwrap();
//!
//! let training = Training {
//!     losses: vec![Loss { kind: LossKind::MeanSquaredError, weight: 1.0 }],
//!     ..Training::new(Optimizer::adam())
//! };
//! let graph = training_graph(&forward, &training).unwrap();
//! assert!(graph.nodes.iter().any(|node| matches!(node.op, Op::Update(_))));
//! ```

mod biases;
mod chain;
mod compact;
mod fuse;
mod guard;
mod like;
mod neighbours;
mod norms;
mod optimizer;
mod penalties;
mod pooled;
mod rounded;
mod rules;
mod training;
mod weights;

pub use optimizer::{ClipBy, Optimizer, Schedule};
pub use training::{GradError, OutputMetric, Training, evaluation_graph, prediction_graph, training_graph};
