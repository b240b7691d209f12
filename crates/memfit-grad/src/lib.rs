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
//!
//! # Decisions
//!
//! - **What backward keeps** (`compact`): a ReLU's output if it is needed anyway, else one bit an element; a
//!   max pool's argmax as one byte; no dropout mask (drawn again from seed, step and row); softmax and
//!   sigmoid vanish into their cross-entropy.
//! - **A ReLU before a max pool runs after it** (`commute`), with the same values and gradients: where it
//!   made 0, there is no argmax.
//! - **Elementwise work joins its neighbour** (`fuse`): chains grow, and run inside the normalisation or the
//!   convolution before them, link by link as before; recomputing it then costs one pass.
//! - **A convolution of few channels takes the max pool after it inside** (`pooled`), with the ReLU: the
//!   image between them exists in registers alone. Where the device offers it, so does a Winograd convolution,
//!   where a tile is a window of the pool, and a dense layer of few units takes such a pool inside where
//!   nothing before it learns.
//! - **A bias's gradient is summed where the terms pass by anyway** (`biases`): in the ReLU's gradient that
//!   writes them, or before a max pool's gradient, where they are fewer.
//! - **The gradient of a batch normalisation goes over its operands twice, and takes along what stands next
//!   to it** (`batch_norm`): the ReLU after it, whose signs it finds again, and the sum of two gradients at a
//!   shortcut, which it writes in its first pass. The bias of a layer before it gets the gradient that it
//!   has, 0.
//! - **Sample weights:** in a loss, masks, ignored classes and weights of rows become one weight a sample
//!   (`weights`). Where their sum over the batch counts, or a loss is one number of the whole batch (Dice),
//!   rows mix and the batch is not split.
//! - **Penalties and constraints become nodes of the end** (`penalties`): a penalty adds to the gradient and
//!   to one sum, a constraint follows its update.
//! - **Accumulation over steps is a node** that adds a gradient to a tensor that stays; the update then
//!   counts updates, as Keras does, and steps weigh alike whatever their rows. Adafactor keeps means over
//!   rows and columns alone; the matrix that Keras stores beside them is written as zeros, since Keras
//!   computes it before it reads it.
//! - **Overflow of f16:** where a graph has f16, a check of all gradients (`CheckFinite`) comes before every
//!   update and each update reads its result, so no weight changes in a step that overflowed.
//! - **`guard = "step"` is another training graph** (`guard`): gradients, batch statistics and what updates
//!   would write (`Op::CheckUpdate`) are checked before the first update, and all that outlives the step is
//!   written under one `found_inf`. On a GPU the checks of updates exist only there.
//! - **What a device offers decides what becomes one node** (`memfit_ir::Capabilities`), and none of the rewrites asks which
//!   device it is.
//! - **Where products read rounded weights,** those that they read as f16 or bf16 are rounded once a step (`rounded`), those of a
//!   layer in one launch: a node like any other, whose results wait for backward or are computed again. Nodes
//!   that the device can join into one pass are put next to each other (`neighbours`).

mod batch_norm;
mod biases;
mod chain;
mod commute;
mod compact;
mod fuse;
mod guard;
mod like;
mod neighbours;
mod optimizer;
mod penalties;
mod pooled;
mod rounded;
mod rules;
mod training;
mod weights;

pub use optimizer::{ClipBy, Optimizer, Schedule};
pub use training::{GradError, OutputMetric, Training, evaluation_graph, prediction_graph, training_graph};
