//! What of a plan changes bits can be decided beforehand: under every other budget the training then gives the same bits.

use memfit::DeviceChoice as Choice;
use memfit_ir::{Bytes, CheckError, LowWorkspace, Nanos, NodeId, Pinned, Problem, Region, TensorId, check};
use memfit_plan::{CannotPin, may_pin, smallest_budget, solved};
use memfit_testkit::harness::runner_of;
use memfit_testkit::random_training::{random_problem, trained_weights, with_budget};

fn pinned_to(problem: &Problem, pinned: &Pinned) -> Problem {
    Problem { pinned: pinned.clone(), ..problem.clone() }
}

#[test]
fn a_pinned_plan_gives_the_same_bits_under_every_budget() {
    let (mut split, mut sliced, mut moved) = (0, 0, 0);
    for seed in 0..60 {
        let problem = random_problem(Choice::Cpu, seed, seed.is_multiple_of(2));
        let (low, high) = (smallest_budget(&problem), memfit_plan::plan(&problem).unwrap().bytes_peak);
        let middle = Bytes(low.0 + high.0.saturating_sub(low.0) / 3);
        let tight = with_budget(&problem, middle.max(low));
        let plan = memfit_plan::plan(&tight).unwrap();
        let pinned = Pinned::of_plan(&solved(&tight, &plan), &plan);
        assert!(pinned.is_exact());
        split += usize::from(1 < plan.micro_batches());
        sliced += usize::from(plan.region().is_some());
        let wanted = trained_weights(&tight, runner_of(&tight, plan.clone()));
        let free = pinned_to(&problem, &pinned);
        let least = smallest_budget(&free);
        assert!(
            low <= least && least <= middle.max(low),
            "seed {seed}: a pin does not make anything smaller"
        );
        for total in [least, Bytes((least.0 + high.0) / 2).max(least), high.max(least), Bytes(high.0 * 8)] {
            let other = with_budget(&free, total);
            let found = memfit_plan::plan(&other).unwrap();
            assert!(pinned.allows(&solved(&other, &found), &found), "seed {seed} at {total}");
            moved += usize::from(found != plan);
            assert_eq!(trained_weights(&other, runner_of(&other, found)), wanted, "seed {seed} at {total}");
        }
        let below = with_budget(&free, Bytes(least.0 - 1));
        assert!(memfit_plan::plan(&below).is_err(), "seed {seed}: below the smallest nothing fits");
    }
    assert!(5 < split && 0 < sliced && 20 < moved, "{split} split, {sliced} sliced, {moved} other plans");
}

#[test]
fn every_number_of_micro_batches_can_be_asked_for() {
    for seed in [1, 3, 5, 7] {
        let problem = random_problem(Choice::Cpu, seed, false);
        for rows in [problem.batch, 4, 3, 2, 1] {
            let pinned = Pinned { micro_batch: Some(rows), ..Pinned::default() };
            let problem = pinned_to(&problem, &pinned);
            may_pin(&problem).unwrap();
            let plans = [memfit_plan::plan(&problem).ok(), memfit_plan::first(&problem)];
            for plan in plans.into_iter().flatten().chain([memfit_plan::fastest(&problem).unwrap()]) {
                assert_eq!(plan.micro_batch, rows);
                check(&problem, plan).unwrap();
            }
            assert!(memfit_plan::curve(&problem).iter().all(|plan| plan.micro_batch == rows));
        }
    }
}

#[test]
fn pinned_algorithms_are_the_only_ones_used() {
    let mut problem = random_problem(Choice::Cpu, 3, false);
    for (index, cost) in problem.costs.iter_mut().enumerate() {
        let least =
            LowWorkspace { workspace_fixed: cost.workspace_fixed, nanos: Nanos { fixed: 1e3, per_row: 0.0 } };
        cost.workspace_fixed += Bytes(64 * (index as u64 + 1) * 100);
        cost.leaner[0] = Some(least);
    }
    let roomy = memfit_plan::plan(&problem).unwrap();
    let tight = memfit_plan::plan(&with_budget(&problem, smallest_budget(&problem))).unwrap();
    assert_ne!(memfit_plan::launches_leaner(&problem, &tight), 0);
    for plan in [roomy, tight] {
        let pinned = Pinned::of_plan(&solved(&problem, &plan), &plan);
        let problem = pinned_to(&problem, &pinned);
        may_pin(&problem).unwrap();
        for total in [smallest_budget(&problem), problem.budget.total] {
            let other = with_budget(&problem, total);
            let found = memfit_plan::plan(&other).unwrap();
            assert!(pinned.allows(&solved(&other, &found), &found), "{total}");
            check(&other, found).unwrap();
        }
    }
}

#[test]
fn what_cannot_be_pinned_is_refused() {
    let (free, mixing) = (random_problem(Choice::Cpu, 1, false), random_problem(Choice::Cpu, 2, true));
    let rows = |rows: usize| Pinned { micro_batch: Some(rows), ..Pinned::default() };
    let region = Region { boundary: TensorId(usize::MAX), slices: 2, keeps: true };
    let sliced = Pinned { region: Some(Some(region)), ..Pinned::default() };
    let algorithm = Pinned { algorithms: vec![(NodeId(0), Bytes(77))], ..Pinned::default() };
    let refused = |problem: &Problem, pinned: &Pinned| may_pin(&pinned_to(problem, pinned)).unwrap_err();
    let batch = free.batch;
    assert_eq!(refused(&free, &rows(0)), CannotPin::MicroBatch { rows: 0, batch });
    assert_eq!(refused(&free, &rows(batch + 1)), CannotPin::MicroBatch { rows: batch + 1, batch });
    assert_eq!(refused(&free, &sliced), CannotPin::Region(region));
    assert!(matches!(refused(&free, &algorithm), CannotPin::Algorithm { .. }));
    if mixing.graph.nodes.iter().any(|node| node.op.mixes_rows()) {
        assert!(matches!(refused(&mixing, &rows(2)), CannotPin::MixesRows { .. }));
    }
    let plan = memfit_plan::plan(&free).unwrap();
    assert_eq!(check(&pinned_to(&free, &rows(1)), plan).unwrap_err(), CheckError::Pinned);
}
