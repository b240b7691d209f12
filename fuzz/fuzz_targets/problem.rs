//! A problem, graph or plan as text: any text becomes an answer or a value that prints as it parses.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memfit_ir::{Graph, Plan, Problem};

fuzz_target!(|text: &str| {
    if let Ok(problem) = Problem::from_text(text) {
        assert_eq!(Problem::from_text(&problem.to_text()).map(|read| read.to_text()), Ok(problem.to_text()));
    }
    if let Ok(graph) = Graph::from_text(text) {
        assert_eq!(Graph::from_text(&graph.to_text()).map(|read| read.to_text()), Ok(graph.to_text()));
    }
    if let Ok(plan) = Plan::from_text(text) {
        assert_eq!(Plan::from_text(&plan.to_text()).map(|read| read.to_text()), Ok(plan.to_text()));
    }
});
