//! The reference beside the CPU: every node from the same bytes, and whole trainings.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use memfit_device::{Backend, Context};
use memfit_formats::{Mode, Options, graph_from_layers};
use memfit_grad::{Optimizer, Training};
use memfit_ir::{Graph, Loss, LossKind, NodeId, Op, Problem, Slot};
use memfit_testkit::device_graphs::device_graphs;
use memfit_testkit::harness::{problem_of, runner_in, step};
use memfit_testkit::node_runs::{CONTEXT, NodeRun, device_of, on_cpu_in};
use memfit_testkit::op_cases::draw_values;
use serde_json::{Value, json};

/// How far the nodes of an op are from the CPU's.
#[derive(Default)]
struct Agreement {
    nodes: usize,
    worst: f64,
}

/// `ONLY` picks cases by a part of their names.
#[test]
fn every_node_agrees_with_the_cpu() {
    compare(&CONTEXT, |_, _| true);
}

/// Draws, updates and scaled gradients depend on where a launch stands in a training.
#[test]
fn every_node_agrees_with_the_cpu_in_a_later_micro_batch() {
    let context = Context { step: 8, iteration: 5, row_start: 4, rows_total: 9, loss_scale: 4.0, ..CONTEXT };
    // A batch in slices is not split.
    let moves_rows =
        |graph: &Graph| graph.nodes.iter().any(|node| matches!(node.op, Op::TakeRows | Op::PutRows));
    compare(&context, |name, graph| {
        !name.starts_with("bf16") && !name.starts_with("f16") && !moves_rows(graph)
    });
}

fn compare(context: &Context, chooses: impl Fn(&str, &Graph) -> bool) {
    let only = std::env::var("ONLY").unwrap_or_default();
    let (mut agreements, mut failures) = (BTreeMap::new(), Vec::new());
    let graphs = device_graphs();
    let chosen = graphs.iter().filter(|(name, graph)| name.contains(&only) && chooses(name, graph));
    for (name, graph) in chosen {
        let (mut reference, slots, workspaces) = device_of(memfit_reference::open(), graph);
        on_cpu_in(graph, context, &mut |run| {
            let args: Vec<Slot> = run.ids.iter().map(|id| slots[id.0]).collect();
            for (place, (slot, bytes)) in args.iter().zip(&run.before).enumerate() {
                let to = reference.bytes_mut(*slot);
                if run.is_output(place) { to.fill(0xFF) } else { to.copy_from_slice(bytes) }
            }
            let launched = catch_unwind(AssertUnwindSafe(|| {
                let workspace = workspaces[run.index];
                reference.launch(graph, NodeId(run.index), &args, workspace, run.fresh, context);
            }));
            let got = args.iter().map(|slot| reference.bytes(*slot)).collect();
            let found = launched.map_or((f64::INFINITY, "a panic".to_owned()), |()| worst(graph, run, got));
            let of_op: &mut Agreement = agreements.entry(run.node.op.name()).or_default();
            of_op.nodes += 1;
            of_op.worst = of_op.worst.max(found.0);
            if run.limit(graph, false) < found.0 {
                let (op, fresh) = (run.node.op.name(), run.fresh);
                failures
                    .push(format!("{op} overwrite={fresh} in {name}: off by {:.1e} in {}", found.0, found.1));
            }
        });
    }
    for (op, Agreement { nodes, worst }) in &agreements {
        println!("{op:<34} {nodes:>5} nodes   worst {worst:.1e}");
    }
    failures.iter().take(60).for_each(|failure| println!("{failure}"));
    assert!(failures.is_empty(), "{} nodes differ", failures.len());
}

/// The operand that is the farthest from the CPU's, and how far.
fn worst(graph: &Graph, run: &NodeRun<'_>, got: Vec<&[u8]>) -> (f64, String) {
    let places = got.iter().enumerate().filter(|(place, _)| run.is_compared(graph, *place, false));
    let gaps = places.map(|(place, got)| run.gap(graph, place, got));
    gaps.fold((0.0, String::new()), |worst, gap| if worst.0 < gap.0 { gap } else { worst })
}

/// A network that is trained: its layers, its loss and its rows.
struct Network {
    name: &'static str,
    layers: Value,
    precision: Option<&'static str>,
    optimizer: Optimizer,
    kind: LossKind,
    rows: usize,
}

impl Network {
    fn forward(&self) -> Graph {
        let precision = self.precision.map(|name| name.parse().unwrap());
        let options = Options { mode: Mode::Training, seed: 3, precision };
        graph_from_layers(self.layers.as_array().unwrap(), None, &options).unwrap()
    }

    fn problem(&self, setup: &dyn Backend) -> Problem {
        let loss = Loss { kind: self.kind.clone(), weight: 1.0 };
        let training = Training { losses: vec![loss], ..Training::new(self.optimizer.clone()) };
        problem_of(setup, &self.forward(), &training, self.rows)
    }

    /// The losses of some steps, within a budget; the runner asserts in each that the bytes are those of the plan.
    fn losses(&self, setup: Box<dyn Backend>, problem: &Problem) -> Vec<f64> {
        let plan = memfit_plan::plan(problem).unwrap();
        let planned = plan.bytes_peak;
        let mut runner = runner_in(setup, problem, plan);
        memfit::initialize(&mut runner);
        let values = draw_values(&problem.graph, self.rows, 3);
        let losses = (0..6).map(|number| step(&mut runner, number, self.rows, 0.02, &values).loss).collect();
        assert_eq!(runner.trace().bytes_peak, planned, "{}", self.name);
        losses
    }
}

#[test]
fn trainings_have_the_losses_of_the_cpu_in_the_planned_bytes() {
    let tolerance = |network: &Network| match network.precision {
        None => 1e-5,
        Some("mixed_float16") => 2e-3,
        Some(_) => 1e-2,
    };
    for network in networks() {
        let cpu = memfit_cpu::open(Some(2)).unwrap();
        let problem = network.problem(&*cpu);
        let wanted = network.losses(cpu, &problem);
        let mut problem = network.problem(&*memfit_reference::open());
        let smallest = memfit_plan::smallest_budget(&problem);
        // Without a budget, and in the least memory, where rows are split.
        for total in [problem.budget.total, smallest] {
            problem.budget.total = total;
            let got = network.losses(memfit_reference::open(), &problem);
            println!("{} in {total}: {got:.6?} for {wanted:.6?}", network.name);
            for (got, wanted) in got.iter().zip(&wanted) {
                let gap = (got - wanted).abs() / wanted.abs();
                assert!(gap <= tolerance(&network), "{} in {total}: {got} for {wanted}", network.name);
            }
        }
        let plan = memfit_plan::plan(&problem).unwrap();
        assert!(plan.micro_batches() > 1 || network.rows == 1, "{} is split", network.name);
        assert!(wanted[5] < wanted[0], "{} learns: {wanted:?}", network.name);
    }
}

fn networks() -> Vec<Network> {
    let classes = LossKind::CategoricalCrossentropy { from_logits: false, label_smoothing: 0.0 };
    let network = |name, layers, precision, optimizer| Network {
        name,
        layers,
        precision,
        optimizer,
        kind: classes.clone(),
        rows: 8,
    };
    vec![
        network("LeNet", lenet(), None, Optimizer::sgd(0.9)),
        network("LeNet in bf16", lenet(), Some("mixed_bfloat16"), Optimizer::adam()),
        network("LeNet in f16", lenet(), Some("mixed_float16"), Optimizer::sgd(0.0)),
        network("transformer", transformer(), None, Optimizer::adam()),
        network("LSTM", lstm(), None, Optimizer::adam()),
    ]
}

fn lenet() -> Value {
    json!([
        {"class": "Input", "shape": [16, 16, 1], "name": "image"},
        {"class": "Conv2D", "filters": 6, "kernel_size": 5, "padding": "same", "activation": "relu"},
        {"class": "MaxPooling2D", "pool_size": 2},
        {"class": "Conv2D", "filters": 12, "kernel_size": 5, "activation": "relu"},
        {"class": "MaxPooling2D", "pool_size": 2},
        {"class": "Flatten"},
        {"class": "Dense", "units": 24, "activation": "relu"},
        {"class": "Dense", "units": 10, "activation": "softmax", "dtype": "float32"},
    ])
}

fn transformer() -> Value {
    json!([
        {"class": "Input", "shape": [12], "dtype": "int32", "name": "ids"},
        {"class": "Embedding", "name": "e", "inputs": ["ids"], "input_dim": 11, "output_dim": 16},
        {"class": "LayerNormalization", "name": "n1", "inputs": ["e"]},
        {"class": "MultiHeadAttention", "name": "a", "inputs": ["n1", "n1"], "num_heads": 4, "key_dim": 4},
        {"class": "Add", "name": "s1", "inputs": ["e", "a"]},
        {"class": "LayerNormalization", "name": "n2", "inputs": ["s1"]},
        {"class": "Dense", "name": "d1", "inputs": ["n2"], "units": 32, "activation": "gelu"},
        {"class": "Dropout", "name": "drop", "inputs": ["d1"], "rate": 0.2},
        {"class": "Dense", "name": "d2", "inputs": ["drop"], "units": 16},
        {"class": "Add", "name": "s2", "inputs": ["s1", "d2"]},
        {"class": "GlobalAveragePooling1D", "name": "p", "inputs": ["s2"]},
        {"class": "Dense", "name": "y", "inputs": ["p"], "units": 5, "activation": "softmax"},
    ])
}

fn lstm() -> Value {
    json!([
        {"class": "Input", "shape": [9, 6], "name": "sequence"},
        {"class": "LSTM", "units": 8, "return_sequences": true},
        {"class": "GRU", "units": 7},
        {"class": "Dense", "units": 4, "activation": "softmax"},
    ])
}
