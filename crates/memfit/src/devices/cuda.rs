//! NVIDIA GPUs with who holds how much of them, and the libraries that they need.

use std::fmt::Write;
use std::path::Path;

use memfit_cuda::libraries::{self, Found};
use memfit_cuda::usage::{self, Usage};
use memfit_cuda::{Description, descriptions};
use memfit_ir::Bytes;
use serde_json::{Map, Value, json};

use super::{indented, to_json};

/// What there is of CUDA.
#[derive(Clone, Debug)]
pub struct Cuda {
    /// GPUs, with who holds how much of each where the driver reports it.
    gpus: Vec<(Description, Option<Usage>)>,
    /// NVIDIA's libraries, as they were found.
    libraries: Vec<Found>,
    /// Why the driver does not list GPUs, where it does not.
    failure: Option<String>,
}

impl Cuda {
    pub(super) fn find() -> Cuda {
        let (known, failure) = match descriptions() {
            Ok(known) => (known, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let gpus = known.into_iter().map(|gpu| {
            let usage = usage::of_device(&gpu.bus);
            (gpu, usage)
        });
        Cuda { gpus: gpus.collect(), libraries: libraries::find_all().cloned().collect(), failure }
    }

    pub(super) fn text(&self) -> String {
        let Cuda { gpus, libraries, failure } = self;
        let mut text = String::new();
        let mut line = |line: String| writeln!(text, "{line}").expect("a text takes what is written to it");
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
        text
    }

    pub(super) fn write_json(&self, devices: &mut Map<String, Value>) {
        let capabilities = to_json(&memfit_cuda::capabilities());
        devices.insert("cuda".to_owned(), json!({ "capabilities": capabilities }));
        devices.insert("gpus".to_owned(), self.gpus.iter().map(gpu_json).collect());
        devices.insert("libraries".to_owned(), self.libraries.iter().map(library_json).collect());
        devices.insert("failure".to_owned(), json!(self.failure));
    }
}

fn gpu_json((gpu, usage): &(Description, Option<Usage>)) -> Value {
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
}

fn library_json(found: &Found) -> Value {
    json!({
        "name": found.library.name(),
        "found": found.path.is_some(),
        "path": found.path.as_deref().map(place),
        "version": found.version,
        "remedy": found.path.is_none().then(|| found.library.remedy()),
    })
}

fn place(path: &Path) -> String {
    if path.as_os_str().is_empty() { "by the system's loader".to_owned() } else { path.display().to_string() }
}

#[cfg(test)]
mod tests {
    use crate::Devices;

    #[test]
    fn every_library_is_there_or_says_how_to_get_it() {
        let devices = Devices::find();
        let (text, json) = (devices.text(), devices.to_json());
        assert!(text.starts_with("cpu "), "{text}");
        for found in &devices.cuda.libraries {
            assert!(found.path.is_some() || text.contains(found.library.remedy()), "{text}");
        }
        assert_eq!(json["libraries"].as_array().map(Vec::len), Some(4));
        assert_eq!(json["gpus"].as_array().map(Vec::len), Some(devices.cuda.gpus.len()));
    }
}
