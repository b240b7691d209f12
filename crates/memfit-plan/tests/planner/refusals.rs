//! A refusal says why, to the byte, and what it proposes was planned.

use memfit_grad::{Optimizer, Training, training_graph};
use memfit_ir::{Budget, Bytes, Cost, DType, Graph, Kind, Loss, LossKind, Op, Problem, Shape, Transfers};
use memfit_plan::{DoesNotFit, Hint, Why, plan};

/// Dense layers of a width, each a weight of its own.
fn problem(layers: usize, width: usize, batch: usize) -> Problem {
    let mut forward = Graph::default();
    let layer = forward.layer("input");
    let mut x = forward.tensor("x", Shape::rows([width]), DType::F32, Kind::Input, layer);
    forward.inputs.push(x);
    for index in 0..layers {
        let layer = forward.layer(&format!("dense_{index}"));
        let (shape, kind) = (Shape::fixed([width, width]), Kind::Weight { trainable: true });
        let kernel = forward.tensor(format!("kernel_{index}"), shape, DType::F32, kind, layer);
        x = forward.push(Op::Dense, &[x, kernel], layer).unwrap()[0];
    }
    forward.outputs.push(x);
    let losses = vec![Loss { kind: LossKind::MeanSquaredError, weight: 1.0 }];
    let graph = training_graph(&forward, &Training { losses, ..Training::new(Optimizer::sgd(0.1)) }).unwrap();
    let cost =
        Cost { workspace_fixed: Bytes(64), nanos_fixed: 10.0, nanos_per_row: 100.0, ..Cost::default() };
    let budget = Budget { total: Bytes(1), runtime: Bytes::ZERO, granule: Bytes(1), host: Bytes::ZERO };
    Problem {
        costs: vec![cost; graph.nodes.len()],
        graph,
        budget,
        batch,
        costs_rewritten: Default::default(),
        allow_batchnorm_split: false,
        transfers: Transfers::default(),
        pinned: memfit_ir::Pinned::default(),
    }
}

#[test]
fn the_reason_names_every_live_byte_of_the_peak() {
    for (layers, batch) in [(1, 4), (6, 64), (60, 8)] {
        let answer = plan(&problem(layers, 16, batch)).unwrap_err();
        let reason = &answer.reason;
        let listed: Bytes = reason.needed.iter().map(|one| one.bytes).sum();
        assert_eq!(listed + reason.bytes_others, answer.held.total(), "{answer}");
        assert!(reason.needed.windows(2).all(|pair| pair[1].bytes <= pair[0].bytes), "largest first");
        assert!(reason.needed.iter().any(|one| one.why == Why::Stays && one.name == "weights"), "{answer}");
        // The step itself reads, writes or changes something: that is what no move can take away.
        let of_the_step = |why: &Why| match why {
            Why::Read | Why::Written | Why::Changed | Why::Workspace => true,
            Why::Stays | Why::Summed | Why::WaitsFor { .. } | Why::Kept => false,
        };
        assert!(reason.needed.iter().any(|one| of_the_step(&one.why)), "{answer}");
    }
}

#[test]
fn what_waits_is_read_by_the_step_it_is_said_to_wait_for() {
    let problem = problem(8, 16, 1);
    let answer = plan(&problem).unwrap_err();
    let waits = answer.reason.needed.iter().filter_map(|one| match &one.why {
        Why::WaitsFor { step, .. } => Some((one, *step)),
        Why::Stays | Why::Read | Why::Written | Why::Changed | Why::Workspace | Why::Summed | Why::Kept => {
            None
        }
    });
    for (one, step) in waits {
        assert!(answer.peak_step < step);
        let memfit_ir::Step::Launch { node, .. } = answer.plan.steps().nth(step).unwrap() else { continue };
        let node = &problem.graph.nodes[node.0];
        let names: Vec<&str> = node
            .inputs
            .iter()
            .chain(&node.updates)
            .map(|id| problem.graph.tensors[id.0].name.as_str())
            .collect();
        assert!(names.contains(&one.name.as_str()), "{} is not among {names:?}", one.name);
    }
}

#[test]
fn a_smaller_batch_is_proposed_only_where_it_fits() {
    // In micro-batches, every gradient waits for the last; a batch of few rows as one micro-batch applies
    // each at once.
    let mut problem = problem(12, 64, 64);
    let smallest = plan(&problem).unwrap_err().smallest;
    problem.budget.total = smallest - Bytes(16 * 1024);
    let mut answer = plan(&problem).unwrap_err();
    answer.find_hints(&problem);
    let hint = answer.hints.iter().find(|hint| hint.kind() == "batch").expect("a batch in one piece fits");
    let Hint::SmallerBatch { batch, instead_of, is_largest, smallest, .. } = hint else { panic!("{hint}") };
    assert_eq!(*instead_of, 64);
    let mut of = |batch: usize, total: Bytes| {
        problem.budget.total = total;
        plan(&Problem { batch, ..problem.clone() })
    };
    of(*batch, *smallest).unwrap();
    assert!(*smallest <= answer.budget && hint.budget() == Some(*smallest));
    assert!(*is_largest, "64 is closed in on by six plans");
    of(batch + 1, answer.budget).unwrap_err();
    assert!(answer.to_string().contains(&format!("a batch of {batch} instead of 64")), "{answer}");
}

#[test]
fn a_huge_graph_says_what_was_not_tried() {
    let problem = problem(1_500, 4, 2);
    assert!(problem.graph.nodes.len() > 4_000);
    let mut answer = DoesNotFit::explain(&problem);
    answer.find_hints(&problem);
    assert_eq!(answer.hints, []);
    assert!(answer.to_string().contains("no smaller batch was tried"), "{answer}");
}
