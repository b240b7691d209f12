//! A GPU before training starts: kernels are compiled, libraries timed, and the arena is taken once.

use std::path::Path;
use std::sync::Arc;

use memfit_device::{Backend, Device, DeviceError, DeviceMemory};
use memfit_ir::{ArenaMemory, Bytes, Capabilities, Cost, Fusions, Graph, Offload, Transfers};

use super::cost;
use super::device::CudaDevice;
use super::driver::CudaError;
use super::gpu::Gpu;
use super::memory;
use super::readback::STEPS_IN_FLIGHT;

/// What a byte takes between host and GPU: twenty gigabytes a second, as pinned memory on a bus of the fourth generation reaches.
const NANOS_PER_BYTE_OVER_THE_BUS: f64 = 0.05;

/// Memory in which libraries are timed, at most.
const TIMING_MOST: Bytes = Bytes(16 << 30);

/// A GPU that can still allocate, and what is known of the job.
pub(crate) struct Cuda {
    gpu: Arc<Gpu>,
    /// The most rows of a micro-batch: algorithms are chosen for them.
    rows: usize,
    store: Option<Bytes>,
    /// Bytes of a step's readback.
    readback: Bytes,
    /// Whether a node is only computed by its fastest algorithm.
    fixed: bool,
}

/// Opens a GPU by its number for micro-batches of at most `rows`. `tf32` lets it round the factors of f32 products to ten bits, as
/// Keras does by default.
pub fn open(number: usize, rows: usize, tf32: bool) -> Result<Box<dyn Backend>, DeviceError> {
    Ok(Box::new(Cuda { rows: rows.max(1), ..Cuda::on(Gpu::open(number, tf32)?) }))
}

/// What every GPU offers. An open one reports its own granule; two megabytes are what all have so far.
pub fn capabilities() -> Capabilities {
    Capabilities {
        fusions: Fusions { winograd_max_pool: None, max_pool_dense: false, neighbours: true },
        rounds_weights: true,
        offload: Offload::Host,
        arena: ArenaMemory::Device,
        granule: Bytes::mib(2),
        steps_ahead: STEPS_IN_FLIGHT - 1,
    }
}

impl Cuda {
    /// A GPU that is open already, for a plan that was made for it.
    pub(crate) fn on(gpu: Arc<Gpu>) -> Cuda {
        Cuda { gpu, rows: 1, store: None, readback: Bytes::ZERO, fixed: false }
    }
}

impl Backend for Cuda {
    fn name(&self) -> String {
        self.gpu.description().name.clone()
    }

    fn hardware(&self) -> String {
        self.name()
    }

    fn memory(&self) -> Result<Option<DeviceMemory>, DeviceError> {
        let (free, held_by_others) = self.gpu.bytes_free()?;
        Ok(Some(DeviceMemory { free, held: self.gpu.bytes_used()?, held_by_others }))
    }

    fn capabilities(&self) -> Capabilities {
        let offered = capabilities();
        Capabilities { granule: memory::granule(&self.gpu.context).unwrap_or(offered.granule), ..offered }
    }

    fn make_ready(&self, graph: &Graph) -> Result<(), DeviceError> {
        self.gpu.load(graph, self.rows)?;
        self.gpu.time_libraries(graph, self.rows, TIMING_MOST)?;
        for node in &graph.nodes {
            self.gpu.workspace(graph, node, self.rows)?;
        }
        Ok(())
    }

    fn transfers(&self, synthetic_values: bool) -> Transfers {
        let roofline = &self.gpu.roofline;
        let nanos_per_byte_fed =
            if synthetic_values { 1.0 / roofline.bytes_per_nano } else { NANOS_PER_BYTE_OVER_THE_BUS };
        Transfers {
            nanos_per_byte_fed,
            nanos_per_byte_moved: NANOS_PER_BYTE_OVER_THE_BUS,
            feeds_ahead: !synthetic_values,
            // Read and written.
            nanos_per_byte_copied: 2.0 / roofline.bytes_per_nano,
        }
    }

    fn fix_algorithms(&mut self) {
        self.fixed = true;
    }

    fn costs(&self, graph: &Graph) -> Vec<Cost> {
        let cost = |node| {
            let cost = cost::cost(&self.gpu, graph, node, self.rows);
            if self.fixed { Cost { leaner: Default::default(), ..cost } } else { cost }
        };
        graph.nodes.iter().map(cost).collect()
    }

    fn take_offload(&mut self, _folder: &Path, bytes: Bytes) -> Result<(), DeviceError> {
        self.store = Some(bytes);
        Ok(())
    }

    fn take_readback(&mut self, bytes: Bytes) {
        self.readback = bytes;
    }

    fn scratch(&self, arena: Bytes) -> Result<Box<dyn Device>, DeviceError> {
        Ok(Box::new(CudaDevice::new(Arc::clone(&self.gpu), arena, None, Bytes::ZERO)?))
    }

    fn seal(self: Box<Self>, arena: Bytes) -> Result<Box<dyn Device>, DeviceError> {
        let (free, others) = self.gpu.bytes_free()?;
        if free < arena {
            return Err(DeviceError::DeviceFull { arena, free, others });
        }
        Ok(Box::new(CudaDevice::new(self.gpu, arena, self.store, self.readback)?))
    }
}

impl From<CudaError> for DeviceError {
    fn from(error: CudaError) -> DeviceError {
        DeviceError::Unusable(Box::new(error))
    }
}
