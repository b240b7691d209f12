//! Random graphs under random budgets: refused with a bound, or equal to the unconstrained run.

use memfit::DeviceChoice as Choice;
use memfit_ir::{Bytes, ProducerFusions, Rewritten};
use memfit_plan::moves::reorder::as_written;
use memfit_testkit::harness::{runner, runner_of};
use memfit_testkit::random_graphs::{Draws, random_stack};
use memfit_testkit::random_training::{
    compare, random_problem, tolerance, trained, trained_weights, with_budget,
};

#[test]
fn a_random_graph_is_refused_with_a_bound_or_equals_the_unconstrained_run() {
    let (mut refused, mut whole, mut split, mut recomputed, mut offloaded) = (0, 0, 0, 0, 0);
    let (mut in_slices, mut folded) = (0, 0);
    for seed in 0..120 {
        let mut problem = random_problem(Choice::Cpu, seed, seed % 4 == 0);
        // Every third graph may copy values out to a file, and computes so slowly that it will.
        if seed % 3 == 0 {
            problem.budget.host = Bytes(1 << 30);
            problem.costs.iter_mut().for_each(|cost| cost.nanos_fixed *= 1000.0);
        }
        let reference = trained_weights(&problem, runner(&problem));
        let written = trained_weights(&problem, runner_of(&problem, as_written(&problem)));
        assert_eq!(written, reference, "seed {seed}: another order gives other bits");
        let mut draws = Draws { seed, next: 1000 };
        let smallest = memfit_plan::smallest_budget(&problem);
        let most = memfit_plan::plan(&problem).unwrap().bytes_peak;
        for _ in 0..6 {
            let low = smallest.0 - smallest.0 / 16;
            let span = (most.0 + (16 << 10)).saturating_sub(low);
            let total = Bytes(low + draws.below(span as usize) as u64);
            let tight = with_budget(&problem, total);
            match memfit_plan::plan(&tight) {
                Err(answer) => {
                    refused += 1;
                    assert_eq!(answer.smallest, smallest, "seed {seed}");
                    assert!(total < smallest, "seed {seed}: refused at {total} though {smallest} fits");
                }
                Ok(plan) => {
                    assert!(smallest <= total, "seed {seed}: planned below the smallest budget");
                    assert!(plan.bytes_bound <= plan.bytes_peak && plan.bytes_peak <= total);
                    let pieces = plan.micro_batches() * plan.region().map_or(1, |region| region.slices);
                    in_slices += usize::from(plan.region().is_some());
                    folded += usize::from(plan.producers_fused().next().is_some() && pieces == 1);
                    offloaded += usize::from(plan.bytes_host > Bytes::ZERO && pieces == 1);
                    recomputed += usize::from(memfit_plan::nodes_recomputed(&plan) > 0 && pieces == 1);
                    let got = trained_weights(&tight, runner_of(&tight, plan));
                    if pieces == 1 {
                        whole += 1;
                        assert_eq!(got, reference, "seed {seed}: the same plan gives other bits");
                    } else {
                        split += 1;
                        compare(&got, &reference, tolerance(&problem), seed);
                    }
                }
            }
        }
    }
    let counts = format!(
        "{refused} refused, {whole} whole ({recomputed} recomputed, {offloaded} offloaded, {folded} folded), {split} split \
         ({in_slices} a region of them)"
    );
    assert!(
        refused > 10
            && whole > 10
            && split > 10
            && recomputed > 10
            && offloaded > 5
            && in_slices > 0
            && folded > 0,
        "{counts}"
    );
}

#[test]
fn recomputing_in_the_consumer_wherever_possible_changes_no_bit() {
    let mut folded = 0;
    for seed in 0..24 {
        let problem = trained(Choice::Cpu, &random_stack(seed));
        let (graph, readers) = ProducerFusions::all(&problem.graph);
        assert!(
            readers.iter().all(|id| problem.costs_rewritten.contains_key(&Rewritten::Reader(*id))),
            "seed {seed}"
        );
        let reference = trained_weights(&problem, runner(&problem));
        let plan = memfit_plan::plan(&problem.rewritten(&graph.rewrites).unwrap()).unwrap();
        assert_eq!(plan.rewrites, graph.rewrites, "seed {seed}");
        assert_eq!(
            trained_weights(&problem, runner_of(&problem, plan)),
            reference,
            "seed {seed}: other bits"
        );
        folded += graph.rewrites.len();
    }
    assert!(folded > 40, "{folded} values folded");
}

#[test]
fn a_larger_budget_never_gives_a_slower_plan_or_a_refusal() {
    for seed in 100..112 {
        let problem = random_problem(Choice::Cpu, seed, seed % 2 == 0);
        let smallest = memfit_plan::smallest_budget(&problem);
        let most = memfit_plan::plan(&problem).unwrap().bytes_peak + Bytes(4096);
        let mut before = f64::INFINITY;
        for index in 0..=40 {
            let total = Bytes(smallest.0 + (most.0.saturating_sub(smallest.0)) * index / 40);
            let plan = memfit_plan::plan(&with_budget(&problem, total)).unwrap();
            let seconds = memfit_plan::seconds(&problem, &plan);
            assert!(seconds <= before * (1.0 + 1e-9), "seed {seed}: {total} gives a slower plan");
            before = seconds;
        }
        assert!(memfit_plan::plan(&with_budget(&problem, Bytes(smallest.0 - 1))).is_err());
    }
}
