//! What there is to run on: the CPU, GPUs with who holds how much of them, and NVIDIA's libraries with how to get those that are
//! missing.

use std::fmt::Write;
use std::path::Path;

use memfit_cuda::libraries::{self, Found};
use memfit_cuda::usage::{self, Usage};
use memfit_cuda::{Description, descriptions};
use memfit_device::process::{self, Limits};
use memfit_ir::{Bytes, Capabilities};
use serde_json::{Value, json};

/// Everything that a job can run on, and what it would need to run elsewhere.
#[derive(Clone, Debug)]
pub struct Devices {
    /// The processor's name.
    pub processor: String,
    /// Threads that this process may run at once.
    pub threads: usize,
    /// What it may hold.
    pub limits: Limits,
    /// GPUs, with who holds how much of each where the driver reports it.
    pub gpus: Vec<(Description, Option<Usage>)>,
    /// NVIDIA's libraries, as they were found.
    pub libraries: Vec<Found>,
    /// Why the driver does not list GPUs, where it does not.
    pub failure: Option<String>,
}

impl Devices {
    /// Looks.
    pub fn find() -> Devices {
        let (known, failure) = match descriptions() {
            Ok(known) => (known, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let gpus = known.into_iter().map(|gpu| {
            let usage = usage::of_device(&gpu.bus);
            (gpu, usage)
        });
        Devices {
            processor: process::processor(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            limits: process::limits(),
            gpus: gpus.collect(),
            libraries: libraries::find_all().cloned().collect(),
            failure,
        }
    }

    /// For a person.
    pub fn text(&self) -> String {
        let Devices { processor, threads, limits, gpus, libraries, failure } = self;
        let mut text = String::new();
        let mut line = |line: String| writeln!(text, "{line}").expect("a text takes what is written to it");
        line(format!("cpu      {processor}, {threads} threads, {} by {}", limits.available, limits.by));
        line(indented(&memfit_cpu::capabilities()));
        for (gpu, usage) in gpus {
            let (major, minor) = gpu.capability;
            line(format!(
                "cuda:{}   {}, generation {major}.{minor}, {}",
                gpu.number, gpu.name, gpu.bytes_total
            ));
            if let Some(usage) = usage {
                let free = usage.bytes_total.saturating_sub(usage.bytes_used);
                let others = usage.processes.len();
                line(format!(
                    "         {free} free, {} held by {others} processes and the driver",
                    usage.bytes_used
                ));
            }
        }
        if gpus.is_empty() {
            line("cuda     no GPU".to_owned());
        } else {
            line(indented(&memfit_cuda::capabilities()));
        }
        if let Some(failure) = failure {
            line(format!("         {failure}"));
        }
        line(String::new());
        for found in libraries {
            let name = found.library.name();
            match &found.path {
                Some(path) => {
                    let version = found.version.as_deref().unwrap_or("of unknown version");
                    line(format!("{name:<12} {version}, {}", place(path)));
                }
                None => line(format!("{name:<12} missing: {}", found.library.remedy())),
            }
        }
        if libraries.iter().any(|found| found.path.is_none()) {
            line("looked in MEMFIT_CUDA_LIBS, CUDA_PATH, CUDA_HOME, the packages of the active Python, and where the system's loader looks".to_owned());
        }
        text.trim_end().to_owned()
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let gpu = |(gpu, usage): &(Description, Option<Usage>)| {
            let bytes = |of: fn(&Usage) -> Bytes| usage.as_ref().map(|usage| of(usage).0);
            let processes = usage.iter().flat_map(|usage| &usage.processes);
            json!({
                "device": format!("cuda:{}", gpu.number),
                "name": gpu.name,
                "capability": [gpu.capability.0, gpu.capability.1],
                "bytes_total": gpu.bytes_total.0,
                "bytes_used": bytes(|usage| usage.bytes_used),
                "bytes_free": bytes(|usage| usage.bytes_total.saturating_sub(usage.bytes_used)),
                "processes": processes
                    .map(|(process, bytes)| json!({"process": process, "bytes": bytes.map(|bytes| bytes.0)}))
                    .collect::<Value>(),
            })
        };
        let library = |found: &Found| {
            json!({
                "name": found.library.name(),
                "found": found.path.is_some(),
                "path": found.path.as_deref().map(place),
                "version": found.version,
                "remedy": found.path.is_none().then(|| found.library.remedy()),
            })
        };
        json!({
            "cpu": {
                "name": self.processor,
                "threads": self.threads,
                "bytes_available": self.limits.available.0,
                "limited_by": self.limits.by.to_string(),
                "capabilities": capabilities(&memfit_cpu::capabilities()),
            },
            "cuda": { "capabilities": capabilities(&memfit_cuda::capabilities()) },
            "gpus": self.gpus.iter().map(gpu).collect::<Value>(),
            "libraries": self.libraries.iter().map(library).collect::<Value>(),
            "failure": self.failure,
        })
    }
}

/// The lines of a device's capabilities, under its name.
fn indented(capabilities: &Capabilities) -> String {
    let lines: Vec<String> =
        capabilities.to_string().lines().map(|line| format!("         {line}")).collect();
    lines.join("\n")
}

fn capabilities(capabilities: &Capabilities) -> Value {
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

fn place(path: &Path) -> String {
    if path.as_os_str().is_empty() { "by the system's loader".to_owned() } else { path.display().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_library_is_there_or_says_how_to_get_it() {
        let devices = Devices::find();
        let (text, json) = (devices.text(), devices.to_json());
        assert!(text.starts_with("cpu "), "{text}");
        for found in &devices.libraries {
            assert!(found.path.is_some() || text.contains(found.library.remedy()), "{text}");
        }
        assert_eq!(json["libraries"].as_array().map(Vec::len), Some(4));
        assert_eq!(json["gpus"].as_array().map(Vec::len), Some(devices.gpus.len()));
    }
}
