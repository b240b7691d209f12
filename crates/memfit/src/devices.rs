//! What there is to run on, and what each device offers: the CPU, GPUs with who holds how much of them, and NVIDIA's libraries with how
//! to get those that are missing.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
mod without_cuda;

#[cfg(feature = "cuda")]
use cuda::Cuda;
use memfit_device::process::{self, Limits};
use memfit_ir::Capabilities;
use serde_json::{Map, Value, json};
#[cfg(not(feature = "cuda"))]
use without_cuda::Cuda;

/// Everything that a job can run on, and what it would need to run elsewhere.
#[derive(Clone, Debug)]
pub struct Devices {
    /// The processor's name.
    pub processor: String,
    /// Threads that this process may run at once.
    pub threads: usize,
    /// What it may hold.
    pub limits: Limits,
    cuda: Cuda,
}

impl Devices {
    /// Looks.
    pub fn find() -> Devices {
        Devices {
            processor: process::processor(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            limits: process::limits(),
            cuda: Cuda::find(),
        }
    }

    /// For a person.
    pub fn text(&self) -> String {
        let Devices { processor, threads, limits, cuda } = self;
        let cpu = format!("cpu      {processor}, {threads} threads, {} by {}", limits.available, limits.by);
        let text = format!("{cpu}\n{}\n{}", indented(&memfit_cpu::capabilities()), cuda.text());
        text.trim_end().to_owned()
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let cpu = json!({
            "name": self.processor,
            "threads": self.threads,
            "bytes_available": self.limits.available.0,
            "limited_by": self.limits.by.to_string(),
            "capabilities": to_json(&memfit_cpu::capabilities()),
        });
        let mut devices = Map::from_iter([("cpu".to_owned(), cpu)]);
        self.cuda.write_json(&mut devices);
        Value::Object(devices)
    }
}

/// The lines of a device's capabilities, under its name.
fn indented(capabilities: &Capabilities) -> String {
    let lines: Vec<String> =
        capabilities.to_string().lines().map(|line| format!("         {line}")).collect();
    lines.join("\n")
}

fn to_json(capabilities: &Capabilities) -> Value {
    let Capabilities { fusions, rounds_weights, offload, arena, granule, steps_ahead } = capabilities;
    json!({
        "fusions": fusions.names(),
        "rounds_weights": rounds_weights,
        "offload": offload.name(),
        "arena": arena.name(),
        "granule": granule.0,
        "steps_ahead": steps_ahead,
    })
}
