//! Before the door: threads are started, costs are told, and the arena is taken once.

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;

use memfit_ir::{Bytes, Cost, Graph};

use crate::arena::{self, Arena};
use crate::cpu::cost;
use crate::cpu::lanes::Level;
use crate::cpu::threads::Threads;
use crate::measure::{self, Allowance, Measured, Table};
use crate::store::Store;
use crate::{Device, DeviceError, process};

/// A device that can still allocate. [`Setup::seal`] ends that.
pub struct Setup {
    threads: Arc<Threads>,
    store: Option<Store>,
}

/// Opens the CPU with so many threads; by default as many as this process may use at once, which is the number of cores
/// or the control group's share of them.
pub fn open(threads: Option<usize>) -> Result<Setup, DeviceError> {
    let count = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, NonZero::get));
    let level = Level::chosen().map_err(|reason| DeviceError::Vectors { reason })?;
    let threads = Threads::at(count, level).map_err(|reason| DeviceError::Threads { count, reason })?;
    Ok(Setup { threads: Arc::new(threads), store: None })
}

/// The names of all vector instructions that this machine has and the environment's `MEMFIT_VECTORS` may name, the widest
/// last.
pub fn vectors() -> Vec<&'static str> {
    Level::available().map(Level::name).collect()
}

impl Setup {
    /// A device on threads that run already.
    pub(crate) fn on(threads: Arc<Threads>) -> Setup {
        Setup { threads, store: None }
    }

    /// How many threads run kernels.
    pub fn threads(&self) -> usize {
        self.threads.count()
    }

    /// What the vector instructions are called that kernels use.
    pub fn vectors(&self) -> &'static str {
        self.threads.vectors()
    }

    /// The arena is taken in multiples of this: a page.
    pub fn granule(&self) -> Bytes {
        Bytes(arena::page() as u64)
    }

    /// What each node of a graph costs here, estimated from its arithmetic and its bytes.
    pub fn costs(&self, graph: &Graph) -> Vec<Cost> {
        graph.nodes.iter().map(|node| cost::cost(graph, node, self.threads())).collect()
    }

    /// What each node of a graph costs here, timed at up to `batch` rows in memory that is given back; see [`Table`] for what is
    /// timed at all.
    pub fn measure(&self, graph: &Graph, batch: usize, allowance: Allowance, known: &mut Table) -> Measured {
        measure::measure(&self.threads, graph, self.costs(graph), batch, allowance, known)
    }

    /// Takes so many bytes of the disk that a folder is on, for values to be copied out to.
    pub fn take_store(&mut self, folder: &Path, bytes: Bytes) -> Result<(), DeviceError> {
        let store = Store::create(folder, bytes);
        self.store =
            Some(store.map_err(|reason| DeviceError::Store { folder: folder.to_owned(), bytes, reason })?);
        Ok(())
    }

    /// Takes an arena of so many bytes, all of them resident from now on. Nothing is allocated after this.
    pub fn seal(self, arena: Bytes) -> Result<Device, DeviceError> {
        let (limits, resident) = (process::limits(), process::resident());
        if limits.available.saturating_sub(resident) < arena {
            return Err(DeviceError::NoRoom { arena, resident, available: limits.available, by: limits.by });
        }
        Ok(Device::new(self.threads, Arena::map(arena)?, self.store))
    }
}
