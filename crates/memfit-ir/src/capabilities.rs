//! What a device offers beyond running ops one by one: plain data that gradients, jobs and the runner read, so that none of them asks
//! which device it is.

use std::fmt;

use crate::Bytes;

/// What a device offers. The default offers nothing that is optional.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capabilities {
    /// What its kernels compute as one.
    pub fusions: Fusions,
    /// Whether products read weights rounded to f16 or bf16 beside operands of that type, so that a node rounds them first.
    pub rounds_weights: bool,
    /// Where values go that a plan copies out of the arena.
    pub offload: Offload,
    /// Whose memory the arena is.
    pub arena: ArenaMemory,
    /// The arena is taken in multiples of this: a page, or a GPU's granule.
    pub granule: Bytes,
    /// Steps that may be launched before the readback of the current one: 0 where a launch or a copy is over when it returns.
    pub steps_ahead: usize,
}

/// Which nodes a device computes as one, where not every device does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fusions {
    /// A convolution that uses Winograd with the 2×2 max pool after it.
    pub winograd_max_pool: bool,
    /// A convolution, its max pool and a dense layer of few units after them.
    pub max_pool_dense: bool,
    /// Neighbours that read the same values: an elementwise node, the sums over its columns, and what recomputes one of its operands.
    pub neighbours: bool,
}

/// Where values go that a plan copies out of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// To a file in a folder of the user's.
    Disk,
    /// To pinned memory of the host.
    Host,
}

/// Whose memory an arena is, which says what a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArenaMemory {
    /// This process's: the budget covers all that is resident.
    Process,
    /// The device's own: the budget covers what the process holds there.
    Device,
}

impl Default for Capabilities {
    fn default() -> Capabilities {
        Capabilities {
            fusions: Fusions::default(),
            rounds_weights: false,
            offload: Offload::Disk,
            arena: ArenaMemory::Process,
            granule: Bytes(1),
            steps_ahead: 0,
        }
    }
}

impl Fusions {
    /// The name of each that is offered.
    pub fn names(&self) -> Vec<&'static str> {
        let Fusions { winograd_max_pool, max_pool_dense, neighbours } = *self;
        let all = [
            (winograd_max_pool, "winograd_max_pool"),
            (max_pool_dense, "max_pool_dense"),
            (neighbours, "neighbours"),
        ];
        all.into_iter().filter(|(offered, _)| *offered).map(|(_, name)| name).collect()
    }
}

impl Offload {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Offload::Disk => "disk",
            Offload::Host => "host",
        }
    }
}

impl ArenaMemory {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ArenaMemory::Process => "process",
            ArenaMemory::Device => "device",
        }
    }
}

/// One line for each, with its name in front.
impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Capabilities { fusions, rounds_weights, offload, arena, granule, steps_ahead } = self;
        let fusions = fusions.names();
        let fusions = if fusions.is_empty() { "none".to_owned() } else { fusions.join(", ") };
        let weights = if *rounds_weights { "rounded before products of f16 and bf16" } else { "as they are" };
        writeln!(f, "fusions  {fusions}")?;
        writeln!(f, "weights  {weights}")?;
        writeln!(f, "offload  to the {}", offload.name())?;
        writeln!(f, "arena    memory of the {}, in multiples of {granule}", arena.name())?;
        match steps_ahead {
            0 => write!(f, "overlap  none: a launch or a copy is over when it returns"),
            1.. => write!(f, "overlap  copies beside launches; steps ahead: {steps_ahead}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_capability_has_a_line() {
        let plain = Capabilities { granule: Bytes(4096), ..Capabilities::default() };
        let lines = "fusions  none\nweights  as they are\noffload  to the disk\n\
                     arena    memory of the process, in multiples of 4.00 KiB\noverlap  none: a launch or a copy is over when it returns";
        assert_eq!(plain.to_string(), lines);
        let fusions = Fusions { winograd_max_pool: true, max_pool_dense: true, neighbours: false };
        let text = Capabilities { fusions, rounds_weights: true, ..plain }.to_string();
        assert!(text.starts_with("fusions  winograd_max_pool, max_pool_dense\nweights  rounded"), "{text}");
    }
}
