//! Small relatives of five known networks: under every budget they train to the same bits, and a larger
//! budget is never worse.

use memfit_formats::{Mode, Options, graph_from_layers};
use memfit_grad::{Optimizer, Training};
use memfit_ir::{Bytes, Kind, Loss, LossKind, Plan, Problem, TensorId};
use memfit_testkit::harness::{problem, runner_of, step};
use memfit_testkit::op_cases::draw_values;
use serde_json::{Value, json};

/// A network with the batch it is trained on: one row where rows are independent, so that nothing is split.
struct Network {
    name: &'static str,
    layers: Vec<Value>,
    batch: usize,
}

#[test]
fn two_steps_under_any_budget_give_the_bits_of_the_unconstrained_run() {
    let (mut recomputed, mut offloaded, mut folded) = (0, 0, 0);
    for network in networks() {
        for with_store in [false, true] {
            let mut problem = network.problem();
            if with_store {
                // Computing is so slow that offloading is often cheaper.
                problem.budget.host = Bytes(1 << 30);
                problem.costs.iter_mut().for_each(|cost| cost.nanos_fixed *= 10.0);
            }
            let whole = memfit_plan::plan(&problem).unwrap();
            let smallest = memfit_plan::smallest(&problem);
            let reference = trained(&problem, whole.clone(), network.batch);
            for quarter in 0..4 {
                let span = whole.bytes_peak.0 - smallest.bytes_peak.0;
                let line = Bytes(smallest.bytes_peak.0 + span * quarter / 4);
                let tight = below(&problem, problem.budget.smallest(line));
                let plan = memfit_plan::plan(&tight).unwrap();
                assert_eq!(plan.micro_batches(), 1, "{}: nothing can be split", network.name);
                assert!(plan.bytes_peak <= tight.budget.arena());
                recomputed += usize::from(memfit_plan::nodes_recomputed(&plan) > 0);
                offloaded += usize::from(plan.bytes_host > Bytes::ZERO);
                folded += usize::from(plan.producers_fused().next().is_some());
                let got = trained(&tight, plan, network.batch);
                assert!(got == reference, "{} at {line}, store {with_store}: other bits", network.name);
            }
        }
    }
    let counts = format!("{recomputed} plans recompute, {offloaded} copy out, {folded} fold");
    assert!(recomputed >= 30 && offloaded >= 8 && folded >= 8, "{counts}");
}

#[test]
fn a_larger_budget_is_never_slower_and_one_below_the_smallest_is_refused() {
    for network in networks() {
        let problem = network.problem();
        let whole = memfit_plan::plan(&problem).unwrap();
        let smallest = memfit_plan::smallest_budget(&problem);
        let most = problem.budget.smallest(whole.bytes_peak);
        let mut before = f64::INFINITY;
        for index in 0..40 {
            let line = Bytes(smallest.0 + (most.0 - smallest.0) * index / 39);
            let plan = memfit_plan::plan(&below(&problem, line)).unwrap();
            assert!(problem.budget.smallest(plan.bytes_peak) <= line, "{} at {line}", network.name);
            let seconds = memfit_plan::seconds(&problem, &plan);
            assert!(seconds <= before * (1.0 + 1e-9), "{}: {line} gives a slower plan", network.name);
            let bound = memfit_plan::least_seconds(&problem, &plan);
            assert!(bound <= seconds * (1.0 + 1e-9), "{}: {line} beats its bound", network.name);
            before = seconds;
        }
        assert_eq!(before, memfit_plan::seconds(&problem, &whole), "{}: the whole line", network.name);
        let refusal = memfit_plan::plan(&below(&problem, smallest - Bytes(1))).unwrap_err();
        assert_eq!(refusal.smallest, smallest, "{}", network.name);
    }
}

impl Network {
    fn problem(&self) -> Problem {
        let options = Options { mode: Mode::Training, seed: 3, precision: None };
        let forward = graph_from_layers(&self.layers, None, &options).unwrap();
        let kind = LossKind::CategoricalCrossentropy { from_logits: false, label_smoothing: 0.0 };
        let training =
            Training { losses: vec![Loss { kind, weight: 1.0 }], ..Training::new(Optimizer::adam()) };
        let problem = problem(&forward, &training, self.batch);
        println!("{}: {} nodes", self.name, problem.graph.nodes.len());
        problem
    }
}

fn below(problem: &Problem, line: Bytes) -> Problem {
    let mut tight = problem.clone();
    tight.budget.total = line;
    tight
}

/// Bits of all weights, and of both losses, after two steps. The runner compares the measured peak with the
/// plan's.
fn trained(problem: &Problem, plan: Plan, batch: usize) -> Vec<Vec<u32>> {
    let mut runner = runner_of(problem, plan);
    memfit::initialize(&mut runner);
    let mut bits = Vec::new();
    for number in 0..2 {
        let values = draw_values(&problem.graph, batch, 3 + number);
        let record = step(&mut runner, number, batch, 0.01, &values);
        bits.push(vec![(record.loss as f32).to_bits()]);
    }
    let ids = (0..problem.graph.tensors.len()).map(TensorId);
    let weights = ids.filter(|id| matches!(problem.graph.tensors[id.0].kind, Kind::Weight { .. }));
    bits.extend(weights.map(|id| runner.floats(id).iter().map(|value| value.to_bits()).collect()));
    bits
}

fn networks() -> Vec<Network> {
    vec![
        Network { name: "ResNet", layers: resnet(), batch: 4 },
        Network { name: "MobileNetV2", layers: mobilenet(), batch: 4 },
        Network { name: "DenseNet", layers: densenet(), batch: 4 },
        Network { name: "U-Net", layers: unet(), batch: 1 },
        Network { name: "transformer", layers: transformer(), batch: 1 },
    ]
}

/// Layers one after the other, each under a name of its own.
struct List {
    layers: Vec<Value>,
}

impl List {
    fn input(shape: &[usize]) -> (List, String) {
        let layers = vec![json!({"class": "Input", "shape": shape, "name": "input"})];
        (List { layers }, "input".to_owned())
    }

    fn add(&mut self, class: &str, inputs: &[&str], arguments: Value) -> String {
        let name = format!("{}_{}", class.to_lowercase(), self.layers.len());
        let mut layer = json!({"class": class, "name": name, "inputs": inputs});
        let arguments = arguments.as_object().unwrap().clone();
        layer.as_object_mut().unwrap().extend(arguments);
        self.layers.push(layer);
        name
    }

    fn conv(&mut self, from: &str, filters: usize, size: usize, strides: usize, activation: &str) -> String {
        let arguments = json!({
            "filters": filters, "kernel_size": size, "strides": strides, "padding": "same", "activation": activation,
        });
        self.add("Conv2D", &[from], arguments)
    }

    /// A convolution without a bias, its normalisation, and where wanted a ReLU, with or without a ceiling.
    fn conv_norm(&mut self, from: &str, filters: usize, size: usize, strides: usize, relu: Relu) -> String {
        let arguments = json!({
            "filters": filters, "kernel_size": size, "strides": strides, "padding": "same", "use_bias": false,
        });
        let conv = self.add("Conv2D", &[from], arguments);
        self.norm(&conv, relu)
    }

    fn norm(&mut self, from: &str, relu: Relu) -> String {
        let norm = self.add("BatchNormalization", &[from], json!({}));
        match relu {
            Relu::None => norm,
            Relu::Plain => self.add("ReLU", &[&norm], json!({})),
            Relu::Six => self.add("ReLU", &[&norm], json!({"max_value": 6.0})),
        }
    }

    fn classifier(mut self, from: &str) -> Vec<Value> {
        let pooled = self.add("GlobalAveragePooling2D", &[from], json!({}));
        self.add("Dense", &[&pooled], json!({"units": 5, "activation": "softmax"}));
        self.layers
    }
}

#[derive(Clone, Copy)]
enum Relu {
    None,
    Plain,
    Six,
}

/// Bottleneck blocks: narrow, work, widen, and a sum over them.
fn resnet() -> Vec<Value> {
    let (mut list, input) = List::input(&[16, 16, 3]);
    let mut x = list.conv_norm(&input, 8, 3, 1, Relu::Plain);
    for (index, filters) in [4, 4, 8].into_iter().enumerate() {
        let strides = if index == 2 { 2 } else { 1 };
        let wide = 4 * filters;
        let shortcut = if index == 1 { x.clone() } else { list.conv_norm(&x, wide, 1, strides, Relu::None) };
        let y = list.conv_norm(&x, filters, 1, strides, Relu::Plain);
        let y = list.conv_norm(&y, filters, 3, 1, Relu::Plain);
        let y = list.conv_norm(&y, wide, 1, 1, Relu::None);
        let sum = list.add("Add", &[&shortcut, &y], json!({}));
        x = list.add("ReLU", &[&sum], json!({}));
    }
    list.classifier(&x)
}

/// Inverted residuals: widen, work on each channel alone, narrow, and a sum where the sizes agree.
fn mobilenet() -> Vec<Value> {
    let (mut list, input) = List::input(&[16, 16, 3]);
    let mut x = list.conv_norm(&input, 4, 3, 1, Relu::Six);
    for (strides, filters) in [(1, 4), (2, 8), (1, 8)] {
        let wide = list.conv_norm(&x, 6 * filters, 1, 1, Relu::Six);
        let arguments = json!({"kernel_size": 3, "strides": strides, "padding": "same", "use_bias": false});
        let deep = list.add("DepthwiseConv2D", &[&wide], arguments);
        let deep = list.norm(&deep, Relu::Six);
        let narrow = list.conv_norm(&deep, filters, 1, 1, Relu::None);
        x = if strides == 1 { list.add("Add", &[&x, &narrow], json!({})) } else { narrow };
    }
    let x = list.conv_norm(&x, 16, 1, 1, Relu::Six);
    list.classifier(&x)
}

/// Blocks in which every layer reads what all before it wrote.
fn densenet() -> Vec<Value> {
    let (mut list, input) = List::input(&[16, 16, 3]);
    let mut x = list.conv_norm(&input, 8, 3, 1, Relu::Plain);
    for block in 0..2 {
        for _ in 0..3 {
            let y = list.norm(&x, Relu::Plain);
            let y = list.conv_norm(&y, 16, 1, 1, Relu::Plain);
            let y = list.conv(&y, 4, 3, 1, "linear");
            x = list.add("Concatenate", &[&x, &y], json!({}));
        }
        if block == 0 {
            let y = list.norm(&x, Relu::Plain);
            let y = list.conv(&y, 10, 1, 1, "linear");
            x = list.add("AveragePooling2D", &[&y], json!({"pool_size": 2}));
        }
    }
    let x = list.norm(&x, Relu::Plain);
    list.classifier(&x)
}

/// Down, and up again, with skip connections from the way down.
fn unet() -> Vec<Value> {
    let (mut list, input) = List::input(&[32, 32, 3]);
    let mut x = input;
    let mut skips = Vec::new();
    for filters in [4, 8, 16] {
        x = list.conv(&x, filters, 3, 1, "relu");
        x = list.conv(&x, filters, 3, 1, "relu");
        skips.push((filters, x.clone()));
        x = list.add("MaxPooling2D", &[&x], json!({"pool_size": 2}));
    }
    x = list.conv(&x, 32, 3, 1, "relu");
    x = list.conv(&x, 32, 3, 1, "relu");
    for (filters, skip) in skips.into_iter().rev() {
        x = list.add("UpSampling2D", &[&x], json!({}));
        x = list.conv(&x, filters, 2, 1, "relu");
        x = list.add("Concatenate", &[&skip, &x], json!({}));
        x = list.conv(&x, filters, 3, 1, "relu");
        x = list.conv(&x, filters, 3, 1, "relu");
    }
    list.conv(&x, 2, 1, 1, "softmax");
    list.layers
}

/// Pre-norm blocks over tokens, and a classifier.
fn transformer() -> Vec<Value> {
    let layers = vec![json!({"class": "Input", "shape": [24], "dtype": "int32", "name": "input"})];
    let mut list = List { layers };
    let mut x = list.add("Embedding", &["input"], json!({"input_dim": 11, "output_dim": 32}));
    for _ in 0..3 {
        let y = list.add("LayerNormalization", &[&x], json!({}));
        let y = list.add("MultiHeadAttention", &[&y, &y], json!({"num_heads": 4, "key_dim": 8}));
        x = list.add("Add", &[&x, &y], json!({}));
        let y = list.add("LayerNormalization", &[&x], json!({}));
        let y = list.add("Dense", &[&y], json!({"units": 64, "activation": "gelu"}));
        let y = list.add("Dense", &[&y], json!({"units": 32}));
        x = list.add("Add", &[&x, &y], json!({}));
    }
    let x = list.add("LayerNormalization", &[&x], json!({}));
    let pooled = list.add("GlobalAveragePooling1D", &[&x], json!({}));
    list.add("Dense", &[&pooled], json!({"units": 5, "activation": "softmax"}));
    list.layers
}
