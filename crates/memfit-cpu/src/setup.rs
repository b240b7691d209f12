//! The CPU before training starts: threads are started, costs are estimated, and the arena is taken once.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;

use memfit_device::{Allocator, Arena, Backend, Device, DeviceError, Store, page, process};
use memfit_ir::{
    ArenaMemory, Bytes, Capabilities, Cost, Fusions, Graph, NodeId, Offload, ProducerFusions, Rewritten,
    UpdateFusion,
};

use super::convolution::WINOGRAD;
use super::device::CpuDevice;
use super::lanes::Level;
use super::threads::Threads;
use super::{cost, fused};

/// The CPU, which can still allocate.
pub(crate) struct Cpu {
    threads: Arc<Threads>,
    store: Option<Store>,
    /// Who provides arenas; mapped pages where it is not said.
    allocator: Option<Arc<dyn Allocator>>,
}

/// Opens the CPU with `threads` threads; by default as many as this process may use at once, which is the
/// number of cores or the control group's share of them.
pub fn open(threads: Option<usize>) -> Result<Box<dyn Backend>, DeviceError> {
    open_with(threads, None, None)
}

/// The same for a run that goes on, whose kernels used these vector instructions; without their name, the environment's, or
/// the widest. An allocator, where there is one, provides every arena: that of the training, and that of a validation beside it.
pub fn open_with(
    threads: Option<usize>,
    vectors: Option<&str>,
    allocator: Option<Arc<dyn Allocator>>,
) -> Result<Box<dyn Backend>, DeviceError> {
    let count = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, NonZero::get));
    let level = vectors.map_or_else(Level::chosen, Level::wanted);
    let level = level.map_err(|reason| DeviceError::Vectors { reason })?;
    let threads = Threads::at(count, level).map_err(|reason| DeviceError::Threads { count, reason })?;
    Ok(Box::new(Cpu::on(Arc::new(threads), allocator)))
}

/// What every CPU offers, whatever its vector instructions.
pub fn capabilities() -> Capabilities {
    Capabilities {
        fusions: Fusions { winograd_max_pool: Some(WINOGRAD), max_pool_dense: true, neighbours: false },
        rounds_weights: false,
        offload: Offload::Disk,
        arena: ArenaMemory::Process,
        granule: Bytes(page() as u64),
        steps_ahead: 0,
    }
}

/// The names of all vector instructions that this machine has and the environment's `MEMFIT_VECTORS` may name, the widest
/// last.
pub fn vectors() -> Vec<&'static str> {
    Level::available().map(Level::name).collect()
}

impl Cpu {
    /// The CPU on threads that run already.
    pub(crate) fn on(threads: Arc<Threads>, allocator: Option<Arc<dyn Allocator>>) -> Cpu {
        Cpu { threads, store: None, allocator }
    }
}

impl Backend for Cpu {
    fn name(&self) -> String {
        "cpu".to_owned()
    }

    fn hardware(&self) -> String {
        format!("{} {}", process::processor(), self.threads.vectors())
    }

    fn threads(&self) -> usize {
        self.threads.count()
    }

    fn vectors(&self) -> Option<&'static str> {
        Some(self.threads.vectors())
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    fn costs(&self, graph: &Graph) -> Vec<Cost> {
        graph.nodes.iter().map(|node| cost::cost(graph, node, self.threads())).collect()
    }

    fn costs_rewritten(&self, graph: &Graph) -> BTreeMap<Rewritten, Cost> {
        let (fused, readers) = ProducerFusions::all(graph);
        let cost = |id: NodeId| cost::cost(&fused, &fused.nodes[id.0], self.threads());
        let readers = readers.into_iter().map(|id| (Rewritten::Reader(id), cost(id)));
        let updates = UpdateFusion::all(graph)
            .into_iter()
            .filter(|fusion| fused::applies_exactly(graph, &fusion.node))
            .map(|fusion| {
                (Rewritten::Update(fusion.gradient), cost::cost(graph, &fusion.node, self.threads()))
            });
        readers.chain(updates).collect()
    }

    fn take_offload(&mut self, folder: &Path, bytes: Bytes) -> Result<(), DeviceError> {
        let store = Store::create(folder, bytes);
        self.store =
            Some(store.map_err(|reason| DeviceError::Store { folder: folder.to_owned(), bytes, reason })?);
        Ok(())
    }

    fn scratch(&self, arena: Bytes) -> Result<Box<dyn Device>, DeviceError> {
        Ok(Box::new(CpuDevice::new(Arc::clone(&self.threads), Arena::map(arena)?, None, None)))
    }

    fn seal(self: Box<Self>, arena: Bytes) -> Result<Box<dyn Device>, DeviceError> {
        let arena = Arena::take(arena, self.allocator.as_deref())?;
        Ok(Box::new(CpuDevice::new(self.threads, arena, self.store, self.allocator)))
    }
}
