//! Training on the GPU under every move: the same bits where nothing but memory moves, near the whole batch where it is split or where
//! libraries compute by other algorithms, and near the CPU in any case.

use memfit::DeviceChoice as Choice;
use memfit_ir::{Bytes, DType};
use memfit_testkit::harness::{runner, runner_on};
use memfit_testkit::random_graphs::Draws;
use memfit_testkit::random_training::{compare, random_problem, tolerance, trained_weights, with_budget};

use super::has_gpu;

const GPU: Choice = Choice::Cuda(0);

/// How far two devices are apart after two steps, as a multiple of what splitting a batch may change.
const DEVICES_APART: f32 = 10.0;

/// Whether a graph has values of f16 or bf16. Every op rounds them, sometimes to the other side, so only f32
/// is a strict comparison of two devices.
fn holds_halves(problem: &memfit_ir::Problem) -> bool {
    problem.graph.tensors.iter().any(|tensor| matches!(tensor.dtype, DType::F16 | DType::BF16))
}

#[test]
fn every_move_agrees_on_the_gpu() {
    if !has_gpu() {
        return;
    }
    let (mut whole, mut split, mut recomputed, mut offloaded, mut in_slices) = (0, 0, 0, 0, 0);
    let mut leaner = 0;
    for seed in 0..24 {
        let mut problem = random_problem(GPU, seed, seed % 4 == 0);
        // These graphs are far smaller than the unit in which the device allocates.
        problem.budget.granule = Bytes(4096);
        let offered = problem.clone();
        // The same algorithms under every budget.
        problem.costs.iter_mut().for_each(|cost| cost.leaner = Default::default());
        // Every third graph may copy values out to the host, and computes so slowly that it will.
        if seed % 3 == 0 {
            problem.budget.host = Bytes(1 << 30);
            problem.costs.iter_mut().for_each(|cost| cost.nanos_fixed *= 1000.0);
        }
        let plan = memfit_plan::plan(&problem).unwrap();
        let most = plan.bytes_peak;
        let reference = trained_weights(&problem, runner_on(GPU, &problem, plan));
        if !holds_halves(&problem) {
            let on_cpu = random_problem(Choice::Cpu, seed, seed % 4 == 0);
            let wanted = trained_weights(&on_cpu, runner(&on_cpu));
            compare(&reference, &wanted, DEVICES_APART * tolerance(&problem), seed);
        }
        let lowest = memfit_plan::smallest_budget(&offered);
        for total in [lowest, Bytes((lowest.0 + most.0) / 2), most] {
            let tight = with_budget(&offered, total.max(lowest));
            let plan = memfit_plan::plan(&tight).unwrap();
            leaner += memfit_plan::launches_leaner(&tight, &plan);
            compare(
                &trained_weights(&tight, runner_on(GPU, &tight, plan)),
                &reference,
                tolerance(&problem),
                seed,
            );
        }
        let smallest = memfit_plan::smallest_budget(&problem);
        let mut draws = Draws { seed, next: 1000 };
        for attempt in 0..5 {
            let span = most.0.saturating_sub(smallest.0) as usize + 1;
            let total = Bytes(smallest.0 + if attempt == 0 { 0 } else { draws.below(span) as u64 });
            let tight = with_budget(&problem, total);
            let plan = memfit_plan::plan(&tight).unwrap();
            let pieces = plan.micro_batches() * plan.region().map_or(1, |region| region.slices);
            in_slices += usize::from(plan.region().is_some());
            offloaded += usize::from(plan.bytes_host > Bytes::ZERO);
            recomputed += usize::from(memfit_plan::nodes_recomputed(&plan) > 0);
            let got = trained_weights(&tight, runner_on(GPU, &tight, plan));
            if pieces == 1 {
                whole += 1;
                assert_eq!(got, reference, "seed {seed}: the same plan gives other bits");
            } else {
                split += 1;
                compare(&got, &reference, tolerance(&problem), seed);
            }
        }
    }
    let counts = format!(
        "{whole} whole, {split} split, {recomputed} recomputed, {offloaded} offloaded, {in_slices} in slices, \
         {leaner} launches by another algorithm"
    );
    println!("{counts}");
    assert!(whole > 10 && split > 10 && recomputed > 5 && offloaded > 3, "{counts}");
}
