//! Which device runs: devices that exist are listed, and others are refused by name. Training on a GPU next
//! to the CPU is skipped where there is none.

use std::fs;
use std::process::Output;

use memfit::DeviceChoice;

use crate::harness::{errors, lines, losses, memfit};

const JOB: &str = r#"
[[model.layers]]
class = "Input"
shape = [12, 12, 3]
[[model.layers]]
class = "Conv2D"
filters = 8
kernel_size = 3
activation = "relu"
[[model.layers]]
class = "MaxPooling2D"
[[model.layers]]
class = "Flatten"
[[model.layers]]
class = "Dense"
units = 4
activation = "softmax"
[train]
loss = "sparse_categorical_crossentropy"
optimizer = "adam"
batch = 16
steps = 10
"#;

fn train(device: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.toml");
    fs::write(&path, JOB).unwrap();
    memfit(&["train", path.to_str().unwrap(), "--device", device, "--json"])
}

fn has_gpu() -> bool {
    DeviceChoice::Best.settled() != DeviceChoice::Cpu
}

#[test]
fn devices_are_listed_with_what_is_missing_and_how_to_get_it() {
    let output = memfit(&["devices"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.starts_with("cpu "), "{text}");
    for library in ["CUDA driver", "NVRTC", "cuBLASLt", "cuDNN"] {
        let line = text.lines().find(|line| line.starts_with(library)).unwrap();
        assert!(!line.contains("missing") || line.contains("install"), "{line}");
    }
    let json: serde_json::Value = serde_json::from_slice(&memfit(&["devices", "--json"]).stdout).unwrap();
    assert_eq!(json["gpus"].as_array().unwrap().is_empty(), text.contains("no GPU"));
}

#[test]
fn a_device_that_is_not_there_is_refused_before_anything_runs() {
    let unknown = train("tpu");
    assert_eq!(unknown.status.code(), Some(2));
    assert!(errors(&unknown).contains("write cpu, cuda or cuda:N"));
    let output = train(if has_gpu() { "cuda:99" } else { "cuda" });
    let words = errors(&output);
    let trained = String::from_utf8_lossy(&output.stdout).contains("\"step\"");
    assert!(!output.status.success() && !trained, "{words}");
    assert!(words.contains("not here") || words.contains("no GPU"), "{words}");
}

#[test]
fn a_gpu_trains_as_the_cpu_does() {
    if !has_gpu() {
        println!("skipped: no GPU with its libraries");
        return;
    }
    let (cpu, gpu) = (losses(&lines(&train("cpu"))), losses(&lines(&train("cuda"))));
    assert_eq!((cpu.len(), gpu.len()), (10, 10));
    for (cpu, gpu) in cpu.iter().zip(&gpu) {
        assert!((cpu - gpu).abs() <= 1e-3 * cpu.abs(), "{gpu} on the GPU, {cpu} on the CPU");
    }
}
