//! NVIDIA GPUs: libraries that are opened at run time, one arena in device memory, and kernels compiled for the device.
//!
//! Nothing here is needed to build, and a machine without a GPU says so in one sentence. What a node runs is decided by pure
//! functions in `lower`; what touches the device stands beside them.

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
mod roofline;
mod store;
mod times;
pub(crate) mod told;
mod updates;
pub mod usage;
pub mod work;

pub use driver::{CudaError, Description, descriptions};
pub use gpu::Gpu;
pub use joined::joined as lowered_joined;

use memfit_ir::{Bytes, Graph, Node};

use call::Call;
use work::{Lowered, Work};

/// The kernels of a graph at so many rows, each text once, as they are handed to the compiler. For looking at kernels where there
/// is no device.
pub fn kernel_texts(graph: &Graph, rows: usize) -> Vec<String> {
    let both = |node| [false, true].map(|tf32| lower::lower(&call_of(graph, node, rows, false, tf32)).work);
    let work = graph.nodes.iter().flat_map(both).flatten().chain(joined::all(graph, rows, false));
    let mut texts: Vec<String> = work
        .filter_map(|work| match work {
            Work::Kernel(kernel) | Work::Finish(kernel) | Work::Update(kernel) => {
                Some(compiler::text(&kernel.source))
            }
            Work::Zero { .. } | Work::Copy { .. } | Work::Product(_) | Work::Convolution(_) => None,
        })
        .collect();
    texts.sort();
    texts.dedup();
    texts
}

/// What runs for a node at so many rows; where factors may be rounded to TF32, as on a device with tensor cores for them.
pub fn lowered(graph: &Graph, node: &Node, rows: usize, fresh: bool, tf32: bool) -> Lowered {
    lower::lower(&call_of(graph, node, rows, fresh, tf32))
}

/// A node at the rows of a piece.
fn call_of<'a>(graph: &'a Graph, node: &'a Node, rows: usize, fresh: bool, tf32: bool) -> Call<'a> {
    let slice = graph.slice_of(node);
    let row_start = slice.map_or(0, |slice| slice.start(rows));
    Call { graph, node, rows: slice.map_or(rows, |slice| slice.rows(rows)), row_start, fresh, tf32 }
}

/// The arena of a GPU is taken in multiples of this.
pub(crate) fn granule(gpu: &Gpu) -> Bytes {
    // A device that is open tells; where it does not, two megabytes are what every one has.
    memory::granule(&gpu.context).unwrap_or(Bytes::mib(2))
}
