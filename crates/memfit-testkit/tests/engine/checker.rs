//! The checker rejects every kind of corruption of a valid plan.

use memfit_grad::{Optimizer, Training};
use memfit_ir::{
    Binary, Bytes, Chain, CheckError, Conv2D, Graph, Kind, Loss, LossKind, NodeId, Norm, Op, Pads, Place,
    Plan, Problem, Rewrite, Slot, Step, TensorId, Unary, check,
};
use memfit_plan::moves::split::pieces_of;
use memfit_testkit::harness::problem;
use memfit_testkit::op_cases::Builder;
use memfit_testkit::random_graphs::random_graph;

const BATCH: usize = 4;

fn training() -> Training {
    let kind = LossKind::MeanSquaredError;
    Training { losses: vec![Loss { kind, weight: 1.0 }], ..Training::new(Optimizer::adam()) }
}

fn small_problem(batch_norm: bool) -> Problem {
    problem(&forward(batch_norm), &training(), BATCH)
}

/// Two convolutions, a normalisation, a branch that rejoins, and a head.
fn forward(batch_norm: bool) -> Graph {
    let mut graph = Graph::default();
    let layer = graph.layer("small");
    let mut builder = Builder { graph, layer };
    let pads = Pads { top: 1, bottom: 1, left: 1, right: 1 };
    let conv = Conv2D { kernel: [3, 3], strides: [1, 1], dilation: [1, 1], groups: 1, pads };
    let x = builder.input([8, 8, 3]);
    let first = builder.conv(x, conv.clone(), 4);
    let second = builder.conv(first, conv, 2);
    let norm = Norm { epsilon: 1e-3, scale: true, center: true };
    let operands = vec![second, builder.weight("gamma", &[2]), builder.weight("beta", &[2])];
    let normal = if batch_norm {
        builder.batch_norm(&norm, operands)
    } else {
        builder.op(Op::LayerNorm(norm, 1), &operands)
    };
    let relu = builder.op(Op::Elementwise(Chain::unary(Unary::Relu)), &[normal]);
    let sum = builder.op(Op::Elementwise(Chain::binary(Binary::Add)), &[relu, second]);
    let pooled = builder.op(Op::GlobalAveragePool2D, &[sum]);
    let output = builder.dense(pooled, 3, true);
    builder.graph.outputs.push(output);
    builder.graph
}

/// A valid plan, a function that corrupts it, and the error that the checker must give.
type Corruption = (&'static str, fn(&Problem, &mut Plan), fn(&CheckError) -> bool);

const CORRUPTIONS: &[Corruption] = &[
    ("a piece of no rows", |_, plan| plan.micro_batch = 0, |e| matches!(e, CheckError::MicroBatch(_))),
    (
        "a batch that is not the problem's",
        |_, plan| plan.batch += 1,
        |e| matches!(e, CheckError::MicroBatch(_)),
    ),
    (
        "a peak one byte too low",
        |_, plan| plan.bytes_peak = plan.bytes_peak - Bytes(1),
        |e| matches!(e, CheckError::Peak(_)),
    ),
    ("a peak one byte too high", |_, plan| plan.bytes_peak += Bytes(1), |e| matches!(e, CheckError::Peak(_))),
    (
        "a slot moved off its alignment",
        |_, plan| {
            let last = plan.persistent.len() - 1;
            plan.persistent[last].1.offset += Bytes(4);
        },
        |e| matches!(e, CheckError::Misaligned(_)),
    ),
    ("an operand missing", |_, plan| args(plan, 2).truncate(1), |e| matches!(e, CheckError::Operands(_))),
    (
        "a slot one byte short",
        |_, plan| args(plan, 2)[0].bytes = Bytes(4),
        |e| matches!(e, CheckError::Size(_)),
    ),
    (
        "a workspace that is too small",
        |_, plan| shrink_workspace(plan),
        |e| matches!(e, CheckError::Workspace(_)),
    ),
    (
        "a node that never runs",
        |_, plan| drop_launch(plan),
        |e| matches!(e, CheckError::NeverRuns(_) | CheckError::NotThere(..) | CheckError::WrongVersion(..)),
    ),
    (
        "an input read before it is written",
        |_, plan| plan.body.swap(0, 1),
        |e| matches!(e, CheckError::NotThere(..)),
    ),
    (
        "an input read from elsewhere",
        |_, plan| args(plan, 3)[0].offset += Bytes(64),
        |e| matches!(e, CheckError::NotThere(..) | CheckError::Overlap(_) | CheckError::Peak(_)),
    ),
    ("a node that changes tensors run twice", run_update_twice, |e| {
        matches!(e, CheckError::OutOfTurn(_) | CheckError::NotThere(..))
    }),
    ("an update before the last reader of its weight", update_first, |e| {
        matches!(e, CheckError::WrongVersion(..) | CheckError::NotThere(..))
    }),
    ("a gradient that overwrites a weight", overwrite_weight, |e| {
        matches!(e, CheckError::Destroys(_) | CheckError::Overlap(_))
    }),
    ("an output over a live input", output_over_input, |e| matches!(e, CheckError::Overlap(_))),
    ("a workspace over live data", workspace_over_data, |e| {
        matches!(e, CheckError::Overlap(_) | CheckError::NotThere(..) | CheckError::Destroys(_))
    }),
    ("two lifetimes over the same bytes", two_over_one, |e| matches!(e, CheckError::NotThere(..))),
    (
        "a feed of what is not an input",
        |problem, plan| feed_weight(problem, plan),
        |e| matches!(e, CheckError::Copy),
    ),
    ("a copy from the arena", |_, plan| copy_out(plan), |e| matches!(e, CheckError::Copy)),
    ("fresh where a sum has been opened", fresh_twice, |e| matches!(e, CheckError::NotFresh(_))),
    (
        "a weight without a place",
        |_, plan| plan.persistent.truncate(1),
        |e| matches!(e, CheckError::NotThere(..) | CheckError::NotKept(_) | CheckError::Peak(_)),
    ),
];

#[test]
fn every_corruption_of_a_valid_plan_is_rejected() {
    let problem = small_problem(false);
    for rows in [BATCH, 1] {
        let plan = pieces_of(&problem, rows);
        check(&problem, plan.clone()).unwrap();
        for (name, corrupt, expected) in CORRUPTIONS {
            let mut spoiled = plan.clone();
            corrupt(&problem, &mut spoiled);
            assert_ne!(spoiled, plan, "{name}: the corruption does nothing at {rows} rows");
            match check(&problem, spoiled) {
                Ok(_) => panic!("{name}: not noticed at {rows} rows"),
                Err(error) => assert!(expected(&error), "{name}: {error:?} at {rows} rows"),
            }
        }
    }
}

#[test]
fn one_byte_over_the_budget_is_rejected() {
    let mut problem = small_problem(false);
    let plan = pieces_of(&problem, BATCH);
    problem.budget.granule = Bytes(1);
    problem.budget.total = plan.bytes_peak;
    check(&problem, plan.clone()).unwrap();
    problem.budget.total = plan.bytes_peak - Bytes(1);
    assert!(matches!(check(&problem, plan), Err(CheckError::OverBudget(_))));
}

#[test]
fn a_split_across_batch_normalisation_is_rejected_unless_allowed() {
    let mut problem = small_problem(true);
    assert!(problem.graph.nodes.iter().any(|node| node.op.mixes_rows()));
    let plan = pieces_of(&problem, 1);
    assert!(matches!(check(&problem, plan.clone()), Err(CheckError::MixesRows(_))));
    problem.allow_batchnorm_split = true;
    check(&problem, plan).unwrap();
}

#[test]
fn sections_may_not_be_exchanged_when_the_batch_is_split() {
    let problem = small_problem(false);
    let mut plan = pieces_of(&problem, 1);
    let step = plan.epilogue.remove(0);
    plan.body.push(step);
    assert!(matches!(check(&problem, plan), Err(CheckError::OutOfTurn(_))));
}

#[test]
fn a_recomputation_in_the_consumer_that_the_graph_does_not_have_is_rejected() {
    let (problem, plan) = (0..100)
        .find_map(|seed| {
            let problem = problem(&random_graph(seed, true), &training(), BATCH);
            let plan = memfit_plan::curve(&problem)
                .into_iter()
                .find(|plan| plan.producers_fused().next().is_some())?;
            Some((problem, plan))
        })
        .expect("some graph folds values");
    let checked = check(&problem, plan.clone()).unwrap();
    assert_eq!(checked.problem().graph.rewrites, plan.rewrites);

    // Readers are launched with the operands from which they recompute the value. Together with the value
    // itself, they have too many operands.
    let unfolded = Plan { rewrites: vec![], ..plan.clone() };
    assert!(matches!(check(&problem, unfolded), Err(CheckError::Operands(_))));

    // No tensor twice, no input, and no index outside the graph.
    let others = [problem.graph.inputs[0], TensorId(problem.graph.tensors.len())].map(Rewrite::FuseProducer);
    for wrong in std::iter::once(plan.rewrites[0]).chain(others) {
        let mut rewrites = plan.rewrites.clone();
        rewrites.push(wrong);
        let got = check(&problem, Plan { rewrites, ..plan.clone() }).unwrap_err();
        assert_eq!(got, CheckError::Rewrite(wrong));
    }

    // What the device does not offer has no cost.
    let mut other = problem.clone();
    other.costs_rewritten.clear();
    assert!(matches!(check(&other, plan), Err(CheckError::Rewrite(_))));
}

#[test]
fn rows_of_the_next_micro_batch_lie_after_everything_else() {
    let mut problem = small_problem(false);
    let without = memfit_plan::plan(&problem).unwrap();
    assert_eq!(without.ahead, None);
    problem.transfers.feeds_ahead = true;
    let plan = memfit_plan::plan(&problem).unwrap();
    let slot = plan.ahead.expect("there is room");
    assert_eq!(plan.bytes_peak, without.bytes_peak.align_up(64) + slot.bytes);
    check(&problem, plan.clone()).unwrap();

    let lower = Slot { offset: slot.offset - Bytes(64), ..slot };
    let smaller = Slot { bytes: slot.bytes - Bytes(64), ..slot };
    for wrong in [lower, smaller] {
        let got = check(&problem, Plan { ahead: Some(wrong), ..plan.clone() }).unwrap_err();
        assert_eq!(got, CheckError::Ahead(wrong));
    }

    // No other value is recomputed or moved to make room for it.
    problem.budget.total = problem.budget.smallest(without.bytes_peak);
    assert_eq!(memfit_plan::plan(&problem).unwrap(), without);
}

/// Plans of random graphs that copy values out.
fn plans_that_copy_out() -> impl Iterator<Item = (Problem, Plan)> {
    (0..100).filter_map(|seed| {
        let mut problem = problem(&random_graph(seed, true), &training(), BATCH);
        problem.budget.host = Bytes(1 << 30);
        // Computing is so slow that values are copied out instead.
        problem.costs.iter_mut().for_each(|cost| cost.nanos_fixed *= 1e6);
        let plan = memfit_plan::curve(&problem).into_iter().find(|plan| plan.bytes_host > Bytes::ZERO)?;
        Some((problem, plan))
    })
}

#[test]
fn every_copy_is_waited_for_before_its_bytes_are_touched() {
    let is_copy = |step: &Step, slot: Slot| match step {
        Step::Copy { from: Place::Arena(known), to: Place::Host(_) }
        | Step::Copy { from: Place::Host(_), to: Place::Arena(known) } => *known == slot,
        Step::Copy { .. } | Step::Launch { .. } | Step::Wait(_) => false,
    };
    let (mut waits, mut beside) = (0, 0);
    for (problem, plan) in plans_that_copy_out().take(20) {
        check(&problem, plan.clone()).unwrap();
        let mut late = plan.clone();
        for at in 0..plan.body.len() {
            let Step::Wait(slot) = plan.body[at] else { continue };
            waits += 1;
            let mut without = plan.clone();
            without.body.remove(at);
            assert!(matches!(check(&problem, without), Err(CheckError::Unwaited(_))));
            // A copy may do its work as late as it is waited for.
            let begins = late.body[..at].iter().rposition(|step| is_copy(step, slot)).unwrap();
            beside +=
                usize::from(late.body[begins..at].iter().any(|step| matches!(step, Step::Launch { .. })));
            late.body[begins..at].rotate_left(1);
        }
        check(&problem, late).unwrap();
    }
    assert!(0 < waits && 0 < beside, "{waits} copies, {beside} of them beside launches");
}

#[test]
fn copies_from_offload_memory_must_match_what_was_copied_there() {
    let (problem, plan) = plans_that_copy_out().next().expect("some graph copies values out");
    check(&problem, plan.clone()).unwrap();

    let mut taller = plan.clone();
    taller.bytes_host += Bytes(1);
    assert!(matches!(check(&problem, taller), Err(CheckError::Host(_))));

    let mut tight = problem.clone();
    tight.budget.host = plan.bytes_host - Bytes(1);
    assert!(matches!(check(&tight, plan.clone()), Err(CheckError::Host(_))));

    let is_out = |step: &Step| matches!(step, Step::Copy { to: Place::Host(_), .. });
    let is_in = |step: &Step| matches!(step, Step::Copy { from: Place::Host(_), .. });
    let mut never_out = plan.clone();
    never_out.body.remove(plan.body.iter().position(is_out).unwrap());
    assert!(matches!(check(&problem, never_out), Err(CheckError::Copy | CheckError::Host(_))));

    let mut never_in = plan.clone();
    never_in.body.remove(plan.body.iter().position(is_in).unwrap());
    assert!(matches!(check(&problem, never_in), Err(CheckError::NotThere(..))));

    let mut from_elsewhere = plan;
    let step = from_elsewhere.body.iter_mut().find(|step| is_in(step)).unwrap();
    if let Step::Copy { from: Place::Host(slot), .. } = step {
        slot.bytes = slot.bytes - Bytes(4);
    }
    assert!(matches!(check(&problem, from_elsewhere), Err(CheckError::Copy | CheckError::Host(_))));
}

fn args(plan: &mut Plan, launch: usize) -> &mut Vec<Slot> {
    plan.body
        .iter_mut()
        .filter_map(|step| match step {
            Step::Launch { args, .. } => Some(args),
            Step::Copy { .. } | Step::Wait(_) => None,
        })
        .nth(launch)
        .unwrap()
}

fn shrink_workspace(plan: &mut Plan) {
    for step in &mut plan.body {
        if let Step::Launch { workspace, .. } = step
            && workspace.bytes > Bytes(64)
        {
            workspace.bytes = Bytes(64);
            return;
        }
    }
}

fn drop_launch(plan: &mut Plan) {
    let last = plan.body.iter().rposition(|step| matches!(step, Step::Launch { .. })).unwrap();
    plan.body.remove(last);
}

fn section_with(plan: &mut Plan, problem: &Problem, wanted: fn(&Op) -> bool) -> (bool, usize) {
    let find = |steps: &[Step]| {
        steps.iter().position(|step| match step {
            Step::Launch { node, .. } => wanted(&problem.graph.nodes[node.0].op),
            Step::Copy { .. } | Step::Wait(_) => false,
        })
    };
    match find(&plan.body) {
        Some(index) => (true, index),
        None => (false, find(&plan.epilogue).unwrap()),
    }
}

fn is_update(op: &Op) -> bool {
    matches!(op, Op::Update(_))
}

fn run_update_twice(problem: &Problem, plan: &mut Plan) {
    let (in_body, index) = section_with(plan, problem, is_update);
    let steps = if in_body { &mut plan.body } else { &mut plan.epilogue };
    let again = steps[index].clone();
    steps.push(again);
}

/// With one micro-batch, the update moves to the front. With several, it moves into the body, before its
/// gradient is complete.
fn update_first(problem: &Problem, plan: &mut Plan) {
    let (in_body, index) = section_with(plan, problem, is_update);
    if in_body {
        let update = plan.body.remove(index);
        plan.body.insert(1, update);
    } else {
        // Exchanging two updates changes nothing, so a sum is added to after its update instead.
        let add = plan.body.iter().rposition(|step| matches!(step, Step::Launch { node, .. } if !problem.graph.nodes[node.0].updates.is_empty())).unwrap();
        let moved = plan.body[add].clone();
        if let Step::Launch { args, .. } = &moved {
            assert!(!args.is_empty());
        }
        let before = plan.body.remove(add);
        plan.body.insert(0, before);
    }
}

fn overwrite_weight(_: &Problem, plan: &mut Plan) {
    let weight = plan.persistent[0].1.offset;
    let last = plan.body.len() - 1;
    for step in &mut plan.body[..last] {
        if let Step::Copy { to: Place::Arena(slot), .. } = step {
            slot.offset = weight;
            return;
        }
    }
}

fn output_over_input(problem: &Problem, plan: &mut Plan) {
    for step in &mut plan.body {
        if let Step::Launch { node, args, .. } = step {
            let node = &problem.graph.nodes[node.0];
            if let Op::Conv2D(_) | Op::Dense = node.op {
                args[node.inputs.len()].offset = args[0].offset;
                return;
            }
        }
    }
}

fn workspace_over_data(_: &Problem, plan: &mut Plan) {
    for step in &mut plan.body {
        if let Step::Launch { args, workspace, .. } = step
            && workspace.bytes > Bytes::ZERO
        {
            workspace.offset = args[0].offset;
            return;
        }
    }
}

/// The second value of the forward pass is written where the first still lives.
fn two_over_one(problem: &Problem, plan: &mut Plan) {
    let kept = plan.body.iter().find_map(|step| match step {
        Step::Copy { to: Place::Arena(slot), .. } => Some(*slot),
        Step::Copy { .. } | Step::Launch { .. } | Step::Wait(_) => None,
    });
    let offset = kept.unwrap().offset;
    let mut moved: Option<TensorId> = None;
    for step in &mut plan.body {
        let Step::Launch { node, args, .. } = step else { continue };
        let node = &problem.graph.nodes[node.0];
        let operands = node.inputs.iter().chain(&node.outputs).chain(&node.updates);
        if moved.is_none()
            && !node.outputs.is_empty()
            && !node.inputs.iter().any(|id| problem.graph.tensors[id.0].kind == Kind::Input)
        {
            moved = node.outputs.first().copied();
        }
        for (id, slot) in operands.zip(args) {
            if Some(*id) == moved {
                slot.offset = offset;
            }
        }
    }
    assert!(moved.is_some());
}

fn feed_weight(problem: &Problem, plan: &mut Plan) {
    let (id, slot) = plan.persistent[0];
    assert!(problem.graph.tensors[id.0].kind.is_persistent());
    plan.body.insert(0, Step::Copy { from: Place::Feed(id), to: Place::Arena(slot) });
}

fn copy_out(plan: &mut Plan) {
    let slot = plan.persistent[0].1;
    plan.body.push(Step::Copy { from: Place::Arena(slot), to: Place::Arena(slot) });
}

fn fresh_twice(problem: &Problem, plan: &mut Plan) {
    let mut opened = Vec::new();
    for step in plan.prologue.iter_mut().chain(&mut plan.body) {
        let Step::Launch { node, fresh, .. } = step else { continue };
        let node: &NodeId = node;
        let node = &problem.graph.nodes[node.0];
        if node.op == Op::Zero || *fresh {
            opened.extend(node.outputs.iter().chain(&node.updates).copied());
        } else if !node.updates.is_empty() {
            *fresh = true;
            return;
        }
    }
    // Unsplit, every sum has one adder here: mark one that adds to a weight instead.
    for step in plan.body.iter_mut().chain(&mut plan.epilogue) {
        let Step::Launch { node, fresh, .. } = step else { continue };
        if is_update(&problem.graph.nodes[node.0].op) {
            *fresh = true;
            return;
        }
    }
}
