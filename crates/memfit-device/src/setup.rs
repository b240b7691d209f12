//! Before training starts: a device is opened, costs are estimated, and the arena is taken once.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZero;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use memfit_ir::{Bytes, Cost, Folding, Graph, NodeId, TensorId, Transfers, UpdateFusion};

use crate::arena::{self, Arena};
use crate::cpu::cost;
use crate::cpu::lanes::Level;
use crate::cpu::threads::Threads;
use crate::cuda::device::CudaDevice;
use crate::cuda::{self, Gpu};
use crate::measure::{self, Allowance, Measured, Table};
use crate::store::Store;
use crate::{Device, DeviceError, process};

/// Which device runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The first GPU where there is one with its libraries, else the CPU.
    #[default]
    Best,
    /// The CPU.
    Cpu,
    /// A GPU by its number.
    Cuda(usize),
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Best => f.write_str("best"),
            Choice::Cpu => f.write_str("cpu"),
            Choice::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Choice, String> {
        match text.split_once(':') {
            None if text == "best" => Ok(Choice::Best),
            None if text == "cpu" => Ok(Choice::Cpu),
            None if text == "cuda" => Ok(Choice::Cuda(0)),
            Some(("cuda", number)) if let Ok(number) = number.parse() => Ok(Choice::Cuda(number)),
            Some(_) | None => Err(format!("unknown device `{text}`; write cpu, cuda or cuda:N")),
        }
    }
}

impl Choice {
    /// The device that is meant on this machine.
    pub fn settled(self) -> Choice {
        let has_gpu = || {
            cuda::descriptions().is_ok_and(|known| !known.is_empty())
                && cuda::libraries::missing().next().is_none()
        };
        match self {
            Choice::Best if has_gpu() => Choice::Cuda(0),
            Choice::Best | Choice::Cpu => Choice::Cpu,
            Choice::Cuda(number) => Choice::Cuda(number),
        }
    }
}

/// A device that can still allocate. [`Setup::seal`] ends that.
pub struct Setup {
    threads: Arc<Threads>,
    store: Option<Store>,
    gpu: Option<OnGpu>,
}

/// What a byte takes between host and GPU: twenty gigabytes a second, as pinned memory on a bus of the fourth generation reaches.
const NANOS_PER_BYTE_OVER_THE_BUS: f64 = 0.05;

/// Memory in which libraries are timed, at most.
const TIMING_MOST: Bytes = Bytes(16 << 30);

/// What is known of a job on a GPU.
struct OnGpu {
    gpu: Arc<Gpu>,
    /// The most rows of a micro-batch: algorithms are chosen for them.
    rows: usize,
    store: Option<Bytes>,
    /// Bytes of a step's readback.
    readback: Bytes,
    /// Whether a node is only computed by its fastest algorithm.
    fixed: bool,
}

/// Opens the CPU with `threads` threads; by default as many as this process may use at once, which is the
/// number of cores or the control group's share of them.
pub fn open(threads: Option<usize>) -> Result<Setup, DeviceError> {
    open_with(threads, None)
}

/// The same with the vector instructions of a name, where one is given.
fn open_with(threads: Option<usize>, vectors: Option<&str>) -> Result<Setup, DeviceError> {
    let count = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, NonZero::get));
    let level = vectors.map_or_else(Level::chosen, Level::wanted);
    let level = level.map_err(|reason| DeviceError::Vectors { reason })?;
    let threads = Threads::at(count, level).map_err(|reason| DeviceError::Threads { count, reason })?;
    Ok(Setup { threads: Arc::new(threads), store: None, gpu: None })
}

/// Opens a device for micro-batches of at most `rows`. `tf32` lets a GPU round the factors of f32 products to ten bits, as Keras
/// does by default.
pub fn open_on(
    choice: Choice,
    threads: Option<usize>,
    rows: usize,
    tf32: bool,
) -> Result<Setup, DeviceError> {
    open_again(choice, threads, rows, tf32, None)
}

/// Opens a device for a run that goes on, whose kernels used these vector instructions; without their name, the environment's, or
/// the widest.
pub fn open_again(
    choice: Choice,
    threads: Option<usize>,
    rows: usize,
    tf32: bool,
    vectors: Option<&str>,
) -> Result<Setup, DeviceError> {
    match choice.settled() {
        Choice::Cpu | Choice::Best => open_with(threads, vectors),
        Choice::Cuda(number) => {
            let gpu = OnGpu {
                gpu: Gpu::open(number, tf32)?,
                rows: rows.max(1),
                store: None,
                readback: Bytes::ZERO,
                fixed: false,
            };
            // The host only feeds.
            Ok(Setup { gpu: Some(gpu), ..open(Some(1))? })
        }
    }
}

/// The names of all vector instructions that this machine has and the environment's `MEMFIT_VECTORS` may name, the widest
/// last.
pub fn vectors() -> Vec<&'static str> {
    Level::available().map(Level::name).collect()
}

impl Setup {
    /// A device on threads that run already.
    pub(crate) fn on(threads: Arc<Threads>) -> Setup {
        Setup { threads, store: None, gpu: None }
    }

    /// A GPU that is open already, for a plan that was made for it.
    pub(crate) fn on_gpu(threads: Arc<Threads>, gpu: Arc<Gpu>) -> Setup {
        Setup {
            threads,
            store: None,
            gpu: Some(OnGpu { gpu, rows: 1, store: None, readback: Bytes::ZERO, fixed: false }),
        }
    }

    /// How many threads run kernels.
    pub fn threads(&self) -> usize {
        self.threads.count()
    }

    /// What the vector instructions are called that kernels use.
    pub fn vectors(&self) -> &'static str {
        self.threads.vectors()
    }

    /// The GPU, where it is one.
    pub fn gpu(&self) -> Option<&Gpu> {
        self.gpu.as_ref().map(|on| &*on.gpu)
    }

    /// The arena is taken in multiples of this: a page, or a GPU's granule.
    pub fn granule(&self) -> Bytes {
        match &self.gpu {
            None => Bytes(arena::page() as u64),
            Some(on) => cuda::granule(&on.gpu),
        }
    }

    /// Makes everything ready that a graph needs beside its arena.
    pub fn make_ready(&self, graph: &Graph) -> Result<(), DeviceError> {
        let Some(on) = &self.gpu else { return Ok(()) };
        on.gpu.load(graph, on.rows)?;
        on.gpu.time_libraries(graph, on.rows, TIMING_MOST)?;
        for node in &graph.nodes {
            on.gpu.workspace(graph, node, on.rows)?;
        }
        Ok(())
    }

    /// What bytes take on their way into the arena and out of it; synthetic rows are drawn on the device
    /// itself.
    pub fn transfers(&self, synthetic_values: bool) -> Transfers {
        let Some(on) = &self.gpu else { return Transfers::default() };
        let nanos_per_byte_fed =
            if synthetic_values { 1.0 / on.gpu.roofline.bytes_per_nano } else { NANOS_PER_BYTE_OVER_THE_BUS };
        Transfers {
            nanos_per_byte_fed,
            nanos_per_byte_moved: NANOS_PER_BYTE_OVER_THE_BUS,
            feeds_ahead: !synthetic_values,
            // Read and written.
            nanos_per_byte_copied: 2.0 / on.gpu.roofline.bytes_per_nano,
        }
    }

    /// Offers only the fastest algorithm for each node, so that no budget changes how results are rounded.
    pub fn fix_algorithms(&mut self) {
        if let Some(on) = &mut self.gpu {
            on.fixed = true;
        }
    }

    /// What each node of a graph costs here, estimated from its arithmetic and its bytes.
    pub fn costs(&self, graph: &Graph) -> Vec<Cost> {
        let nodes = graph.nodes.iter();
        match &self.gpu {
            None => nodes.map(|node| cost::cost(graph, node, self.threads())).collect(),
            Some(on) => nodes
                .map(|node| {
                    let cost = cuda::cost::cost(&on.gpu, graph, node, on.rows);
                    if on.fixed { Cost { leaner: Default::default(), ..cost } } else { cost }
                })
                .collect(),
        }
    }

    /// What readers of values cost here where they make them themselves. A GPU is not asked: its memory is so fast that little would
    /// be saved.
    pub fn costs_folded(&self, graph: &Graph) -> BTreeMap<NodeId, Cost> {
        if self.gpu.is_some() {
            return BTreeMap::new();
        }
        let (folded, readers) = Folding::all(graph);
        let cost = |id: &NodeId| cost::cost(&folded, &folded.nodes[id.0], self.threads());
        readers.iter().map(|id| (*id, cost(id))).collect()
    }

    /// What applying gradients where they are made costs here. A GPU is not asked: it would make them whole in its workspace.
    pub fn costs_applied(&self, graph: &Graph) -> BTreeMap<TensorId, Cost> {
        if self.gpu.is_some() {
            return BTreeMap::new();
        }
        let mut costs = BTreeMap::new();
        for UpdateFusion { gradient, node, .. } in UpdateFusion::all(graph) {
            if cost::applies_exactly(graph, &node) {
                costs.insert(gradient, cost::cost(graph, &node, self.threads()));
            }
        }
        costs
    }

    /// What each node of a graph costs here, timed at up to `batch` rows in memory that is freed afterwards;
    /// see [`Table`] for what is timed at all.
    pub fn measure(&self, graph: &Graph, batch: usize, allowance: Allowance, known: &mut Table) -> Measured {
        measure::measure(self, graph, self.costs(graph), batch, allowance, known)
    }

    /// A device for timing, with an arena of at most `arena` bytes.
    pub(crate) fn scratch(&self, arena: Bytes) -> Result<Device, DeviceError> {
        match &self.gpu {
            None => Ok(Device::new(Arc::clone(&self.threads), Arena::map(arena)?, None)),
            Some(on) => {
                let device = CudaDevice::new(Arc::clone(&on.gpu), arena, None, Bytes::ZERO)?;
                Ok(Device::on_gpu(Arc::clone(&self.threads), device))
            }
        }
    }

    /// Takes offload memory of `bytes` bytes: of the disk that a folder is on, or of the host beside a GPU.
    pub fn take_store(&mut self, folder: &Path, bytes: Bytes) -> Result<(), DeviceError> {
        if let Some(on) = &mut self.gpu {
            on.store = Some(bytes);
            return Ok(());
        }
        let store = Store::create(folder, bytes);
        self.store =
            Some(store.map_err(|reason| DeviceError::Store { folder: folder.to_owned(), bytes, reason })?);
        Ok(())
    }

    /// Takes room on the host for the readback of each step, where the device goes on before that is read.
    pub fn take_readback(&mut self, bytes: Bytes) {
        if let Some(on) = &mut self.gpu {
            on.readback = bytes;
        }
    }

    /// Takes an arena of `arena` bytes, all of them resident from now on. Nothing is allocated after this.
    pub fn seal(self, arena: Bytes) -> Result<Device, DeviceError> {
        if let Some(on) = self.gpu {
            let (free, others) = on.gpu.bytes_free()?;
            if free < arena {
                return Err(DeviceError::DeviceFull { arena, free, others });
            }
            return Ok(Device::on_gpu(self.threads, CudaDevice::new(on.gpu, arena, on.store, on.readback)?));
        }
        let (limits, resident) = (process::limits(), process::resident());
        if limits.available.saturating_sub(resident) < arena {
            return Err(DeviceError::NoRoom { arena, resident, available: limits.available, by: limits.by });
        }
        Ok(Device::new(self.threads, Arena::map(arena)?, self.store))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_they_are_written() {
        for (text, choice) in [("cpu", Choice::Cpu), ("cuda", Choice::Cuda(0)), ("cuda:3", Choice::Cuda(3))] {
            assert_eq!(text.parse(), Ok(choice));
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        for wrong in ["gpu", "cuda:", "cuda:x", "cpu:1", ""] {
            assert!(wrong.parse::<Choice>().unwrap_err().contains("write cpu, cuda or cuda:N"));
        }
    }
}
