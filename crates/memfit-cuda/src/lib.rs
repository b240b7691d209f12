//! NVIDIA GPUs: libraries that are opened at run time, one arena in device memory, and kernels compiled for
//! the device.
//!
//! Nothing here is needed to build, and a machine without a GPU says so in one sentence. What a node runs is
//! decided by pure functions in `lower`; what touches the device stands beside them.
//!
//! # Decisions
//!
//! - **A GPU is a device like the CPU.** `lower` turns a node into data, by a pure function of shapes and
//!   rows: kernels (a text, defines, a grid, arguments), copies, products and convolutions of libraries, and
//!   the workspace of them all. So every kernel compiles and can be read without a GPU, and all but those
//!   that multiply by groups of warps run without one: tests compile them as C++, a fiber a thread, and
//!   compare every node with the CPU. The op match there is exhaustive.
//! - **Steps are captured and replayed.** What changes from step to step is read from a block on the device
//!   and not from arguments, so that a section of the plan that ran twice becomes a graph. The host looks at
//!   copies of slots.
//! - **Copies to and from the host have streams of their own** (`store`), which fork and join by events, in
//!   captured graphs too. Rows that are not synthetic are staged in pinned memory while the device computes
//!   the step before, and copied in beside it; synthetic rows are drawn on the device.
//! - **The readback of a step** is copied after its last launch to pinned memory that has a place for two
//!   steps, so that the next step can be launched before it is read.
//! - **A loss that is not finite sets a flag on the device,** and no kernel that writes what outlives the
//!   step writes while it is set, also in a step that was launched after it. The host learns of it from the
//!   readback.
//! - **Products and convolutions are timed** once in every algorithm that the library offers, with its
//!   workspace; `Cost` has a handful of them, each with less workspace and slower. The size of a launch's
//!   workspace says which one it is, and the device runs the fastest that fits the slot, at any number of
//!   rows. Filters are transposed and rounded into the workspace by each launch.
//! - **Convolutions are cuDNN's operation graphs** (`backend`, `engines`): of the engines that it suggests, a
//!   dozen that give the same result twice and round no more than was asked are the algorithms.
//! - **Filter gradients in TF32 run as f16** where there is much to multiply (`lower/scaled.rs`), with a
//!   power of two for each channel and some rows after the other: f16 has TF32's significant bits, and tensor
//!   cores take it in the order in which an image lies.
//! - **Hopper multiplies by groups of four warps:** kernels are compiled for the very device, and the
//!   gradients of attention in heads of 64 whose queries and keys fill all tiles have their right operands in
//!   shared memory as that instruction wants them; on other devices the same text takes the products of one
//!   warp.
//! - **Updates of weights share a launch** (`updates`): the device keeps them back until something else
//!   comes, at most 48 of one rule.
//! - **Neighbours join** (`joined`): an elementwise node is kept back for the sums over its columns and a
//!   function of its operands that is computed again, and all three are one pass with the bits of three.
//! - **A first convolution and its max pool are one kernel** (`lower/pooled.rs`), on tensor cores where TF32
//!   is allowed. A GPU has the dense layer after it apart, and no fused optimizer update.
#![expect(
    unsafe_code,
    reason = "the driver and NVIDIA's libraries are called, and memory of the device is addressed"
)]

mod backend;
mod call;
mod candidates;
pub mod compiler;
mod convolutions;
pub(crate) mod cost;
pub(crate) mod device;
mod driver;
mod engines;
mod gpu;
mod joined;
pub mod libraries;
mod lower;
mod memory;
mod products;
pub(crate) mod readback;
mod roofline;
mod setup;
mod store;
mod times;
mod updates;
pub mod usage;
pub mod work;

pub use driver::{CudaError, Description, descriptions};
pub use joined::joined as lowered_joined;
pub use setup::{capabilities, open};

use memfit_ir::{Graph, Node, SyntheticValues, Tensor};

use call::Call;
use work::{Kernel, Lowered, Work};

/// Whether there is a GPU with its libraries.
pub fn is_usable() -> bool {
    descriptions().is_ok_and(|known| !known.is_empty()) && libraries::missing().next().is_none()
}

/// Every kernel that a graph may launch: those of its nodes, and those that neighbours share. They are compiled before memory is
/// counted, and where there is no device, to look at them.
pub fn kernels(graph: &Graph, rows: usize, tf32: bool) -> Vec<Kernel> {
    let work = graph.nodes.iter().flat_map(|node| lowered(graph, node, rows, false, tf32).work);
    work.chain(joined::all(graph, rows, tf32)).filter_map(Work::into_kernel).collect()
}

/// The kernel that draws the rows of a synthetic input.
pub fn kernels_synthetic(tensor: &Tensor, synthetic: SyntheticValues) -> Vec<Kernel> {
    let work = lower::synthetic_values::synthetic_values(tensor, synthetic, 1, 0).work;
    work.into_iter().filter_map(Work::into_kernel).collect()
}

/// What runs for a node at `rows` rows; where factors may be rounded to TF32, as on a device with tensor
/// cores for them.
pub fn lowered(graph: &Graph, node: &Node, rows: usize, overwrite: bool, tf32: bool) -> Lowered {
    lower::lower(&call_of(graph, node, rows, overwrite, tf32))
}

/// A node at the rows of a micro-batch.
fn call_of<'a>(graph: &'a Graph, node: &'a Node, rows: usize, overwrite: bool, tf32: bool) -> Call<'a> {
    let slice = graph.slice_of(node);
    let row_start = slice.map_or(0, |slice| slice.start(rows));
    Call { graph, node, rows: slice.map_or(rows, |slice| slice.rows(rows)), row_start, overwrite, tf32 }
}
