//! memfit's device: all memory, all `unsafe`, the kernels, and what a node costs here.
//!
//! A [`Setup`] can still allocate and says what nodes cost; [`Setup::seal`] turns it into a [`Device`], which
//! owns one arena and never asks an allocator for anything again. Nothing here plans, reads a user's file or
//! prints.
//!
//! ```
//! use memfit_device::{Context, open};
//! use memfit_ir::{Bytes, Chain, DType, Graph, Kind, NodeId, Op, Shape, Slot, Unary};
//!
//! let mut graph = Graph::default();
//! let layer = graph.layer("relu");
//! let x = graph.tensor("x", Shape::rows([2]), DType::F32, Kind::Input, layer);
//! graph.push(Op::Elementwise(Chain::unary(Unary::Relu)), &[x], layer)?;
//!
//! let setup = open(Some(1))?;
//! assert_eq!(setup.costs(&graph)[0].workspace(2), Bytes::ZERO);
//!
//! let mut device = setup.seal(Bytes(128))?;
//! let (input, output) = (Slot { offset: Bytes(0), bytes: Bytes(16) }, Slot { offset: Bytes(64), bytes: Bytes(16) });
//! let workspace = Slot { offset: Bytes(0), bytes: Bytes(0) };
//! let context = Context { step: 0, iteration: 0, row_start: 0, rows: 2, rows_total: 2, learning_rate: 0.1, loss_scale: 1.0, seed: 7 };
//! device.floats_mut(input).copy_from_slice(&[-1.0, 2.0, 3.0, -4.0]);
//! device.launch(&graph, NodeId(0), &[input, output], workspace, false, &context);
//! assert_eq!(device.floats(output), [0.0, 2.0, 3.0, 0.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Decisions
//!
//! - **`Setup` to `Device` is a one-way door:** `Setup` can allocate; sealing consumes it.
//! - **A kernel says what workspace it wants** in the function above it; the answer is affine in the rows, so
//!   that it is data in `Cost`. Results do not depend on the number of threads: work is cut by shape, and
//!   partial sums are added in a fixed order.
//! - **What "fastest" means is measured** (`measure`) where a choice depends on time: each distinct op and
//!   shape is timed once, in a mapping below the budget that is given back, for at most about 3 seconds (a
//!   twentieth of one where Python asks for a plan alone, the longest of each class first). The rest is the
//!   estimate of `cpu/cost.rs`, scaled as that of similar nodes was.
//! - **The heap is counted, thread by thread** (`heap`), so that what planning holds is the same figure in
//!   every run.
//! - **Nothing that is not finite is written to what outlives a step.** On a CPU, every kernel that writes a
//!   weight, its state, its average, a sum of gradients or a moving statistic computes a block beside the old
//!   one (`cpu/optimizer/blocks.rs`), writes it only if all of it is finite, and otherwise raises
//!   `found_inf`, which stops the run at the end of the step.
//! - **Loss scaling is two numbers in `Context`,** folded into `Loss` and `Update`.
//! - **Offload memory** is a file without a name on the CPU (`store`), where a copy is over when it returns,
//!   and pinned host memory on a GPU.
//!
//! The kernels of the CPU are in `cpu`, those of NVIDIA GPUs in `cuda`; each has its own decisions on its
//! first page.
#![expect(unsafe_code, reason = "this crate owns the arena and the kernels; every other crate stays safe")]

mod arena;
mod cpu;
pub mod cuda;
mod device;
mod error;
mod found_inf;
pub mod heap;
mod measure;
pub mod process;
mod setup;
mod store;
#[cfg(test)]
mod tests;

pub use arena::HUGE_PAGE;
pub use device::{Asynchronous, Context, Device};
pub use error::DeviceError;
pub use found_inf::Kept;
pub use measure::{Allowance, Coverage, Line, Measured, Table};
pub use setup::{Choice, Setup, open, open_again, open_on, vectors};
pub use store::reserve;
