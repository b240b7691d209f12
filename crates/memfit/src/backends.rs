//! Which device runs: names of devices, and the crates that open them.

use std::fmt;
use std::str::FromStr;

use memfit_device::{Backend, DeviceError};
use memfit_ir::Capabilities;

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
        match self {
            Choice::Best if memfit_cuda::is_usable() => Choice::Cuda(0),
            Choice::Best | Choice::Cpu => Choice::Cpu,
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
}

impl Choice {
    /// What the device that is meant on this machine offers, for decisions that come before it is opened. An open one answers for
    /// itself.
    pub fn capabilities(self) -> Capabilities {
        match self.settled() {
            Choice::Cpu | Choice::Best => memfit_cpu::capabilities(),
            Choice::Cuda(_) => memfit_cuda::capabilities(),
        }
    }

    /// Opens the device.
    pub fn open(
        self,
        Opening { threads, rows, tf32, vectors }: Opening<'_>,
    ) -> Result<Box<dyn Backend>, DeviceError> {
        match self.settled() {
            Choice::Cpu | Choice::Best => memfit_cpu::open_with(threads, vectors),
            Choice::Cuda(number) => memfit_cuda::open(number, rows, tf32),
        }
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
