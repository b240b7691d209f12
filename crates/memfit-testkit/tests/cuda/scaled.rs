//! Gradients of filters in TF32, which a GPU computes in scaled f16.

use memfit::{DeviceChoice as Choice, Opening};
use memfit_device::{Context, Device};
use memfit_ir::{Bytes, Conv2D, DType, Graph, Kind, NodeId, Op, Pads, Shape, Slot};
use memfit_testkit::node_runs::CONTEXT;

use super::has_gpu;

const SIDE: usize = 256;
const CHANNELS: usize = 128;
/// Two of them at once, and then the last.
const ROWS: usize = 3;

/// Channels differ by many powers of ten, and still each is as exact as its own size allows.
#[test]
fn filters_of_large_and_small_channels_learn_alike() {
    if !has_gpu() {
        return;
    }
    let mut graph = Graph::default();
    let layer = graph.layer("conv");
    let pads = Pads { top: 1, bottom: 1, left: 1, right: 1 };
    let conv = Conv2D { kernel: [3, 3], strides: [1, 1], dilation: [1, 1], groups: 1, pads };
    let image = || Shape::rows([SIDE, SIDE, CHANNELS]);
    let x = graph.tensor("x", image(), DType::F32, Kind::Activation, layer);
    let dy = graph.tensor("dy", image(), DType::F32, Kind::Activation, layer);
    let shape = Shape::fixed([3, 3, CHANNELS, CHANNELS]);
    let dkernel = graph.tensor("dkernel", shape, DType::F32, Kind::Gradient, layer);
    graph.push_updating(Op::Conv2DGradKernel(conv), &[x, dy], &[dkernel], Kind::Flow, layer).unwrap();
    let wanted = gradient(&graph, Choice::Cpu, false);
    let got = gradient(&graph, Choice::Cuda(0), true);
    // The largest difference within each pair of channels, with the largest number there.
    let pairs = CHANNELS * CHANNELS;
    let mut worst = 0.0f32;
    for pair in 0..pairs {
        let of_pair =
            |numbers: &[f32]| -> Vec<f32> { numbers.iter().skip(pair).step_by(pairs).copied().collect() };
        let (got, wanted) = (of_pair(&got), of_pair(&wanted));
        let most = wanted.iter().fold(0.0f32, |most, number| most.max(number.abs()));
        let gap = got.iter().zip(&wanted).fold(0.0f32, |gap, (a, b)| gap.max((a - b).abs()));
        assert!(0.0 < most && got.iter().all(|number| number.is_finite()), "a gradient of pair {pair}");
        worst = worst.max(gap / most);
    }
    println!("worst {worst:.1e} of a pair's largest");
    assert!(worst < 4e-3, "off by {worst}");
    assert_eq!(got, gradient(&graph, Choice::Cuda(0), true), "the same numbers twice");
}

/// The gradient, written and then added to once.
fn gradient(graph: &Graph, choice: Choice, tf32: bool) -> Vec<f32> {
    let setup =
        choice.open(Opening { threads: Some(8), rows: ROWS, tf32, vectors: None, allocator: None }).unwrap();
    setup.make_ready(graph).unwrap();
    let mut end = Bytes::ZERO;
    let mut place = |bytes: Bytes| {
        let slot = Slot { offset: end, bytes };
        end = slot.end().align_up(256);
        slot
    };
    let slots: Vec<Slot> = graph.tensors.iter().map(|tensor| place(tensor.bytes(ROWS))).collect();
    let workspace = place(setup.costs(graph)[0].workspace(ROWS));
    let arena = workspace.end().align_up(setup.capabilities().granule.0);
    let mut device: Box<dyn Device> = setup.seal(arena).unwrap();
    for (tensor, slot) in slots[..2].iter().enumerate() {
        for (index, four) in device.bytes_mut(*slot).as_chunks_mut().0.iter_mut().enumerate() {
            let channel = index % CHANNELS;
            // Of one sign more than of the other, so that sums are not all chance.
            let number = (index.wrapping_mul(2_654_435_761) >> 7) % 1000;
            let number = number as f32 / 500.0 - 0.7;
            let size = if tensor == 0 {
                10f32.powi(channel as i32 % 13 - 6)
            } else {
                10f32.powi(-3 * (channel as i32 % 4))
            };
            *four = (number * size).to_ne_bytes();
        }
    }
    let context = Context { rows: ROWS, rows_total: ROWS, ..CONTEXT };
    for fresh in [true, false] {
        device.launch(graph, NodeId(0), &slots, workspace, fresh, &context);
    }
    device.synchronise();
    device.bytes(slots[2]).as_chunks().0.iter().map(|four| f32::from_ne_bytes(*four)).collect()
}
