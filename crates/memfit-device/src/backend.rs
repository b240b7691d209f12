//! A backend: a device that is open and can still allocate. It says what nodes cost there, and then takes one arena.

use std::collections::BTreeMap;
use std::path::Path;

use memfit_ir::{Bytes, Capabilities, Cost, Graph, Rewritten, Transfers};

use crate::measure::{self, Allowance, Measured, Table};
use crate::{Device, DeviceError};

/// A device that can still allocate. [`Backend::seal`] ends that.
pub trait Backend: Send + Sync {
    /// What its results depend on: `cpu`, or the name of a GPU.
    fn name(&self) -> String;

    /// What its times depend on: the model of the processor with its vector instructions, or the name of a GPU.
    fn hardware(&self) -> String;

    /// How many threads run kernels.
    fn threads(&self) -> usize {
        1
    }

    /// What the vector instructions are called that kernels use, where results depend on them.
    fn vectors(&self) -> Option<&'static str> {
        None
    }

    /// The device's memory, where its arena is not memory of this process.
    fn memory(&self) -> Result<Option<DeviceMemory>, DeviceError> {
        Ok(None)
    }

    /// What it offers beyond running ops one by one.
    fn capabilities(&self) -> Capabilities;

    /// Makes everything ready that a graph needs beside its arena.
    fn make_ready(&self, _graph: &Graph) -> Result<(), DeviceError> {
        Ok(())
    }

    /// What bytes take on their way into the arena and out of it; synthetic rows are drawn on the device
    /// itself.
    fn transfers(&self, _synthetic_values: bool) -> Transfers {
        Transfers::default()
    }

    /// Offers only the fastest algorithm for each node, so that no budget changes how results are rounded.
    fn fix_algorithms(&mut self) {}

    /// What each node of a graph costs here, estimated from its arithmetic and its bytes.
    fn costs(&self, graph: &Graph) -> Vec<Cost>;

    /// What rewrites of a graph make costs here, as far as there are kernels for it.
    fn costs_rewritten(&self, _graph: &Graph) -> BTreeMap<Rewritten, Cost> {
        BTreeMap::new()
    }

    /// Takes offload memory of `bytes` bytes: of the disk that a folder is on, or of the host beside a GPU.
    fn take_offload(&mut self, folder: &Path, bytes: Bytes) -> Result<(), DeviceError>;

    /// Takes room on the host for the readback of each step, where the device goes on before that is read.
    fn take_readback(&mut self, _bytes: Bytes) {}

    /// A device for timing, with an arena of at most `arena` bytes, beside this one.
    fn scratch(&self, arena: Bytes) -> Result<Box<dyn Device>, DeviceError>;

    /// Takes an arena of `arena` bytes, all of them resident from now on. Nothing is allocated after this.
    fn seal(self: Box<Self>, arena: Bytes) -> Result<Box<dyn Device>, DeviceError>;
}

/// How much of a device's own memory is left, and who holds the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// What no process holds.
    pub free: Bytes,
    /// What this process holds.
    pub held: Bytes,
    /// What other processes held when the device was opened.
    pub held_by_others: Bytes,
}

impl<'a> dyn Backend + 'a {
    /// What each node of a graph costs here, timed at up to `batch` rows in memory that is freed afterwards;
    /// see [`Table`] for what is timed at all.
    pub fn measure(&self, graph: &Graph, batch: usize, allowance: Allowance, known: &mut Table) -> Measured {
        measure::measure(self, graph, self.costs(graph), batch, allowance, known)
    }
}
