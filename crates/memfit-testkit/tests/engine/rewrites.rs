//! Rewrites of each kind compute what the graph computes, and every seeded corruption of one is found.

use memfit_grad::{Optimizer, Training};
use memfit_ir::{
    Cut, DType, Difference, Fused, Graph, Kind, Loss, LossKind, Node, Op, Phase, Problem, ProducerFusions,
    Region, Rewrite, Rewritten, Shape, Tail, TensorId, compare,
};
use memfit_testkit::harness::problem;
use memfit_testkit::op_cases::Builder;
use memfit_testkit::random_graphs::{Draws, random_prefix, random_stack};

const BATCH: usize = 7;

fn trained(forward: &Graph) -> Problem {
    let losses = vec![Loss { kind: LossKind::MeanSquaredError, weight: 1.0 }];
    problem(forward, &Training { losses, ..Training::new(Optimizer::adam()) }, BATCH)
}

/// Dense layers, two of which may have their updates fused.
fn dense(seed: u64) -> Graph {
    let mut draws = Draws { seed, next: 0 };
    let mut graph = Graph::default();
    let layer = graph.layer("first");
    let mut b = Builder { graph, layer };
    let mut x = b.input([2 + draws.below(3), 40]);
    for index in 0..3 {
        b.layer = b.graph.layer(&format!("dense{index}"));
        x = b.dense(x, 40 + draws.below(8), true);
    }
    b.graph.outputs.push(x);
    b.graph
}

/// Problems with every rewrite of each kind, beside what they are made from.
fn rewritten(seed: u64) -> Vec<(Problem, Problem)> {
    let updates = trained(&dense(seed));
    let fused = updates.costs_rewritten.keys().filter_map(|of| match of {
        Rewritten::Update(gradient) => Some(Rewrite::FuseUpdate(*gradient)),
        Rewritten::Reader(_) => None,
    });
    let mut pairs = vec![(updates.clone(), fused.collect::<Vec<_>>())];
    let stack = trained(&random_stack(seed));
    let rewrites = ProducerFusions::all(&stack.graph).0.rewrites;
    pairs.push((stack, rewrites));
    let prefix = trained(&random_prefix(seed));
    let cuts = (0..prefix.graph.tensors.len()).filter_map(|id| Cut::at(&prefix.graph, TensorId(id)));
    let cuts = cuts.enumerate().map(|(index, cut)| (cut.boundary, index % 2 == 0));
    let tails = Tail::all(&prefix.graph).into_iter().map(|tail| (tail.boundary, true));
    for (index, (boundary, keeps)) in cuts.chain(tails).enumerate() {
        let region = Region { boundary, slices: [2, 3, BATCH][index % 3], keeps };
        pairs.push((prefix.clone(), vec![Rewrite::Slice(region)]));
    }
    let apply = |(problem, rewrites): (Problem, Vec<Rewrite>)| {
        let rewritten = problem.rewritten(&rewrites).unwrap().into_owned();
        (!rewrites.is_empty()).then_some((problem, rewritten))
    };
    pairs.into_iter().filter_map(apply).collect()
}

#[test]
fn every_rewrite_computes_what_the_graph_computes() {
    let mut kinds = [0; 3];
    for seed in 0..12 {
        for (problem, rewritten) in rewritten(seed) {
            let rewrites = &rewritten.graph.rewrites;
            assert_eq!(
                compare(&problem.graph, &rewritten.graph, false),
                Ok(()),
                "seed {seed}, {rewrites:?} of {}",
                problem.graph
            );
            for rewrite in &rewritten.graph.rewrites {
                kinds[match rewrite {
                    Rewrite::FuseUpdate(_) => 0,
                    Rewrite::FuseProducer(_) => 1,
                    Rewrite::Slice(_) => 2,
                }] += 1;
            }
            // Sections of a split batch stay apart.
            let is_whole =
                rewritten.graph.rewrites.iter().any(|rewrite| matches!(rewrite, Rewrite::FuseUpdate(_)));
            assert_eq!(compare(&problem.graph, &rewritten.graph, true).is_err(), is_whole, "seed {seed}");
        }
    }
    assert!(kinds.iter().all(|count| 20 < *count), "{kinds:?}");
}

/// Damages a graph in one of many ways; nothing where this way does not apply to it.
fn corrupted(graph: &Graph, way: usize, at: usize) -> Option<Graph> {
    let mut graph = graph.clone();
    let count = graph.nodes.len();
    // A place where something of this kind is, from some place on.
    let find = |graph: &Graph, suits: &dyn Fn(&Graph, &Node) -> bool| {
        (0..count).map(|step| (at + step) % count).find(|index| suits(graph, &graph.nodes[*index]))
    };
    let writes_what_counts = |graph: &Graph, node: &Node| {
        let persistent = |id: &TensorId| graph.tensors[id.0].kind.is_persistent();
        node.updates.iter().any(persistent) || matches!(node.op, Op::PutRows)
    };
    match way {
        // A node of a slice, or what writes weights, never runs.
        0 => {
            let gone = find(&graph, &writes_what_counts)?;
            graph.nodes.remove(gone);
        }
        // It runs twice.
        1 => {
            let twice = find(&graph, &writes_what_counts)?;
            let node = graph.nodes[twice].clone();
            graph.nodes.insert(twice, node);
        }
        // A slice stands in the place of another one.
        2 => {
            let index =
                find(&graph, &|graph, node| graph.slice_of(node).is_some() && !node.outputs.is_empty())?;
            let output = *graph.nodes[index].outputs.iter().find(|id| graph.tensors[id.0].slice.is_some())?;
            let slice = graph.tensors[output.0].slice.as_mut()?;
            slice.index = (slice.index + 1) % slice.count;
        }
        // A slice of fewer.
        3 => {
            let id = graph.tensors.iter().rposition(|tensor| tensor.slice.is_some())?;
            graph.tensors[id].slice.as_mut()?.count += 1;
        }
        // A fused node recomputes by another function, or reads another operand.
        4 => {
            let index = find(&graph, &|_, node| {
                matches!(node.op, Op::Fused(Fused::Conv2DGradKernelOf(..) | Fused::SignBitsOf(..)))
            })?;
            let node = &mut graph.nodes[index];
            let Op::Fused(Fused::Conv2DGradKernelOf(producer, _) | Fused::SignBitsOf(producer, _)) =
                &mut node.op
            else {
                return None;
            };
            match &mut producer.norm {
                Some(norm) => norm.epsilon *= 2.0,
                None => producer.function = Some(memfit_ir::Unary::Exp),
            }
        }
        // A fused update of another rule, or of the weight's new value.
        5 => {
            let index = find(&graph, &|_, node| matches!(node.op, Op::Fused(Fused::Applied(_))))?;
            if at.is_multiple_of(2) {
                let Op::Fused(Fused::Applied(update)) = &mut graph.nodes[index].op else { return None };
                update.update.steps += 1;
            } else {
                // Before the readers of the old weight.
                let node = graph.nodes.remove(index);
                let weight = node.updates[0];
                let reader = graph.nodes.iter().position(|node| node.inputs.contains(&weight))?;
                if graph.nodes[reader].phase != Phase::Piece || index <= reader {
                    return None;
                }
                graph.nodes.insert(reader, node);
            }
        }
        // A node writes a tensor of another type.
        6 => {
            let index = find(&graph, &|graph, node| {
                graph.slice_of(node).is_some()
                    && node.outputs.first().is_some_and(|id| graph.tensors[id.0].dtype == DType::F32)
            })?;
            let id = graph.nodes[index].outputs[0];
            graph.tensors[id.0].shape = Shape::rows([3, 3, 3, 3]);
        }
        // Two tensors change places among what is read.
        _ => {
            let index = find(&graph, &|graph, node| {
                let of = |place: usize| graph.tensors[node.inputs[place].0].kind == Kind::Activation;
                1 < node.inputs.len()
                    && node.inputs[0] != node.inputs[1]
                    && (of(0) || of(1))
                    && (graph.slice_of(node).is_some() || matches!(node.op, Op::Fused(Fused::Applied(_))))
            })?;
            graph.nodes[index].inputs.swap(0, 1);
        }
    }
    Some(graph)
}

#[test]
fn every_corruption_of_a_rewrite_is_found() {
    let mut found = [0; 8];
    for seed in 0..10 {
        for (problem, rewritten) in rewritten(seed) {
            for (way, found) in found.iter_mut().enumerate() {
                for at in 0..4 {
                    let at = at * rewritten.graph.nodes.len() / 4 + usize::try_from(seed).unwrap() % 2;
                    let Some(wrong) = corrupted(&rewritten.graph, way, at) else { continue };
                    let answer = compare(&problem.graph, &wrong, false);
                    assert!(answer.is_err(), "seed {seed}, way {way} at {at} passes: {wrong}");
                    *found += 1;
                }
            }
        }
    }
    assert!(found.iter().all(|count| 10 < *count), "{found:?}");
}

#[test]
fn other_declarations_are_a_difference() {
    let (problem, rewritten) = rewritten(0).remove(0);
    let other = |change: &dyn Fn(&mut Graph)| {
        let mut graph = rewritten.graph.clone();
        change(&mut graph);
        compare(&problem.graph, &graph, false)
    };
    assert_eq!(other(&|_| {}), Ok(()));
    assert_eq!(other(&|graph| graph.outputs.clear()), Err(Difference::Declared));
    assert_eq!(other(&|graph| graph.initial.clear()), Err(Difference::Declared));
    assert_eq!(other(&|graph| graph.tensors[0].shape = Shape::rows([1])), Err(Difference::Declared));
}
