//! The GPU beside the CPU: every kernel compiles, and every node of the op table gives what the CPU gives.
//!
//! Compiling needs NVRTC alone (`pip install nvidia-cuda-nvrtc`, then `MEMFIT_CUDA_LIBS=…/site-packages`), running a GPU. Tests
//! skip with a word where there is neither. Built here, this binary can be carried to a machine that has a GPU and no cargo.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on says where it stopped"
)]

use std::collections::BTreeMap;

use memfit_device::cuda::libraries::{self, Library};
use memfit_device::cuda::{compiler, kernel_texts};
use memfit_grad::{Optimizer, Training, training_graph};
use memfit_ir::{DType, Graph, Kind, TensorId};
use memfit_testkit::halves::in_type;
use memfit_testkit::op_cases::{OpCase, ROWS, op_cases};

/// The training graphs of the op table in every type, with their names.
fn graphs() -> Vec<(String, Graph)> {
    let mut graphs = Vec::new();
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        for case in op_cases() {
            let forward =
                if dtype == DType::F32 { case.forward.clone() } else { in_type(&case.forward, dtype) };
            graphs.push((format!("{dtype} {}", case.name), trained(&case, &forward)));
        }
    }
    graphs
}

fn trained(case: &OpCase, forward: &Graph) -> Graph {
    let is_leaf = |id: &TensorId| {
        let tensor = &forward.tensors[id.0];
        let leaf = tensor.kind == Kind::Input || tensor.kind == Kind::Weight { trainable: true };
        leaf && tensor.dtype == DType::F32
    };
    let training = Training {
        losses: vec![case.loss.clone()],
        sample_weights: case.sample_weights,
        gradients_of: (0..forward.tensors.len()).map(TensorId).filter(is_leaf).collect(),
        ..Training::new(Optimizer::sgd(0.0))
    };
    training_graph(forward, &training).unwrap()
}

#[test]
fn every_kernel_compiles() {
    if libraries::missing().contains(&Library::Compiler) {
        println!("skipped: no NVRTC; {}", Library::Compiler.remedy());
        return;
    }
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    let mut missing: BTreeMap<String, usize> = BTreeMap::new();
    for (name, graph) in graphs() {
        let (known, lacking) = kernel_texts(&graph, ROWS);
        texts.extend(known.into_iter().map(|text| (text, name.clone())));
        for what in lacking {
            let op = what.split(' ').next().unwrap().to_owned();
            *missing.entry(op).or_default() += 1;
        }
    }
    let filter = std::env::var("ONLY").unwrap_or_default();
    let mut failures = Vec::new();
    let mut compiled = 0;
    for (text, name) in texts.iter().filter(|(_, name)| name.contains(&filter)) {
        compiled += 1;
        if let Err(words) = compiler::compile(text, "sm_90") {
            failures.push(format!("{name}:\n{words}"));
        }
    }
    println!("{compiled} texts compiled, {} of them wrong", failures.len());
    println!("ops without a kernel: {missing:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
