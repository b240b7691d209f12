//! Convolutions with a max pool after them, on images large enough for many tiles, with TF32 and without.

use memfit_device::Context;
use memfit_ir::{Bytes, Conv2D, DType, NodeId, Pads, Pool2D, PooledConv2D, Slot, TensorId, random};
use memfit_testkit::node_runs::CONTEXT;
use memfit_testkit::pooled_cases::pooled_graph;

use super::has_gpu;

/// Images of one launch.
const ROWS: usize = 3;

/// Height and width of the filter, padding on every side, height, width and channels of the image, filters,
/// and whether a ReLU follows.
type Case = ([usize; 2], usize, [usize; 3], usize, bool);

/// Eighths and quarters: rounding to TF32 changes none of them, all sums are exact, and many places of windows are equal.
#[test]
fn windows_have_the_argmax_of_exact_sums() {
    if !has_gpu() {
        return;
    }
    let cases: [Case; 7] = [
        ([3, 3], 0, [66, 134, 3], 32, true),
        ([3, 3], 0, [37, 150, 3], 64, false),
        ([3, 3], 1, [21, 13, 1], 16, true),
        ([5, 5], 2, [19, 70, 1], 48, true),
        ([3, 3], 1, [40, 40, 2], 32, false),
        ([3, 3], 0, [20, 300, 3], 20, true),
        ([7, 7], 3, [18, 24, 2], 32, true),
    ];
    for case in cases {
        for tf32 in [false, true] {
            check(case, tf32);
        }
    }
}

fn check(case: Case, tf32: bool) {
    let (kernel, pad, image, filters, relu) = case;
    let pads = Pads { top: pad, bottom: pad, left: pad, right: pad };
    let conv = Conv2D { kernel, strides: [1, 1], dilation: [1, 1], groups: 1, pads };
    let pooled = PooledConv2D { conv, relu };
    let (graph, ids) = pooled_graph(&pooled, image, filters);
    let setup = memfit_cuda::open(0, ROWS, tf32).unwrap();
    let costs = setup.costs(&graph);
    let mut end = Bytes::ZERO;
    let mut place = |bytes: Bytes| {
        let slot = Slot { offset: end, bytes };
        end = slot.end().align_up(256);
        slot
    };
    let slots: Vec<Slot> = graph.tensors.iter().map(|tensor| place(tensor.bytes(ROWS))).collect();
    let room = place(costs.iter().map(|cost| cost.workspace(ROWS)).max().unwrap());
    let mut gpu = setup.seal(room.end().align_up(2 << 20)).unwrap();
    let mut values: Vec<Vec<f64>> = Vec::new();
    for (tensor, slot) in graph.tensors.iter().zip(&slots) {
        let count = tensor.shape.elements(ROWS);
        let seed = values.len() as u64;
        let steps = |index: usize| (random::uniform(seed, index as u64, -4.0, 5.0).floor()) / 8.0;
        values.push((0..count).map(|index| f64::from(steps(index))).collect());
        if tensor.dtype == DType::F32 {
            for (four, value) in gpu.bytes_mut(*slot).as_chunks_mut().0.iter_mut().zip(&values[seed as usize])
            {
                *four = (*value as f32).to_ne_bytes();
            }
        }
    }
    let context = Context { rows: ROWS, rows_total: ROWS, ..CONTEXT };
    for (index, node) in graph.nodes.iter().enumerate() {
        let operands: Vec<TensorId> = [&node.inputs[..], &node.outputs, &node.updates].concat();
        let args: Vec<Slot> = operands.iter().map(|id| slots[id.0]).collect();
        let workspace = Slot { bytes: costs[index].workspace(ROWS), ..room };
        gpu.launch(&graph, NodeId(index), &args, workspace, false, &context);
    }
    gpu.synchronise();
    let [x, filter, bias, y, argmax, dy, dfilter, dbias] = ids.map(|id| id.0);
    let expected =
        expect(&pooled, image, filters, [x, filter, bias, dy, dfilter, dbias].map(|id| &values[id][..]));
    let floats = |id: usize| -> Vec<f64> {
        let bytes = gpu.bytes(slots[id]).as_chunks().0;
        bytes.iter().map(|four| f64::from(f32::from_ne_bytes(*four))).collect()
    };
    let name = format!("{case:?} tf32 {tf32}");
    assert!(gpu.bytes(slots[argmax]) == expected.argmax, "{name}: another argmax");
    assert!(floats(y) == expected.y, "{name}: other values");
    assert!(floats(dfilter) == expected.dfilter, "{name}: another gradient of the filter");
    assert!(floats(dbias) == expected.dbias, "{name}: another gradient of the bias");
}

/// What exact sums give.
struct Expected {
    y: Vec<f64>,
    argmax: Vec<u8>,
    dfilter: Vec<f64>,
    dbias: Vec<f64>,
}

fn expect(pooled: &PooledConv2D, image: [usize; 3], filters: usize, values: [&[f64]; 6]) -> Expected {
    let [x, filter, bias, dy, dfilter, dbias] = values;
    let ([height, width, channels], [r, s]) = (image, pooled.conv.kernel);
    let [down, across] = pooled.between([height, width]).map(|side| side / 2);
    let (top, left) = (pooled.conv.pads.top, pooled.conv.pads.left);
    let mut expected =
        Expected { y: vec![], argmax: vec![], dfilter: dfilter.to_vec(), dbias: dbias.to_vec() };
    for window in 0..ROWS * down * across {
        let (row, h, w) = (window / (down * across), window / across % down, window % across);
        // The inputs of the taps at a place, with their indices in the filter.
        let seen = |place: usize| {
            (0..r * s * channels).filter_map(move |tap| {
                let y = (2 * h + place / 2 + tap / (s * channels)).checked_sub(top)?;
                let x = (2 * w + place % 2 + tap / channels % s).checked_sub(left)?;
                let inside = y < height && x < width;
                inside.then_some((tap, ((row * height + y) * width + x) * channels + tap % channels))
            })
        };
        for f in 0..filters {
            let sum = |place: usize| {
                bias[f] + seen(place).map(|(tap, at)| x[at] * filter[tap * filters + f]).sum::<f64>()
            };
            let (mut most, mut argmax) = (sum(0), 0);
            for place in 1..4 {
                if most < sum(place) {
                    (most, argmax) = (sum(place), place);
                }
            }
            let none = pooled.relu && most <= 0.0;
            expected.y.push(if none { 0.0 } else { most });
            expected.argmax.push(if none { Pool2D::NO_ARGMAX } else { argmax as u8 });
            if !none {
                let gradient = dy[window * filters + f];
                expected.dbias[f] += gradient;
                for (tap, at) in seen(argmax) {
                    expected.dfilter[tap * filters + f] += x[at] * gradient;
                }
            }
        }
    }
    expected
}
