//! Joined launches, compared with the same launches one after the other.

use memfit_cuda::{lowered, lowered_joined};
use memfit_ir::{Binary, Chain, DType, Graph, Kind, NodeId, Op, Shape, Unary};
use memfit_testkit::op_cases::ROWS;

use super::{Emulator, Memory, POISON, Places, Wanted, context, kernels};

/// A gradient through gelu, its sums over columns, and gelu again; rows have `columns` columns.
fn graph(dtype: DType, columns: usize) -> Graph {
    let mut graph = Graph::default();
    let layer = graph.layer("dense");
    let [dg, h] =
        ["dg", "h"].map(|name| graph.tensor(name, Shape::rows([70, columns]), dtype, Kind::Input, layer));
    let db = graph.tensor("db", Shape::fixed([columns]), DType::F32, Kind::Gradient, layer);
    let derivative = Op::Elementwise(Chain::binary(Binary::Derivative(Unary::Gelu)));
    let dh = graph.push(derivative, &[dg, h], layer).unwrap()[0];
    graph.push_updating(Op::BiasGrad, &[dh], &[db], Kind::Flow, layer).unwrap();
    graph.push(Op::Elementwise(Chain::unary(Unary::Gelu)), &[h], layer).unwrap();
    graph
}

/// Numbers between -4 and 4.
fn numbers(dtype: DType, count: usize, seed: usize) -> Vec<u8> {
    let number = |index: usize| ((index * 7919 + seed * 104_729) % 1021) as f32 / 127.6 - 4.0;
    (0..count)
        .flat_map(|index| {
            let bytes = number(index).to_le_bytes();
            if dtype == DType::F32 { bytes.to_vec() } else { bytes[2..].to_vec() }
        })
        .collect()
}

#[test]
fn joined_launches_give_the_bits_of_single_ones() {
    let cases: Vec<(DType, usize, Graph)> = [(DType::F32, 12), (DType::BF16, 24), (DType::BF16, 7)]
        .into_iter()
        .map(|(dtype, columns)| (dtype, columns, graph(dtype, columns)))
        .collect();
    let nodes = [NodeId(0), NodeId(1), NodeId(2)];
    let single = |graph: &Graph| nodes.map(|id| lowered(graph, &graph.nodes[id.0], ROWS, true, false));
    let mut wanted = Wanted::new();
    for (_, _, graph) in &cases {
        for lowered in single(graph).iter().chain(&lowered_joined(graph, nodes, ROWS)) {
            for kernel in kernels(lowered) {
                wanted.entry(kernel.source.clone()).or_default().insert(kernel.entry);
            }
        }
    }
    let Some(built) = Emulator::build(&wanted) else { return };
    let emulator = built.unwrap();
    let mut running = emulator.start();
    for (dtype, columns, graph) in &cases {
        let values = ROWS * 70 * columns;
        let bytes = values * usize::try_from(dtype.size()).unwrap();
        // Outputs, then the sums: separate, joined, and joined with outputs in the buffers of operands.
        let mut found = Vec::new();
        for variant in 0..3 {
            let mut memory = Memory { bytes: vec![], operands: vec![], workspace: 0, used: vec![] };
            memory.take(&context());
            let (dg, h) =
                (memory.take(&numbers(*dtype, values, 1)), memory.take(&numbers(*dtype, values, 2)));
            let db = memory.take(&vec![POISON; columns * 4]);
            let [mut dh, mut g] = [0; 2].map(|_| memory.take(&vec![POISON; bytes]));
            if variant == 2 {
                (dh, g) = (dg, h);
            }
            let work = if variant == 0 {
                let [first, second, third] = single(graph);
                vec![(first, vec![dg, h, dh]), (second, vec![dh, db]), (third, vec![h, g])]
            } else {
                vec![(lowered_joined(graph, nodes, ROWS).unwrap(), vec![dh, db, dg, h, g])]
            };
            let most = work.iter().map(|(lowered, _)| lowered.workspace.to_usize()).max().unwrap();
            memory.workspace = memory.take(&vec![POISON; most]);
            for (lowered, operands) in &work {
                let places = Places { context: 0, operands, workspace: memory.workspace };
                running.run(&mut memory.bytes, lowered, &places, variant == 0).unwrap();
            }
            assert!(memory.is_intact(), "nothing is written outside operands");
            let part = |at: u64, bytes: usize| memory.bytes[usize::try_from(at).unwrap()..][..bytes].to_vec();
            found.push([part(dh, bytes), part(g, bytes), part(db, columns * 4)]);
        }
        assert!(found[0] == found[1] && found[0] == found[2], "{dtype}, {columns} columns");
    }
}
