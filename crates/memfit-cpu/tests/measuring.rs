//! Measuring stays within its bytes and gives them back: a test of its own, since all of a process is looked
//! at.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on says where it stopped"
)]

use memfit_cpu::open;
use memfit_device::{Allowance, Table, process};
use memfit_ir::{Binary, Bytes, Chain, DType, Graph, Kind, Op, Shape};

#[test]
fn measuring_takes_what_it_may_and_gives_it_back() {
    let mut graph = Graph::default();
    let layer = graph.layer("sum");
    let x = graph.tensor("x", Shape::rows([1 << 16]), DType::F32, Kind::Input, layer);
    graph.push(Op::Elementwise(Chain::binary(Binary::Add)), &[x, x], layer).unwrap();
    let setup = open(Some(2)).unwrap();
    process::populate_program();
    // Once, so that stacks and caches of the allocator are there.
    let small = Allowance { bytes: Bytes::mib(1), seconds: 1.0 };
    assert_eq!(setup.measure(&graph, 1, small, &mut Table::new()).timed, 1);
    process::trim();
    let (before, bytes) = (process::resident(), Bytes::mib(48));
    let mut known = Table::new();
    let measured = setup.measure(&graph, 4096, Allowance { bytes, seconds: 10.0 }, &mut known);
    assert_eq!(measured.timed, 1);
    process::trim();
    let (peak, after) = (process::resident_peak(), process::resident());
    assert!(peak <= before + bytes + Bytes::mib(1), "{before} grew to {peak}");
    assert!(before + Bytes::mib(40) <= peak, "a batch of 3 GiB is measured in all the room there is");
    assert!(after <= before + Bytes::mib(1), "{before} before, {after} after");
}
