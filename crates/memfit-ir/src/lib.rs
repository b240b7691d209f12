//! memfit's data: what to compute (`Graph`), what it costs (`Problem`), exactly what happens (`Plan`),
//! and the stranger who checks the one against the other (`check`).
//!
//! Everything here is plain data without behaviour of its own. Nothing here allocates device memory,
//! opens a file or knows a file format.
//!
//! ```
//! use memfit_ir::{Chain, DType, Graph, Kind, Op, Shape, Unary};
//!
//! let mut graph = Graph::default();
//! let layer = graph.layer("relu");
//! let x = graph.tensor("x", Shape::rows([4]), DType::F32, Kind::Input, layer);
//! let y = graph.push(Op::Elementwise(Chain::unary(Unary::Relu)), &[x], layer).unwrap();
//! assert_eq!(graph.tensors[y[0].0].shape, Shape::rows([4]));
//! ```

mod applied;
mod attention;
mod augment;
mod bytes;
mod chain;
mod check;
mod counts;
mod digest;
mod distance;
mod dtype;
mod fold;
mod geometry;
mod graph;
mod made_up;
mod maker;
mod mask;
mod matmul;
mod metric;
mod noise;
mod op;
mod pinned;
mod plan;
mod problem;
pub mod random;
mod recurrent;
mod region;
mod rules;
mod shape;
mod summand;
mod tail;
mod text;
mod update;
mod weight_rules;

pub use applied::{Applied, Applying};
pub use attention::{Attention, AttentionDropout};
pub use augment::{Augment, Change, Fill, Sampling};
pub use bytes::{Bytes, ParseBytesError};
pub use chain::{Binary, Chain, Link, Saves, Unary};
pub use check::{CheckError, CheckedPlan, check};
pub use counts::{AtRate, Counts, Curve, Rate, Summation, Thresholds};
pub use distance::{Distance, Reduction};
pub use dtype::DType;
pub use fold::{Fold, Folding};
pub use geometry::{Conv2D, Conv3D, Interpolation, Pads, Pool2D, PooledConv2D};
pub use graph::{Graph, Initializer, Kind, LayerId, Node, NodeId, Phase, Tensor, TensorId};
pub use made_up::{MadeUp, Values};
pub use maker::Maker;
pub use mask::Mask;
pub use matmul::{MatMul, MatMulSizes};
pub use metric::{ClassAverage, ClassOf, FBeta, Iou, Metric, RowValue};
pub use noise::{Noise, NoiseKind};
pub use op::{Loss, LossKind, Norm, Op};
pub use pinned::Pinned;
pub use plan::{ALIGNMENT, Place, Plan, Slot, Step};
pub use problem::{Budget, Cost, LEANER, Leaner, Nanos, Problem, Transfers};
pub use recurrent::{Cell, Gate, Recurrent};
pub use region::{Cut, Region, Slice};
pub use rules::{ShapeError, Type, infer};
pub use shape::Shape;
pub use summand::Summand;
pub use tail::Tail;
pub use text::TextError;
pub use update::{Accumulate, Average, CheckUpdate, Clip, Update, UpdateRule};
pub use weight_rules::{Constraint, Orthogonal, Regularizer};
