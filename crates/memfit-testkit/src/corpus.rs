//! The corpus of frozen problems: which jobs it contains, how each becomes a problem, and the table of their
//! plans.
//!
//! `corpus/NAME.txt` is a problem without a budget; `corpus/plans.tsv` has a row for each problem and budget. Problems are frozen: tests
//! read the texts alone. `tools/corpus.py` regenerates them, which changes problems wherever layers,
//! gradients or costs have changed. Where only the text form has changed, it migrates them.

use std::path::{Path, PathBuf};

use memfit::{Job, ModelFile, Precision, compiled, parse_metric};
use memfit_formats::Mode;
use memfit_grad::{OutputMetric, Training, training_graph};
use memfit_ir::{
    Budget, Bytes, Cost, Fused, Graph, LOW_WORKSPACE, Loss, LowWorkspace, Nanos, Node, Op, Pinned, Problem,
    Transfers,
};

/// A budget that nothing reaches.
pub const UNCONSTRAINED: Bytes = Bytes(1 << 40);

/// What the program holds besides the arena, on a processor and with a GPU. It is fixed, so that no machine
/// changes a plan.
const RUNTIME: [Bytes; 2] = [Bytes(32 << 20), Bytes(512 << 20)];

/// The unit in which a GPU's memory is allocated.
const GRANULE_GPU: Bytes = Bytes(2 << 20);

/// Host memory to which values may be offloaded from a GPU.
const HOST_GPU: Bytes = Bytes(2 << 30);

/// One frozen problem.
pub struct Entry {
    /// Its file's name.
    pub name: &'static str,
    from: From,
    precision: Option<Precision>,
    gpu: bool,
}

/// Where a job comes from.
enum From {
    /// `examples/NAME.toml`.
    Example(&'static str),
    /// `NAME.json` of the models that `tools/corpus.py` writes, trained on classes.
    Model(&'static str),
}

/// The folder of the corpus.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Everything that is in it.
pub fn entries() -> Vec<Entry> {
    use From::{Example, Model};
    let cpu = |name, from| Entry { name, from, precision: None, gpu: false };
    let half = |name, from, precision| Entry { name, from, precision: Some(precision), gpu: false };
    let gpu = |name, from| Entry { name, from, precision: None, gpu: true };
    let half_gpu = |name, from, precision| Entry { name, from, precision: Some(precision), gpu: true };
    let (f16, bf16) = (Precision::MixedFloat16, Precision::MixedBfloat16);
    vec![
        cpu("accumulate", Example("accumulate")),
        cpu("deep-dense", Example("deep-dense")),
        cpu("flat", Example("flat")),
        cpu("large-images", Example("large-images")),
        cpu("large-images-batchnorm", Example("large-images-batchnorm")),
        cpu("reduced", Example("reduced")),
        cpu("six-convolutions", Example("six-convolutions")),
        cpu("transformer", Example("transformer")),
        cpu("convnexttiny", Model("ConvNeXtTiny")),
        cpu("densenet121", Model("DenseNet121")),
        cpu("inceptionv3", Model("InceptionV3")),
        cpu("mobilenet", Model("MobileNet")),
        cpu("mobilenetv2", Model("MobileNetV2")),
        cpu("mobilenetv3small", Model("MobileNetV3Small")),
        cpu("resnet50", Model("ResNet50")),
        cpu("resnet50v2", Model("ResNet50V2")),
        cpu("vgg16", Model("VGG16")),
        cpu("xception", Model("Xception")),
        cpu("lstm", Model("lstm")),
        cpu("gru", Model("gru")),
        cpu("bidirectional", Model("bidirectional")),
        half("large-images-batchnorm-f16", Example("large-images-batchnorm"), f16),
        half("lstm-bf16", Model("lstm"), bf16),
        half("mobilenet-bf16", Model("MobileNet"), bf16),
        half("six-convolutions-f16", Example("six-convolutions"), f16),
        half("transformer-f16", Example("transformer"), f16),
        gpu("gpu-gru", Model("gru")),
        gpu("gpu-large-images-batchnorm", Example("large-images-batchnorm")),
        gpu("gpu-mobilenet", Model("MobileNet")),
        gpu("gpu-six-convolutions", Example("six-convolutions")),
        gpu("gpu-transformer", Example("transformer")),
        gpu("gpu-vgg16", Model("VGG16")),
        half_gpu("gpu-bidirectional-f16", Model("bidirectional"), f16),
        half_gpu("gpu-mobilenet-f16", Model("MobileNet"), f16),
        half_gpu("gpu-transformer-bf16", Example("transformer"), bf16),
    ]
}

/// Regenerates an entry's problem; `models` is the folder of the models' JSON.
pub fn problem(entry: &Entry, models: &Path) -> Problem {
    let job = job(entry, models);
    let opened = ModelFile::open(&job, Mode::Training).expect("the model opens");
    let forward = &opened.model.graph;
    let compiled = compiled(&job, &opened).expect("the job is whole");
    let losses: Vec<Loss> =
        compiled.losses.iter().map(|kind| Loss { kind: kind.clone(), weight: 1.0 }).collect();
    let output = &forward.tensors[forward.outputs[0].0];
    let metrics = compiled.metrics[0]
        .iter()
        .map(|value| parse_metric(value, output, losses[0].kind.is_sparse()).expect("a known metric"))
        .map(|metric| OutputMetric { output: 0, metric, weighted: false })
        .collect();
    let capabilities = if entry.gpu { memfit_cuda::capabilities() } else { memfit_cpu::capabilities() };
    let training = Training { losses, metrics, capabilities, ..Training::new(compiled.optimizer.clone()) };
    let graph = training_graph(forward, &training).expect("the model trains");
    let batch = job.train.batch;
    let setup = memfit_cpu::open(Some(2)).expect("a processor opens");
    let runtime = RUNTIME[usize::from(entry.gpu)];
    if entry.gpu {
        let costs = setup.costs(&graph);
        let costs = graph.nodes.iter().zip(costs).map(|(node, cost)| cost_gpu(&graph, node, cost, batch));
        return Problem {
            costs: costs.collect(),
            costs_rewritten: Default::default(),
            graph,
            budget: Budget { total: UNCONSTRAINED, runtime, granule: GRANULE_GPU, host: HOST_GPU },
            batch,
            allow_batchnorm_split: false,
            transfers: Transfers {
                nanos_per_byte_fed: 0.05,
                nanos_per_byte_moved: 0.05,
                nanos_per_byte_copied: 0.0005,
                feeds_ahead: true,
            },
            pinned: Pinned::default(),
        };
    }
    Problem {
        costs: setup.costs(&graph),
        costs_rewritten: setup.costs_rewritten(&graph),
        graph,
        budget: Budget { total: UNCONSTRAINED, runtime, granule: Bytes(4096), host: Bytes::ZERO },
        batch,
        allow_batchnorm_split: false,
        transfers: Transfers::default(),
        pinned: Pinned::default(),
    }
}

fn job(entry: &Entry, models: &Path) -> Job {
    let mut job = match entry.from {
        From::Example(name) => {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
            let text = std::fs::read_to_string(folder.join(format!("{name}.toml"))).expect("an example");
            // 5,000 times the same layer would be 10 MB of text.
            let text = text.replace("repeat = 5000", "repeat = 200");
            Job::parse(&text, folder).expect("an example is a job")
        }
        From::Model(name) => {
            let mut job = Job::for_model(&models.join(format!("{name}.json")));
            job.train.loss = "sparse_categorical_crossentropy".into();
            job.train.optimizer = "adam".into();
            job
        }
    };
    job.train.precision = entry.precision;
    job
}

/// A cost as a GPU might have it, from the processor's by a fixed rule. Everything takes a launch of 2 µs and a five-hundredth of the
/// processor's time. Products and convolutions are a library's and come in four algorithms, whose workspaces are a half, an
/// eighth and a thirty-second of the bytes of their largest operand, and nothing, and which take 0, 8, 25 and 100 % longer. Other ops have an eighth
/// of the processor's workspace.
fn cost_gpu(graph: &Graph, node: &Node, cost: Cost, batch: usize) -> Cost {
    let (nanos_fixed, nanos_per_row) = (2000.0 + cost.nanos_fixed / 500.0, cost.nanos_per_row / 500.0);
    let plain = Cost {
        workspace_fixed: Bytes(cost.workspace(batch).0 / 8).align_up(256),
        workspace_per_row: Bytes::ZERO,
        nanos_fixed,
        nanos_per_row,
        ..Cost::default()
    };
    if !is_of_library(&node.op) {
        return plain;
    }
    let operands = node.inputs.iter().chain(&node.outputs).chain(&node.updates);
    let largest = operands.map(|id| graph.tensors[id.0].bytes(batch)).max().unwrap_or_default();
    let workspace = |share: u64| Bytes(largest.0 / share).align_up(256);
    let mut leaner = [(workspace(8), 0.08), (workspace(32), 0.25), (Bytes::ZERO, 1.0)].into_iter().map(
        |(workspace_fixed, longer)| LowWorkspace {
            workspace_fixed,
            nanos: Nanos { fixed: 0.0, per_row: nanos_per_row * longer },
        },
    );
    let leaner: [Option<LowWorkspace>; LOW_WORKSPACE] = std::array::from_fn(|_| leaner.next());
    Cost { workspace_fixed: workspace(2), leaner, ..plain }
}

fn is_of_library(op: &Op) -> bool {
    matches!(
        op,
        Op::Dense
            | Op::DenseGradInput
            | Op::DenseGradKernel
            | Op::Fused(Fused::Plus(_))
            | Op::Conv2D(_)
            | Op::Fused(Fused::Conv2DRelu(_))
            | Op::Conv2DGradInput(..)
            | Op::Conv2DGradKernel(_)
            | Op::MatMul(_)
    )
}
