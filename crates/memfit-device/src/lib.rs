//! memfit's devices: what a backend and a device are, and what all of them have in common.
//!
//! A [`Backend`] can still allocate and says what nodes cost; [`Backend::seal`] turns it into a [`Device`], which
//! owns one arena and never asks an allocator for anything again. The CPU is the crate `memfit-cpu`, which has an
//! example; NVIDIA GPUs are `memfit-cuda`, and `memfit-reference` computes in f64 for tests. Nothing here plans, reads a user's file or prints.
//!
//! # Decisions
//!
//! - **`Backend` to `Device` is a one-way door:** a `Backend` can allocate; sealing consumes it.
//! - **A kernel says what workspace it wants** in the function above it; the answer is affine in the rows, so
//!   that it is data in `Cost`.
//! - **What "fastest" means is measured** (`measure`) where a choice depends on time: each distinct op and
//!   shape is timed once, in a mapping below the budget that is given back, for at most about 3 seconds (a
//!   twentieth of one where Python asks for a plan alone, the longest of each class first). The rest is the
//!   backend's estimate, scaled as that of similar nodes was.
//! - **Who provides the arena's bytes is a trait** (`memory`): mapped pages unless a caller gives an allocator.
//! - **The heap is counted, thread by thread** (`heap`), so that what planning holds is the same figure in
//!   every run.
//! - **Nothing that is not finite is written to what outlives a step.** Kernels raise `found_inf` instead,
//!   which stops the run at the end of the step.
//! - **Loss scaling is two numbers in `Context`,** folded into `Loss` and `Update`.
//! - **Offload memory** is a file without a name beside an arena in the process (`store`), where a copy is over
//!   when it returns, and pinned host memory beside a GPU.
#![expect(unsafe_code, reason = "this crate owns the arena and asks the system for what it holds")]

mod arena;
mod backend;
mod device;
mod elements;
mod error;
pub mod found_inf;
pub mod heap;
mod measure;
pub mod memory;
pub mod process;
mod store;
pub mod workspace;

pub use arena::Arena;
pub use backend::{Backend, DeviceMemory};
pub use device::{Asynchronous, Context, Device, Peak, as_floats};
pub use elements::{Element, bytes_of};
pub use error::DeviceError;
pub use found_inf::Kept;
pub use measure::{Allowance, Coverage, Line, Measured, Table};
pub use memory::{Allocator, BUFFER_SLACK, Buffer, HUGE_PAGE, MappedPages, Memory, SharedMemory, page};
pub use store::{Store, reserve};
