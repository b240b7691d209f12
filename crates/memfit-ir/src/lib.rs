//! memfit's data: what to compute (`Graph`), what it costs (`Problem`), exactly what happens (`Plan`), and
//! the checker that holds the one against the other (`check`).
//!
//! Everything here is plain data without behaviour of its own. Nothing here allocates device memory, opens a
//! file or knows a file format.
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
//!
//! # Decisions
//!
//! - **`Op` is a closed enum** (`op`). A node reads `inputs`, writes `outputs`, changes `updates` in place.
//!   Shape, gradient and kernel are exhaustive matches: add a variant and the compiler lists the work. Layout
//!   is NHWC.
//! - **What is known of an op is its signature** (`signature`): names of operands, what may share bytes, what it
//!   does along each axis, whether it is random, a view or a sum of the step. There is no other list of such
//!   facts; those of a fused op follow from its parts.
//! - **The order of a graph's nodes is its meaning.** Where a tensor is updated in place, nodes before the
//!   update read the old value. The checker holds every schedule to the versions that the graph's own order
//!   gives.
//! - **One symbolic dimension,** the batch, in front. Kernels learn their rows when they are launched, so the
//!   last micro-batch may be smaller than planned.
//! - **A weight's gradient is a sum** that nodes add to: a `Zero` opens it before the first micro-batch, an
//!   `Update` applies it after the last.
//! - **The loss comes with its gradient** as one op, scaled by the rows of the whole batch. That is what
//!   makes micro-batches add up to the batch, also when they are unequal.
//! - **A metric is sums, and a function of them** (`metric`, `counts`): weighted values and weights for a
//!   mean, the weight of positives and negatives between thresholds for counts and areas, overlaps of true
//!   and predicted classes. One op adds the sums of a micro-batch to a small tensor of the plan.
//! - **Large layers are one op.** Attention is one op over all heads, without a matrix of all queries and
//!   keys; the projections around it are dense ops on the same bytes under other dimensions. A recurrent
//!   layer is one op over all steps; states that come and go are further rows of its input and its states. A
//!   volume's convolution is an op; its pools run one axis after the other as pools of images, since maxima
//!   and means of windows are those of their lines.
//! - **A batch's statistics are a node of their own,** so that normalising again is one pass and moves no
//!   average twice.
//! - **Memory moves that change the graph are rewrites** (`rewrite`), one closed enum: a plan names them, and
//!   what they make costs stands beside the costs. `Slice` runs a part of the network in slices of the batch:
//!   some tensors hold a slice's rows (`Tensor::slice`), `PutRows` writes a slice into the boundary and
//!   `TakeRows` reads one of its gradient; the part is a prefix (`region`), or the last layer with its loss and
//!   gradients (`tail`). `FuseProducer` lets readers recompute an activation inside their own kernels.
//!   `FuseUpdate` runs the optimizer where the gradient is computed: one node for producer, zero and update,
//!   after the last reader of the old weight; never where others read the gradient (norms, checks, sums over
//!   steps) or it is added to twice.
//! - **The checker does not trust a rewrite** (`rewrite/compare.rs`): it takes fused ops apart into their
//!   parts, gives equal values equal numbers, and compares what both graphs leave. What is computed of all
//!   slices, each once, is what is computed of all rows.
//! - **A sum joins the node that computes one of its terms** (`summand`): a residual is added by the product,
//!   or by the gradient of the normalisation, that writes the branch.
//! - **What is asked of weights stands beside the graph** (`penalties` and `constraints`, as `initial` does,
//!   and `activities` for what is asked of activations, each a loss without targets).
//! - **What changes bits can be pinned** (`pinned`): micro-batch, region and algorithms are data of the
//!   problem that the planner may be restricted to; `check` holds it to them.
//! - **What a device can do is data** (`capabilities`): fusions, offload memory, whose memory the arena is, overlap. Gradients,
//!   jobs and the runner read it, and none of them asks which device it is.
//! - **Which convolutions use Winograd is one of these data,** a matter of geometry alone: what rewrites graphs reads it and the
//!   kernels decide by the same value, so that they agree, and an image's bits do not depend on its batch. No shape rule reads it: a
//!   fused op is valid for every geometry that its parts have a meaning for.
//! - **A cost is data:** a node's workspace and time are affine in its rows, and a device may offer several
//!   algorithms of one node, each with less workspace than the one before it and slower.
//! - **`check` shares no code with the planner or the packer,** runs the plan in its head, and is the only
//!   constructor of `CheckedPlan`; the runner takes nothing else. It knows no other workspaces than those of
//!   the costs, and rejects a plan that touches bytes while a copy to or from them is under way.
//! - **Graphs, problems and plans have an exact text form** (`text`): one line for each tensor, node, cost
//!   and step, parsed back to the same value, bit for bit. A type's text follows from one list of its fields
//!   (`text/fields.rs`), which does not compile while a field is missing. What parses can be planned: ids
//!   exist, values are written before they are read, sizes do not overflow.
//! - **A plan's digest is made of numbers alone** (`digest`), so that renaming changes none.
//! - **Random numbers are counter-based** (`random`), and synthetic rows are a function of seed and place
//!   (`synthetic_values`): host and device draw the same numbers, and any part can be drawn again.

mod add_epilogue;
mod attention;
mod augment;
mod bytes;
mod capabilities;
mod chain;
mod check;
mod counts;
mod digest;
mod distance;
mod dtype;
mod fused;
mod geometry;
mod graph;
mod mask;
mod matmul;
mod metric;
mod noise;
mod op;
mod pinned;
mod plan;
mod problem;
mod producer;
pub mod random;
mod recurrent;
mod rewrite;
mod rules;
mod shape;
mod signature;
mod synthetic_values;
mod text;
mod update;
mod weight_rules;

pub use add_epilogue::AddEpilogue;
pub use attention::{Attention, AttentionDropout};
pub use augment::{Augment, Change, Fill, Sampling};
pub use bytes::{Bytes, ParseBytesError};
pub use capabilities::{ArenaMemory, Capabilities, Fusions, Offload, Winograd, WinogradFilter};
pub use chain::{Binary, Chain, Link, Saves, Unary};
pub use check::{CheckError, CheckedPlan, check};
pub use counts::{AtRate, Counts, Curve, Rate, Summation, Thresholds};
pub use distance::{Distance, Reduction};
pub use dtype::DType;
pub use fused::{Fused, Part, Parts, Value};
pub use geometry::{Conv2D, Conv3D, Interpolation, Pads, Pool2D, PooledConv2D};
pub use graph::{Graph, Initializer, Kind, LayerId, Node, NodeId, Phase, Tensor, TensorId};
pub use mask::Mask;
pub use matmul::{MatMul, MatMulSizes};
pub use metric::{ClassAverage, ClassOf, FBeta, Iou, Metric, RowValue};
pub use noise::{Noise, NoiseKind};
pub use op::{Loss, LossKind, Norm, Op};
pub use pinned::Pinned;
pub use plan::{ALIGNMENT, Place, Plan, Slot, Step};
pub use problem::{Budget, Cost, LOW_WORKSPACE, LowWorkspace, Nanos, Problem, Transfers};
pub use producer::Producer;
pub use recurrent::{Cell, Gate, Recurrent};
pub use rewrite::{
    Cut, Difference, FusedUpdate, ProducerFusion, ProducerFusions, Region, Rewrite, Rewritten, Slice, Tail,
    UpdateFusion, compare,
};
pub use rules::{ShapeError, Type, infer};
pub use shape::Shape;
pub use signature::{Along, Axes, CostClass, Facts, Named, Operand, OperandList, Presence, Signature};
pub use synthetic_values::{SyntheticValues, Values};
pub use text::TextError;
pub use update::{Accumulate, Average, CheckUpdate, Clip, Update, UpdateRule};
pub use weight_rules::{Constraint, Orthogonal, Regularizer};
