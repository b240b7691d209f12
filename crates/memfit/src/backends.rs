//! Which device runs: names of devices, and the crates that open them. Without the feature `cuda` there are no GPUs here, and their
//! names are refused.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use memfit_device::{Allocator, Backend, DeviceError};
use memfit_ir::Capabilities;

use crate::Job;

/// Which device runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The first GPU where there is one with its libraries, else the CPU.
    #[default]
    Best,
    /// The CPU.
    Cpu,
    /// A GPU by its number.
    #[cfg(feature = "cuda")]
    Cuda(usize),
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Best => f.write_str("best"),
            Choice::Cpu => f.write_str("cpu"),
            #[cfg(feature = "cuda")]
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
            None if text == "cuda" => gpu(0),
            Some(("cuda", number)) if let Ok(number) = number.parse() => gpu(number),
            Some(_) | None => Err(format!("unknown device `{text}`; write cpu, cuda or cuda:N")),
        }
    }
}

/// A GPU by its number.
#[cfg(feature = "cuda")]
fn gpu(number: usize) -> Result<Choice, String> {
    Ok(Choice::Cuda(number))
}

/// Why there is no GPU in this build, and how to get one that has them.
#[cfg(not(feature = "cuda"))]
pub(crate) const WITHOUT_CUDA: &str = "this memfit was built without CUDA; write cpu, or build it with the feature `cuda`, which cargo \
                                       takes unless it is given `--no-default-features`";

#[cfg(not(feature = "cuda"))]
fn gpu(_number: usize) -> Result<Choice, String> {
    Err(WITHOUT_CUDA.to_owned())
}

impl Choice {
    /// The device that is meant on this machine.
    pub fn settled(self) -> Choice {
        match self {
            #[cfg(feature = "cuda")]
            Choice::Best if memfit_cuda::is_usable() => Choice::Cuda(0),
            Choice::Best | Choice::Cpu => Choice::Cpu,
            #[cfg(feature = "cuda")]
            Choice::Cuda(number) => Choice::Cuda(number),
        }
    }
}

/// What a device is opened for.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// Threads of a CPU; by default as many as this process may use at once.
    pub threads: Option<usize>,
    /// The most rows of a micro-batch.
    pub rows: usize,
    /// Whether a GPU may round the factors of f32 products to ten bits, as Keras does by default.
    pub tf32: bool,
    /// The vector instructions of a run that goes on; without their name, the environment's, or the widest.
    pub vectors: Option<&'a str>,
    /// Who provides the arenas of a CPU; mapped pages by default.
    pub allocator: Option<&'a Arc<dyn Allocator>>,
}

impl Choice {
    /// What the device that is meant on this machine offers, for decisions that come before it is opened. An open one answers for
    /// itself.
    pub fn capabilities(self) -> Capabilities {
        match self.settled() {
            Choice::Cpu | Choice::Best => memfit_cpu::capabilities(),
            #[cfg(feature = "cuda")]
            Choice::Cuda(_) => memfit_cuda::capabilities(),
        }
    }

    /// Opens the device.
    pub fn open(self, opening: Opening<'_>) -> Result<Box<dyn Backend>, DeviceError> {
        match self.settled() {
            Choice::Cpu | Choice::Best => {
                memfit_cpu::open_with(opening.threads, opening.vectors, opening.allocator.cloned())
            }
            #[cfg(feature = "cuda")]
            Choice::Cuda(number) => memfit_cuda::open(number, opening.rows, opening.tf32),
        }
    }
}

impl Job {
    /// What the device offers that it runs on.
    pub(crate) fn capabilities(&self) -> Capabilities {
        self.train.device.capabilities()
    }

    /// Opens the device that it runs on.
    pub(crate) fn open_device(&self, threads: Option<usize>) -> Result<Box<dyn Backend>, DeviceError> {
        let (rows, tf32) = (self.train.batch, self.train.tf32.unwrap_or(true));
        // A run on a device without a choice of them has no name of theirs.
        let vectors = self.caller.vectors.as_deref().filter(|name| !name.is_empty());
        let allocator = self.caller.allocator.as_ref();
        let mut setup = self.train.device.open(Opening { threads, rows, tf32, vectors, allocator })?;
        if self.memory.fixed_algorithms {
            setup.fix_algorithms();
        }
        Ok(setup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(not(feature = "cuda"))]
    fn a_gpu_is_refused_with_how_to_get_it() {
        assert_eq!((Choice::Best.settled(), "cpu".parse()), (Choice::Cpu, Ok(Choice::Cpu)));
        for text in ["cuda", "cuda:3"] {
            assert!(text.parse::<Choice>().unwrap_err().contains("build it with the feature `cuda`"));
        }
    }

    #[test]
    #[cfg(feature = "cuda")]
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
