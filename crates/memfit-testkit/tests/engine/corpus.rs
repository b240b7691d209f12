//! Regression test: every problem of the corpus has the plan in the table, at every budget. `UPDATE_EXPECT=1`
//! rewrites the table.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use memfit_ir::{Bytes, Plan, Problem, check};
use memfit_testkit::corpus::{UNCONSTRAINED, entries, folder, problem};

/// The first line of the table.
const HEAD: &str =
    "problem\tbudget\tmicro_batch\tregion\tfolds\tapplied\trecomputed\toffloaded\tpeak\tbound\tdigest";

fn table() -> PathBuf {
    folder().join("plans.tsv")
}

/// The name and budget of each row, and the row.
fn rows() -> Vec<(String, Bytes, String)> {
    let text = fs::read_to_string(table()).expect("the table is there");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(HEAD));
    lines
        .map(|line| {
            let mut columns = line.split('\t');
            let (name, budget) = (columns.next().expect("a name"), columns.next().expect("a budget"));
            (name.to_owned(), Bytes(budget.parse().expect("bytes")), line.to_owned())
        })
        .collect()
}

fn read(name: &str) -> Problem {
    let text = fs::read_to_string(folder().join(format!("{name}.txt"))).expect("a problem of the corpus");
    let problem = Problem::from_text(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(problem.to_text() == text, "{name} is not printed as it stands in its file");
    problem
}

/// A problem's answer under a budget as a row of the table.
fn row(name: &str, problem: &Problem) -> String {
    let budget = problem.budget.total.0;
    match memfit_plan::plan(problem) {
        Err(answer) => format!("{name}\t{budget}\trefused\tfits at {}", answer.smallest.0),
        Ok(plan) => {
            check(problem, plan.clone()).expect("the planner's plans are right");
            let Plan { micro_batch, bytes_peak, bytes_bound, .. } = &plan;
            let region = plan.region().map_or("-".to_owned(), |region| {
                format!("{}/{}/{}", region.boundary.0, region.slices, u8::from(region.keeps))
            });
            let (recomputed, offloaded) =
                (memfit_plan::nodes_recomputed(&plan), memfit_plan::bytes_offloaded(&plan).0);
            let choice = format!(
                "{micro_batch}\t{region}\t{}\t{}\t{recomputed}\t{offloaded}",
                plan.producers_fused().count(),
                plan.updates_fused().count()
            );
            let bytes = format!("{}\t{}", bytes_peak.0, bytes_bound.0);
            format!("{name}\t{budget}\t{choice}\t{bytes}\t{:016x}", plan.digest())
        }
    }
}

/// Runs all of some work on all processors, with results in order.
fn on_all<T: Sync, R: Send>(work: &[T], each: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = work.get(at) else { break };
                    let result = each(one);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[test]
fn every_problem_has_the_plan_that_the_table_says() {
    let rows = rows();
    let found = on_all(&rows, |(name, budget, _)| {
        let mut problem = read(name);
        problem.budget.total = *budget;
        row(name, &problem)
    });
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(table(), format!("{HEAD}\n{}\n", found.join("\n"))).expect("the table is written");
        return;
    }
    let differ: Vec<String> = rows
        .iter()
        .zip(&found)
        .filter(|((_, _, expected), found)| expected != *found)
        .map(|((_, _, expected), found)| format!("- {expected}\n+ {found}"))
        .collect();
    assert!(
        differ.is_empty(),
        "{} of {} plans changed; where that is meant, UPDATE_EXPECT=1 and say which and why\n{HEAD}\n{}",
        differ.len(),
        rows.len(),
        differ.join("\n")
    );
}

#[test]
fn the_table_has_every_entry_at_four_budgets() {
    let rows = rows();
    assert!(60 <= rows.len(), "{} problems", rows.len());
    for entry in entries() {
        let budgets: Vec<Bytes> =
            rows.iter().filter(|(name, ..)| name == entry.name).map(|(_, budget, _)| *budget).collect();
        assert!(budgets.len() == 4 && budgets.is_sorted() && budgets[3] == UNCONSTRAINED, "{}", entry.name);
    }
    assert_eq!(rows.len(), 4 * entries().len(), "a row of a problem that is no entry");
}

#[test]
#[ignore = "makes the corpus again, which changes what is frozen: tools/corpus.py runs it"]
fn regenerates_the_corpus() {
    let models = PathBuf::from(std::env::var_os("MEMFIT_CORPUS_MODELS").expect("the folder of the models"));
    let entries = entries();
    let lists = on_all(&entries, |entry| {
        let whole = problem(entry, &models);
        fs::write(folder().join(format!("{}.txt", entry.name)), whole.to_text()).expect("a file is written");
        let most = memfit_plan::plan(&whole).expect("it has no budget").bytes_peak;
        let (most, smallest) = (whole.budget.smallest(most), memfit_plan::smallest_budget(&whole));
        println!("{}: {} nodes, from {smallest} to {most}", entry.name, whole.graph.nodes.len());
        let share = |parts: u64| Bytes(smallest.0 + most.0.saturating_sub(smallest.0) * parts / 3);
        [smallest, share(1), share(2), UNCONSTRAINED]
            .map(|total| {
                let mut tight = whole.clone();
                tight.budget.total = total;
                row(entry.name, &tight)
            })
            .join("\n")
    });
    fs::write(table(), format!("{HEAD}\n{}\n", lists.join("\n"))).expect("the table is written");
}
