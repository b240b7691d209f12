//! Nodes with several algorithms, here with synthetic workspaces and times: which of them a budget chooses.

use memfit::DeviceChoice as Choice;
use memfit_ir::{Bytes, CheckError, LowWorkspace, Nanos, Plan, Problem, Step, check};
use memfit_testkit::harness::{runner, runner_of};
use memfit_testkit::random_graphs::Draws;
use memfit_testkit::random_training::{compare, random_problem, tolerance, trained_weights, with_budget};

/// A random training in which most nodes have algorithms with more workspace than needed, each by up to
/// `most` times 64 bytes. The least workspace is what their kernels really take.
fn offered(seed: u64, most: usize) -> Problem {
    let mut problem = random_problem(Choice::Cpu, seed, seed.is_multiple_of(4));
    let mut draws = Draws { seed, next: 5000 };
    for cost in &mut problem.costs {
        let need = cost.workspace_fixed;
        let more = [draws.below(most), draws.below(most), draws.below(most)];
        let slower = 1.0 + draws.below(20) as f64 / 10.0;
        let bytes = |parts: &[usize]| Bytes(64 * parts.iter().map(|part| *part as u64 + 1).sum::<u64>());
        let way = |beside: Bytes, times: f64| {
            let nanos = Nanos { fixed: cost.nanos_fixed * (times - 1.0), per_row: 0.0 };
            Some(LowWorkspace { workspace_fixed: need + beside, nanos })
        };
        let (first, second, least) = (
            way(bytes(&more[..2]), slower),
            way(bytes(&more[..1]), slower * 1.5),
            way(Bytes::ZERO, slower * 2.0),
        );
        // Some nodes have no other algorithm, some have one, some have three.
        match draws.below(4) {
            0 => {}
            1 => (cost.workspace_fixed, cost.leaner) = (need + bytes(&more), [least, None, None]),
            _ => (cost.workspace_fixed, cost.leaner) = (need + bytes(&more), [first, second, least]),
        }
    }
    problem
}

/// The same with only the fastest algorithm of every node.
fn fixed(problem: &Problem) -> Problem {
    let mut fixed = problem.clone();
    fixed.costs.iter_mut().for_each(|cost| cost.leaner = Default::default());
    fixed
}

fn budgets(low: Bytes, high: Bytes, count: u64) -> impl Iterator<Item = Bytes> {
    (0..=count).map(move |index| Bytes(low.0 + high.0.saturating_sub(low.0) * index / count))
}

#[test]
fn every_budget_chooses_algorithms_that_exist_and_gives_the_same_numbers() {
    let (mut leaner, mut whole, mut split) = (0, 0, 0);
    for seed in 0..40 {
        let problem = offered(seed, 64);
        let reference = trained_weights(&problem, runner(&problem));
        let plan = memfit_plan::plan(&problem).unwrap();
        assert_eq!(
            memfit_plan::launches_leaner(&problem, &plan),
            0,
            "seed {seed}: there is room for the fastest"
        );
        let smallest = memfit_plan::smallest_budget(&problem);
        for total in budgets(smallest, plan.bytes_peak, 5) {
            let tight = with_budget(&problem, total);
            let plan = memfit_plan::plan(&tight).unwrap();
            assert!(plan.bytes_bound <= plan.bytes_peak && plan.bytes_peak <= total);
            leaner += usize::from(memfit_plan::launches_leaner(&tight, &plan) > 0);
            let pieces = plan.micro_batches() * plan.region().map_or(1, |region| region.slices);
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
    assert!(leaner > 60 && whole > 40 && split > 40, "{leaner} leaner, {whole} whole, {split} split");
}

#[test]
fn a_larger_budget_never_gives_a_slower_plan_or_a_refusal() {
    for seed in 200..212 {
        let problem = offered(seed, 64);
        let smallest = memfit_plan::smallest_budget(&problem);
        let most = memfit_plan::plan(&problem).unwrap().bytes_peak + Bytes(4096);
        let mut before = f64::INFINITY;
        for total in budgets(smallest, most, 40) {
            let plan = memfit_plan::plan(&with_budget(&problem, total)).unwrap();
            let seconds = memfit_plan::seconds(&problem, &plan);
            assert!(seconds <= before * (1.0 + 1e-9), "seed {seed}: {total} gives a slower plan");
            before = seconds;
        }
        assert!(memfit_plan::plan(&with_budget(&problem, Bytes(smallest.0 - 1))).is_err(), "seed {seed}");
        assert!(
            smallest <= memfit_plan::smallest_budget(&fixed(&problem)),
            "seed {seed}: choosing costs nothing"
        );
    }
}

#[test]
fn workspace_is_given_up_before_values_are_where_that_costs_less() {
    let mut given_up = 0;
    for seed in 300..320 {
        let mut problem = offered(seed, 512);
        problem.costs.iter_mut().for_each(|cost| {
            cost.leaner.iter_mut().flatten().for_each(|way| way.nanos = Nanos { fixed: 1.0, per_row: 0.0 });
        });
        let plan = memfit_plan::plan(&problem).unwrap();
        let least = {
            let mut least = problem.clone();
            least.costs.iter_mut().for_each(|cost| {
                cost.workspace_fixed = cost.workspace_least(0);
                cost.leaner = Default::default();
            });
            memfit_plan::plan(&least).unwrap()
        };
        // Between the two budgets, only workspaces must shrink. The planner does not search an order that
        // saves almost nothing, so the two may be equal.
        let Some(between) = plan.bytes_peak.0.checked_sub(least.bytes_peak.0) else { continue };
        let total = Bytes(least.bytes_peak.0 + between / 2);
        let tight = with_budget(&problem, total);
        let found = memfit_plan::plan(&tight).unwrap();
        let seconds = |plan: &Plan| memfit_plan::seconds(&problem, plan);
        let launches = memfit_plan::launches_leaner(&tight, &found);
        assert!(seconds(&found) <= seconds(&plan) + 1e-9 * problem.graph.nodes.len() as f64, "seed {seed}");
        given_up += launches;
        // Predicted times show which algorithms were chosen: each that is not the fastest takes a nanosecond
        // more.
        if memfit_plan::nodes_recomputed(&found) == 0
            && found.micro_batches() == 1
            && found.region().is_none()
        {
            let more = (seconds(&found) - seconds(&plan)) * 1e9;
            assert!(
                (more - launches as f64).abs() < 1e-3,
                "seed {seed}: {launches} launches take {more} ns more"
            );
        }
    }
    assert!(given_up > 20, "{given_up} launches");
}

#[test]
fn an_algorithm_that_does_not_exist_is_rejected() {
    let problem = offered(1, 64);
    let plan = memfit_plan::plan(&problem).unwrap();
    check(&problem, plan.clone()).unwrap();
    let mut seen = 0;
    for at in 0..plan.body.len() {
        let Step::Launch { node, workspace, .. } = &plan.body[at] else { continue };
        let (node, had, cost) = (*node, workspace.bytes, problem.costs[node.0]);
        let with = |bytes: Bytes| {
            let mut other = plan.clone();
            if let Step::Launch { workspace, .. } = &mut other.body[at] {
                workspace.bytes = bytes;
            }
            check(&problem, other)
        };
        // Less than one algorithm's workspace and more than the next one's, and less than the least.
        for (bytes, _) in cost.ways(problem.batch).filter(|(bytes, _)| Bytes::ZERO < *bytes) {
            let got = with(bytes - Bytes(1));
            if matches!(got, Err(CheckError::Peak(_))) {
                continue;
            }
            assert!(matches!(got, Err(CheckError::Workspace(wrong)) if wrong == node), "{got:?}");
            // The workspace of another existing algorithm is valid, if it does not change the peak.
            let got = with(bytes);
            assert!(bytes > had || matches!(got, Ok(_) | Err(CheckError::Peak(_))), "{got:?}");
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");
}
