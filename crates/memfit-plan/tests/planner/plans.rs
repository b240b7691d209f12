//! Plans as text, read in review, and the claims that moves make. No device is needed: costs are data.

use expect_test::{Expect, expect};
use memfit_grad::{ClipBy, Optimizer, Training, training_graph};
use memfit_ir::{
    Binary, Budget, Bytes, Chain, Cost, DType, Graph, Kind, Loss, LossKind, Op, Problem, Shape, TensorId,
    Transfers, Unary, check,
};
use memfit_plan::moves::reorder::as_written;
use memfit_plan::{Group, largest_batch, plan, smallest_budget, timeline};

/// `x[4] → dense 8 → relu → dense 2`, mean squared error.
fn network(optimizer: Optimizer) -> Graph {
    let mut forward = Graph::default();
    let layer = forward.layer("hidden");
    let x = forward.tensor("x", Shape::rows([4]), DType::F32, Kind::Input, layer);
    forward.inputs.push(x);
    let hidden = dense(&mut forward, "hidden", x, 8);
    let relu = forward.push(Op::Elementwise(Chain::unary(Unary::Relu)), &[hidden], layer).unwrap()[0];
    let output = dense(&mut forward, "output", relu, 2);
    forward.outputs.push(output);
    let training = Training {
        losses: vec![Loss { kind: LossKind::MeanSquaredError, weight: 1.0 }],
        ..Training::new(optimizer)
    };
    training_graph(&forward, &training).unwrap()
}

fn dense(graph: &mut Graph, name: &str, x: TensorId, units: usize) -> TensorId {
    let layer = graph.layer(name);
    let wide = graph.tensors[x.0].shape.last();
    let kind = Kind::Weight { trainable: true };
    let kernel = graph.tensor(format!("{name}/kernel"), Shape::fixed([wide, units]), DType::F32, kind, layer);
    graph.push(Op::Dense, &[x, kernel], layer).unwrap()[0]
}

fn problem(graph: Graph, batch: usize, total: u64) -> Problem {
    let cost =
        Cost { workspace_fixed: Bytes(128), nanos_fixed: 100.0, nanos_per_row: 10.0, ..Cost::default() };
    let budget = Budget { total: Bytes(total), runtime: Bytes::ZERO, granule: Bytes(1), host: Bytes::ZERO };
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

fn check_text(problem: &Problem, expected: &Expect) {
    let plan = plan(problem).unwrap();
    expected.assert_eq(&check(problem, plan).unwrap().listing());
}

#[test]
fn a_graph_reads_like_a_list_of_what_happens() {
    expect![[r#"
        feed   x f32[batch,4]
        feed   target/output f32[batch,2]
        begin  zero -> loss f32[1]
        begin  zero -> d output/kernel f32[8,2]
        begin  zero -> d hidden/kernel f32[4,8]
        piece  dense(x, hidden/kernel) -> hidden:dense f32[batch,8]
        piece  elementwise relu(a) (hidden:dense) -> hidden:elementwise f32[batch,8]
        piece  dense(hidden:elementwise, output/kernel) -> output:dense f32[batch,2]
        piece  loss Loss { kind: MeanSquaredError, weight: 1.0 } (output:dense, target/output) -> d output:loss f32[batch,2] => loss f32[1]
        piece  dense_grad_kernel(hidden:elementwise, d output:loss) => d output/kernel f32[8,2]
        piece  sign_bits { below: inf } (hidden:elementwise) -> hidden:bits u8[batch,1]
        piece  dense_grad_input(d output:loss, output/kernel) -> d output:dense_grad_input f32[batch,8]
        piece  mask_bits(d output:dense_grad_input, hidden:bits) -> d hidden:elementwise f32[batch,8]
        piece  dense_grad_kernel(x, d hidden:elementwise) => d hidden/kernel f32[4,8]
        end    update Update { rule: Sgd { momentum: 0.0, nesterov: false }, clip: None, weight_decay: 0.0, guarded: false, steps: 1, average: None } (d output/kernel) => output/kernel f32[8,2]
        end    update Update { rule: Sgd { momentum: 0.0, nesterov: false }, clip: None, weight_decay: 0.0, guarded: false, steps: 1, average: None } (d hidden/kernel) => hidden/kernel f32[4,8]
        output output:dense f32[batch,2]
    "#]].assert_eq(&network(Optimizer::sgd(0.1)).to_string());
}

#[test]
fn in_one_micro_batch_each_gradient_is_applied_and_released_at_once() {
    check_text(
        &problem(network(Optimizer::sgd(0.1)), 8, 1 << 20),
        &expect![[r#"
            plan  batch 8 = 1 x 8  peak 904 bytes  bound 904 bytes
            persistent
              hidden/kernel@0+128
              output/kernel@128+64
              loss@192+4
            body
              copy feed x -> @256+128
              dense(x@256+128, hidden/kernel@0+128) -> hidden:dense@384+256  workspace @640+128
              elementwise(hidden:dense@384+256) -> hidden:elementwise@384+256  workspace @640+128
              dense(hidden:elementwise@384+256, output/kernel@128+64) -> output:dense@640+64  workspace @704+128
              copy feed target/output -> @832+64
              loss(output:dense@640+64, target/output@832+64) -> d output:loss@640+64 =>fresh loss@192+4  workspace @704+128
              dense_grad_kernel(hidden:elementwise@384+256, d output:loss@640+64) =>fresh d output/kernel@832+64  workspace @704+128
              sign_bits(hidden:elementwise@384+256) -> hidden:bits@896+8  workspace @704+128
              dense_grad_input(d output:loss@640+64, output/kernel@128+64) -> d output:dense_grad_input@384+256  workspace @704+128
              update(d output/kernel@832+64) => output/kernel@128+64  workspace @640+128
              mask_bits(d output:dense_grad_input@384+256, hidden:bits@896+8) -> d hidden:elementwise@384+256  workspace @640+128
              dense_grad_kernel(x@256+128, d hidden:elementwise@384+256) =>fresh d hidden/kernel@640+128  workspace @768+128
              update(d hidden/kernel@640+128) => hidden/kernel@0+128  workspace @256+128
        "#]],
    );
}

#[test]
fn in_micro_batches_gradients_live_from_prologue_to_epilogue() {
    let mut problem = problem(network(Optimizer::sgd(0.1)), 8, 1 << 20);
    problem.budget.total = smallest_budget(&problem);
    check_text(
        &problem,
        &expect![[r#"
            plan  batch 8 = 8 x 1  peak 712 bytes  bound 712 bytes
            persistent
              hidden/kernel@0+128
              output/kernel@128+64
              loss@192+4
            prologue
              zero() -> loss@192+4  workspace @256+128
              zero() -> d output/kernel@384+64  workspace @256+128
              zero() -> d hidden/kernel@256+128  workspace @448+128
            body
              copy feed x -> @640+16
              dense(x@640+16, hidden/kernel@0+128) -> hidden:dense@448+32  workspace @512+128
              elementwise(hidden:dense@448+32) -> hidden:elementwise@448+32  workspace @512+128
              dense(hidden:elementwise@448+32, output/kernel@128+64) -> output:dense@512+8  workspace @576+128
              copy feed target/output -> @704+8
              loss(output:dense@512+8, target/output@704+8) -> d output:loss@512+8 => loss@192+4  workspace @576+128
              dense_grad_kernel(hidden:elementwise@448+32, d output:loss@512+8) => d output/kernel@384+64  workspace @576+128
              sign_bits(hidden:elementwise@448+32) -> hidden:bits@704+1  workspace @576+128
              dense_grad_input(d output:loss@512+8, output/kernel@128+64) -> d output:dense_grad_input@448+32  workspace @576+128
              mask_bits(d output:dense_grad_input@448+32, hidden:bits@704+1) -> d hidden:elementwise@448+32  workspace @512+128
              copy feed x -> @640+16
              dense_grad_kernel(x@640+16, d hidden:elementwise@448+32) => d hidden/kernel@256+128  workspace @512+128
            epilogue
              update(d output/kernel@384+64) => output/kernel@128+64  workspace @448+128
              update(d hidden/kernel@256+128) => hidden/kernel@0+128  workspace @384+128
        "#]],
    );
}

#[test]
fn clipping_by_the_global_norm_holds_every_gradient_until_the_norm_is_known() {
    let released = problem(network(Optimizer::sgd(0.1)), 64, 1 << 20);
    let clipped = Optimizer { clip: ClipBy::GlobalNorm(1.0), ..Optimizer::sgd(0.1) };
    let held = problem(network(clipped), 64, 1 << 20);
    let position = |problem: &Problem| {
        let plan = plan(problem).unwrap();
        let is_update = |step: &memfit_ir::Step| match step {
            memfit_ir::Step::Launch { node, .. } => matches!(problem.graph.nodes[node.0].op, Op::Update(_)),
            memfit_ir::Step::Copy { .. } | memfit_ir::Step::Wait(_) => false,
        };
        (plan.body.iter().position(is_update).unwrap(), plan.body.len())
    };
    let (early, of) = position(&released);
    assert!(early + 2 < of, "the first update stands before the end: {early} of {of}");
    let (late, of) = position(&held);
    assert_eq!(late + 2, of, "both updates stand at the end");
}

#[test]
fn one_byte_short_of_the_whole_batch_splits_it_in_two() {
    let mut problem = problem(network(Optimizer::sgd(0.1)), 64, 1 << 20);
    let whole = plan(&problem).unwrap();
    assert_eq!(whole.micro_batches(), 1);
    problem.budget.total = whole.bytes_peak;
    assert_eq!(plan(&problem).unwrap().micro_batches(), 1);
    problem.budget.total = whole.bytes_peak - Bytes(1);
    assert_eq!(plan(&problem).unwrap().micro_batches(), 2);
}

#[test]
fn a_refusal_names_the_smallest_budget_and_it_is_honest() {
    let mut problem = problem(network(Optimizer::adam()), 64, 100);
    let answer = plan(&problem).unwrap_err();
    expect![[r#"
        this step needs 1.07 KiB and the budget is 100 B
          peak   step 4, dense of hidden
          held   program 0 B  weights 192 B  gradients 192 B  optimizer 384 B  activations 36 B  workspace 128 B  input 16 B
          reason at this step these are alive together in the smallest plan found:
                        384 B  optimizer: kept from step to step
                        192 B  weights: kept from step to step
                        192 B  gradients: summed over the micro-batches until the last is done
                        128 B  workspace of dense: scratch memory of this step
                         32 B  hidden:dense: written by this step
                         16 B  x: read by this step
                          4 B  activations: kept from step to step
          most   hidden holds 73 % of it, 688 B
          fits   at 1.07 KiB and above: a budget of 1 MiB"#]].assert_eq(&answer.to_string());
    problem.budget.total = answer.smallest;
    plan(&problem).unwrap();
    problem.budget.total = answer.smallest - Bytes(1);
    plan(&problem).unwrap_err();
}

#[test]
fn the_timeline_counts_every_live_byte_once() {
    let problem = problem(network(Optimizer::adam()), 64, 1 << 20);
    let plan = plan(&problem).unwrap();
    let timeline = timeline(&problem, &plan);
    let peak = &timeline.moments[timeline.peak];
    let weights = Bytes(4 * (4 * 8 + 8 * 2));
    assert_eq!(peak.held.get(Group::Weights), weights);
    assert_eq!(peak.held.get(Group::Optimizer), weights * 2);
    let rounding = Bytes(64) * timeline.holders.len() as u64;
    assert!(peak.held.total() <= plan.bytes_bound && plan.bytes_bound <= peak.held.total() + rounding);
    for (time, moment) in timeline.moments.iter().enumerate() {
        let mut alive: Vec<_> =
            timeline.holders.iter().filter(|holder| holder.lower <= time && time < holder.upper).collect();
        assert_eq!(alive.iter().map(|holder| holder.slot.bytes).sum::<Bytes>(), moment.held.total());
        alive.sort_by_key(|holder| holder.slot.offset);
        for pair in alive.windows(2) {
            assert!(!pair[0].slot.overlaps(&pair[1].slot), "step {time}: {pair:?}");
        }
    }
}

#[test]
fn the_largest_batch_fits_and_one_more_row_does_not() {
    let problem = problem(network(Optimizer::sgd(0.1)), 1, 20_000);
    let (largest, curve) = largest_batch(&problem);
    let largest = largest.unwrap();
    let needs = |batch: usize| curve.iter().find(|(at, _)| *at == batch).unwrap().1;
    assert!(needs(largest) <= problem.budget.total && problem.budget.total < needs(largest + 1));
    assert!(curve.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
}

#[test]
fn five_thousand_layers_are_packed_within_two_percent_of_the_bound() {
    let mut forward = Graph::default();
    let layer = forward.layer("input");
    let x = forward.tensor("x", Shape::rows([100]), DType::F32, Kind::Input, layer);
    forward.inputs.push(x);
    let output = (0..5_000).fold(x, |x, index| dense(&mut forward, &format!("dense{index}"), x, 100));
    forward.outputs.push(output);
    let losses = vec![Loss { kind: LossKind::MeanSquaredError, weight: 1.0 }];
    let graph = training_graph(&forward, &Training { losses, ..Training::new(Optimizer::sgd(0.1)) }).unwrap();
    let mut problem = problem(graph, 1_000, 16 << 30);
    for total in [16 << 30, 1 << 30] {
        problem.budget.total = Bytes(total);
        let start = std::time::Instant::now();
        let plan = plan(&problem).unwrap();
        let seconds = start.elapsed().as_secs_f64();
        println!("{} pieces planned in {seconds:.3} s", plan.micro_batches());
        assert!(plan.bytes_peak.0 as f64 <= 1.02 * plan.bytes_bound.0 as f64, "{plan:?}");
        check(&problem, plan).unwrap();
    }
}

/// Two branches, each wide in the middle, with all wide values written before the first is read.
fn branches() -> Graph {
    let mut forward = Graph::default();
    let layer = forward.layer("x");
    let x = forward.tensor("x", Shape::rows([4]), DType::F32, Kind::Input, layer);
    forward.inputs.push(x);
    let wide: Vec<TensorId> =
        (0..4).map(|index| dense(&mut forward, &format!("wide_{index}"), x, 1024)).collect();
    let small: Vec<TensorId> = wide
        .into_iter()
        .map(|wide| forward.push(Op::Slice { axis: 0, start: 0, length: 4 }, &[wide], layer).unwrap()[0])
        .collect();
    let sum = forward.push(Op::Elementwise(Chain::fold(Binary::Add, 4)), &small, layer).unwrap()[0];
    let output = dense(&mut forward, "output", sum, 2);
    forward.outputs.push(output);
    forward
}

#[test]
fn another_order_holds_fewer_wide_values_at_once() {
    let problem = problem(branches(), 8, 1 << 30);
    let (written, ordered) = (as_written(&problem), plan(&problem).unwrap());
    assert!(
        ordered.bytes_peak.0 + 2 * 8 * 1024 * 4 <= written.bytes_peak.0,
        "{} in the written order, {} in another",
        written.bytes_peak,
        ordered.bytes_peak
    );
    check(&problem, ordered).unwrap();
}
