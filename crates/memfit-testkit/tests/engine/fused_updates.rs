//! Fused optimizer updates: the same bits, less memory, and only where the graph allows it.

use memfit_grad::{ClipBy, Optimizer, Training};
use memfit_ir::{
    Average, Bytes, Chain, CheckError, Constraint, Conv2D, DType, Fused, Graph, Kind, Loss, LossKind, Op,
    Pads, Plan, PooledConv2D, Problem, Regularizer, Rewrite, Rewritten, Tensor, TensorId, Unary,
    UpdateFusion, UpdateRule, check,
};
use memfit_plan::moves::split::pieces_of;
use memfit_testkit::halves::in_type;
use memfit_testkit::harness::{problem, runner_of};
use memfit_testkit::op_cases::Builder;
use memfit_testkit::random_graphs::Draws;
use memfit_testkit::random_training::{BATCH, trained_weights, with_budget};

fn loss() -> Loss {
    Loss { kind: LossKind::MeanSquaredError, weight: 1.0 }
}

fn trained(forward: &Graph, optimizer: Optimizer) -> Problem {
    problem(forward, &Training { losses: vec![loss()], ..Training::new(optimizer) }, BATCH)
}

fn builder() -> Builder {
    let mut graph = Graph::default();
    let layer = graph.layer("first");
    Builder { graph, layer }
}

fn ended(mut builder: Builder, output: TensorId) -> Graph {
    builder.graph.outputs.push(output);
    builder.graph
}

/// Dense layers of drawn widths with functions between them; one of their kernels may have a rule of its own.
fn random_dense(seed: u64) -> Graph {
    let mut draws = Draws { seed, next: 0 };
    let mut b = builder();
    let positions = 1 + draws.below(3);
    let first = 34 + draws.below(300);
    let mut x = b.input([positions, first]);
    for index in 0..1 + draws.below(4) {
        b.layer = b.graph.layer(&format!("dense{index}"));
        // Some have more columns than a task has.
        let most = if draws.below(4) == 0 { 1200 } else { 90 };
        x = b.dense(x, 1 + draws.below(most), draws.below(2) == 0);
        x = b.op(Op::Elementwise(Chain::unary(Unary::Tanh)), &[x]);
    }
    let kernel = b.graph.tensors.iter().position(|tensor| tensor.name.starts_with("kernel"));
    let kernel = TensorId(kernel.unwrap());
    match draws.below(4) {
        0 => b.graph.penalties.push((kernel, Regularizer { l2: 0.1, ..Regularizer::default() })),
        1 => b.graph.constraints.push((kernel, Constraint::NonNeg)),
        _ => {}
    }
    ended(b, x)
}

fn random_optimizer(seed: u64) -> Optimizer {
    let mut optimizer = match seed % 4 {
        0 => Optimizer::sgd(0.1),
        1 => Optimizer::new(UpdateRule::Sgd { momentum: 0.9, nesterov: true }, 0.1),
        2 => Optimizer::adam(),
        _ => Optimizer::new(
            UpdateRule::Rmsprop { rho: 0.9, momentum: 0.5, epsilon: 1e-3, centered: true },
            0.01,
        ),
    };
    optimizer.average = seed.is_multiple_of(3).then_some(Average { momentum: 0.9, overwrite_every: Some(2) });
    optimizer.weight_decay = if seed.is_multiple_of(5) { 0.01 } else { 0.0 };
    optimizer.clip = if seed.is_multiple_of(7) { ClipBy::Value(0.01) } else { ClipBy::None };
    optimizer
}

fn fused(problem: &Problem) -> Vec<Rewrite> {
    let update = |of: &Rewritten| match of {
        Rewritten::Update(gradient) => Some(Rewrite::FuseUpdate(*gradient)),
        Rewritten::Reader(_) => None,
    };
    problem.costs_rewritten.keys().filter_map(update).collect()
}

/// Bytes of the gradients that then never exist whole.
fn fused_bytes(problem: &Problem) -> Bytes {
    let bytes = |of: &Rewritten| match of {
        Rewritten::Update(gradient) => problem.graph.tensors[gradient.0].bytes(1),
        Rewritten::Reader(_) => Bytes::ZERO,
    };
    problem.costs_rewritten.keys().map(bytes).sum()
}

#[test]
fn a_random_graph_trains_to_the_same_bits_with_fused_updates() {
    let (mut applied, mut whole) = (0, 0);
    for seed in 0..60 {
        let problem = trained(&random_dense(seed), random_optimizer(seed));
        let reference = trained_weights(&problem, runner_of(&problem, pieces_of(&problem, BATCH)));
        let made = fused(&problem);
        let kernels = problem.graph.nodes.iter().filter(|node| node.op == Op::DenseGradKernel).count();
        (applied, whole) = (applied + made.len(), whole + kernels - made.len());
        if made.is_empty() {
            continue;
        }
        let rewritten = problem.rewritten(&made).unwrap();
        // The runner holds every step to the predicted peak.
        let plan = memfit_plan::plan(&rewritten).unwrap();
        assert_eq!((&plan.rewrites, plan.micro_batches()), (&made, 1), "seed {seed}");
        assert_eq!(trained_weights(&problem, runner_of(&problem, plan)), reference, "seed {seed}: whole");
        // Under a budget, values are recomputed, and the weights that they are computed from change at the
        // end.
        for plan in memfit_plan::curve(&rewritten) {
            assert_eq!((&plan.rewrites, plan.micro_batches()), (&made, 1), "seed {seed}");
            let got = trained_weights(&problem, runner_of(&problem, plan));
            assert_eq!(got, reference, "seed {seed}: below a line");
        }
    }
    assert!(40 < applied && 20 < whole, "{applied} applied, {whole} made whole");
}

/// A first convolution and its pool, and a dense layer over their whole output. Its gradient is fused with
/// theirs.
fn behind_a_pool() -> Graph {
    let mut b = builder();
    let x = b.input([95, 92, 3]);
    let conv = Conv2D { kernel: [3, 3], strides: [1, 1], dilation: [1, 1], groups: 1, pads: Pads::default() };
    let between = b.conv(x, conv, 33);
    let pooled = b.op(Op::MaxPool2D(PooledConv2D::POOL), &[between]);
    let rectified = b.op(Op::Elementwise(Chain::unary(Unary::Relu)), &[pooled]);
    let flat = b.op(Op::Reshape(vec![46 * 45 * 33]), &[rectified]);
    b.layer = b.graph.layer("dense");
    let y = b.dense(flat, 7, true);
    ended(b, y)
}

#[test]
fn a_kernel_after_a_pool_trains_to_the_same_bits_with_a_fused_update() {
    for (seed, optimizer) in (0..4).map(|seed| (seed, random_optimizer(seed))) {
        let problem = trained(&behind_a_pool(), optimizer);
        let makes = |problem: &Problem| {
            problem
                .graph
                .nodes
                .iter()
                .filter(|node| matches!(node.op, Op::Fused(Fused::Conv2DMaxPoolDenseGrad(_))))
                .count()
        };
        let made = fused(&problem);
        assert_eq!((makes(&problem), made.len()), (1, 1), "{}", problem.graph);
        let reference = trained_weights(&problem, runner_of(&problem, pieces_of(&problem, BATCH)));
        let rewritten = problem.rewritten(&made).unwrap();
        assert_eq!(makes(&rewritten), 0);
        for plan in memfit_plan::curve(&rewritten) {
            assert_eq!((&plan.rewrites, plan.micro_batches()), (&made, 1));
            assert_eq!(trained_weights(&problem, runner_of(&problem, plan)), reference, "optimizer {seed}");
        }
    }
}

/// A dense layer with more weights than all else has values.
fn large() -> Graph {
    let mut b = builder();
    let x = b.input([60_000]);
    let y = b.dense(x, 10, true);
    ended(b, y)
}

#[test]
fn what_has_no_room_for_a_gradient_trains_in_one_micro_batch() {
    let problem = trained(&large(), Optimizer::adam());
    let bytes = fused_bytes(&problem);
    let plan = memfit_plan::plan(&problem).unwrap();
    assert_eq!((plan.updates_fused().count(), plan.micro_batches(), plan.prologue.len()), (1, 1, 0));
    let whole = pieces_of(&problem, BATCH);
    assert!(plan.bytes_peak + bytes <= whole.bytes_peak + Bytes::mib(1), "{}", plan.bytes_peak);
    assert!(memfit_plan::seconds(&problem, &plan) < memfit_plan::seconds(&problem, &whole));

    let line = problem.budget.smallest(plan.bytes_peak);
    let tight = with_budget(&problem, line);
    let below = memfit_plan::plan(&tight).unwrap();
    assert_eq!((below.updates_fused().count(), below.micro_batches()), (1, 1));
    let got = trained_weights(&problem, runner_of(&tight, below));
    assert_eq!(got, trained_weights(&problem, runner_of(&problem, whole)));
    let mut without = tight;
    without.costs_rewritten.clear();
    assert!(memfit_plan::plan(&without).is_err(), "with the gradient, not even one row has room");
    let (largest, _) = memfit_plan::largest_batch(&with_budget(&problem, line));
    assert!(Some(BATCH) <= largest);
}

#[test]
fn a_wide_kernel_has_a_fused_update_if_its_operands_are_small() {
    let applied = |positions: usize, features: usize, units: usize, batch: usize| {
        let mut b = builder();
        let x = b.input([positions, features]);
        let y = b.dense(x, units, true);
        let graph = ended(b, y);
        let training = Training { losses: vec![loss()], ..Training::new(Optimizer::adam()) };
        memfit_plan::plan(&problem(&graph, &training, batch)).unwrap().updates_fused().count()
    };
    assert_eq!(applied(1, 3000, 512, 128), 1);
    assert_eq!(applied(1, 3000, 512, 129), 0, "every block would read more of dy than a cache has room for");
    assert_eq!(applied(8, 3000, 512, 16), 1);
    assert_eq!(applied(8, 3000, 512, 17), 0);
    assert_eq!(applied(1, 3000, 80, 700), 0, "its operands take more room than it does");
    assert_eq!(applied(1, 6000, 64, 2000), 1, "narrow ones are faster that way whatever they are made of");
    assert_eq!(applied(1, 400, 512, 8), 0, "less than a MiB");
}

#[test]
fn a_larger_budget_is_never_slower() {
    // The operands of the last kernel's update must live until it has changed, so that less than a gradient
    // is saved.
    let mut b = builder();
    let x = b.input([20, 20, 3]);
    let mut y = b.op(Op::Reshape(vec![1200]), &[x]);
    for units in [30, 700, 64] {
        y = b.dense(y, units, true);
        y = b.op(Op::Elementwise(Chain::unary(Unary::Tanh)), &[y]);
    }
    let line = b.op(Op::Reshape(vec![1, 64]), &[y]);
    let wide = b.op(Op::Broadcast(vec![150, 64]), &[line]);
    let flat = b.op(Op::Reshape(vec![9600]), &[wide]);
    let y = b.dense(flat, 32, true);
    let problem = trained(&ended(b, y), Optimizer::adam());
    let smallest = memfit_plan::smallest_budget(&problem);
    let most = problem.budget.smallest(pieces_of(&problem, BATCH).bytes_peak) + Bytes::mib(1);
    let (mut before, mut applied) = (f64::INFINITY, 0);
    for index in 0..=40 {
        let line = Bytes(smallest.0 + (most.0 - smallest.0) * index / 40);
        let plan = memfit_plan::plan(&with_budget(&problem, line)).unwrap();
        let seconds = memfit_plan::seconds(&problem, &plan);
        assert!(seconds <= before * (1.0 + 1e-9), "{line} gives a slower plan");
        assert!(memfit_plan::least_seconds(&problem, &plan) <= seconds * (1.0 + 1e-9), "{line}");
        before = seconds;
        applied += plan.updates_fused().count();
    }
    assert!(0 < applied);
    assert!(memfit_plan::plan(&with_budget(&problem, smallest - Bytes(1))).is_err());
}

#[test]
fn gradients_with_other_readers_or_writers_have_no_fused_update() {
    let graph = |change: &dyn Fn(&mut Builder, TensorId)| {
        let mut b = builder();
        let x = b.input([40]);
        let y = b.dense(x, 10, false);
        let kernel =
            TensorId(b.graph.tensors.iter().position(|tensor| tensor.name.starts_with("kernel")).unwrap());
        change(&mut b, kernel);
        ended(b, y)
    };
    let plain = graph(&|_, _| {});
    let count =
        |forward: &Graph, optimizer: Optimizer| UpdateFusion::all(&trained(forward, optimizer).graph).len();
    assert_eq!(count(&plain, Optimizer::adam()), 1);
    let lamb = UpdateRule::Lamb { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-6 };
    let adam = Optimizer::adam;
    for optimizer in [
        Optimizer { clip: ClipBy::Norm(1.0), ..adam() },
        Optimizer { clip: ClipBy::GlobalNorm(1.0), ..adam() },
        Optimizer { accumulation_steps: 2, ..adam() },
        Optimizer::new(lamb, 0.1),
    ] {
        assert_eq!(count(&plain, optimizer.clone()), 0, "{optimizer:?}");
    }
    for dtype in [DType::F16, DType::BF16] {
        assert_eq!(count(&in_type(&plain, dtype), adam()), 0, "{dtype}");
    }
    let penalised = graph(&|b, kernel| {
        b.graph.penalties.push((kernel, Regularizer { l2: 0.1, ..Regularizer::default() }));
    });
    assert_eq!(count(&penalised, adam()), 0);
    // A kernel that two layers share has two gradients in one sum.
    let mut b = builder();
    let x = b.input([40]);
    let kernel = b.weight("kernel", &[40, 40]);
    let y = b.op(Op::Dense, &[x, kernel]);
    let y = b.op(Op::Dense, &[y, kernel]);
    assert_eq!(count(&ended(b, y), adam()), 0);
}

#[test]
fn a_fused_update_that_the_graph_does_not_have_is_rejected() {
    let problem = trained(&large(), Optimizer::adam());
    let plan = memfit_plan::plan(&problem).unwrap();
    let checked = check(&problem, plan.clone()).unwrap();
    assert_eq!(checked.problem().graph.rewrites, plan.rewrites);

    let not_named = Plan { rewrites: vec![], ..plan.clone() };
    assert!(check(&problem, not_named).is_err());
    let is_of_bias = |tensor: &Tensor| tensor.kind == Kind::Gradient && tensor.shape.dims == [10];
    let bias = problem.graph.tensors.iter().position(is_of_bias);
    let others = [bias.unwrap(), problem.graph.tensors.len()].map(|id| Rewrite::FuseUpdate(TensorId(id)));
    for wrong in std::iter::once(plan.rewrites[0]).chain(others) {
        let mut rewrites = plan.rewrites.clone();
        rewrites.push(wrong);
        let got = check(&problem, Plan { rewrites, ..plan.clone() }).unwrap_err();
        assert_eq!(got, CheckError::Rewrite(wrong));
    }
    // In micro-batches, none of which has the whole gradient.
    let rewritten = problem.rewritten(&plan.rewrites).unwrap();
    let pieces = pieces_of(&rewritten, 2);
    assert_eq!(check(&problem, pieces).unwrap_err(), CheckError::Rewrite(plan.rewrites[0]));
    // What the device does not offer has no cost.
    let mut other = problem.clone();
    other.costs_rewritten.clear();
    assert_eq!(check(&other, plan.clone()).unwrap_err(), CheckError::Rewrite(plan.rewrites[0]));
}
