//! Temporary timing.
use memfit_ir::{ALIGNMENT, Slot, NodeId, Bytes, Chain, Conv2D, DType, Graph, Kind, Maker, Norm, Op, Pads, Shape, Unary};
use crate::Context;
use crate::open;

#[test]
#[ignore]
fn time_made() {
    let capped = Unary::ReluGeneral { negative_slope: 0.0, max_value: 6.0, threshold: 0.0 };
    let norm = Norm { epsilon: 1e-3, scale: true, center: true };
    let maker = Maker { norm: Some(norm.clone()), function: Some(capped) };
    for (size, cin, cout, k, s) in [
        (112, 32, 32, 3, 1), (112, 32, 16, 1, 1), (112, 96, 96, 3, 2), (56, 96, 24, 1, 1), (56, 144, 144, 3, 1), (56, 144, 24, 1, 1),
        (28, 192, 192, 3, 1), (28, 192, 32, 1, 1), (14, 384, 384, 3, 1), (14, 384, 64, 1, 1), (14, 576, 96, 1, 1), (7, 960, 960, 3, 1), (7, 960, 160, 1, 1),
        (56, 64, 64, 3, 1), (56, 64, 256, 1, 1), (28, 128, 128, 3, 1), (28, 128, 512, 1, 1), (14, 256, 256, 3, 1), (14, 256, 1024, 1, 1), (7, 512, 512, 3, 1), (7, 512, 2048, 1, 1),
        (28, 128, 32, 3, 1),
    ].into_iter().filter(|t| std::env::var("ALL").is_ok() || (t.3 == 1 && t.0 * t.1 > 3000 && t.1 != 64)) {
        let depthwise = k == 3 && cin == cout && (cin != 64 && cin != 128 && cin != 256 && cin != 512);
        let groups = if depthwise { cin } else { 1 };
        let pad = if k == 3 { 1 } else { 0 };
        let conv = Conv2D { kernel: [k, k], strides: [s, s], dilation: [1, 1], groups, pads: Pads { top: pad, bottom: pad, left: pad, right: pad } };
        let out = size / s;
        let mut graph = Graph::default();
        let layer = graph.layer("layer");
        let mut tensor = |shape: Shape| graph.tensor("tensor", shape, DType::F32, Kind::Activation, layer);
        let z = tensor(Shape::rows([size, size, cin]));
        let dy = tensor(Shape::rows([out, out, cout]));
        let c: Vec<_> = (0..4).map(|_| tensor(Shape::fixed([cin]))).collect();
        let dk = tensor(Shape::fixed([k, k, cin / groups, cout]));
        graph.push(Op::BatchNormThen(norm.clone(), Chain::unary(capped)), &[z, c[0], c[1], c[2], c[3]], layer).unwrap();
        graph.push_updating(Op::Conv2DGradKernel(conv.clone()), &[z, dy], &[dk], Kind::Flow, layer).unwrap();
        graph.push_updating(Op::Conv2DGradKernelOf(maker.clone(), conv.clone()), &[z, c[0], c[1], c[2], c[3], dy], &[dk], Kind::Flow, layer).unwrap();
        graph.push(Op::SignBits { below: 6.0 }, &[z], layer).unwrap();
        graph.push(Op::SignBitsOf(maker.clone(), 6.0), &[z, c[0], c[1], c[2], c[3]], layer).unwrap();
        let setup = open(Some(1)).unwrap();
        let rows = 32;
        let costs = setup.costs(&graph);
        let mut end = Bytes::ZERO;
        let mut place = |bytes: Bytes| { let slot = Slot { offset: end, bytes }; end = slot.end().align_up(ALIGNMENT); slot };
        let slots: Vec<Slot> = graph.tensors.iter().map(|t| place(t.bytes(rows))).collect();
        let ws: Vec<Slot> = costs.iter().map(|c| place(c.workspace(rows))).collect();
        let mut device = setup.seal(end.align_up(1 << 21)).unwrap();
        for s in &slots { for (i, b) in device.bytes_mut(*s).chunks_exact_mut(4).enumerate() { b.copy_from_slice(&(0.5f32 + (i % 17) as f32 * 0.1).to_ne_bytes()); } }
        let context = Context { step: 0, iteration: 0, row_start: 0, rows, rows_total: rows, learning_rate: 0.1, loss_scale: 1.0, seed: 1 };
        let mut best = [f64::INFINITY; 5];
        for _ in 0..5 {
            for (index, best) in best.iter_mut().enumerate() {
                let node = &graph.nodes[index];
                let args: Vec<Slot> = node.inputs.iter().chain(&node.outputs).chain(&node.updates).map(|id| slots[id.0]).collect();
                let cpu = || { let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 }; unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) }; t.tv_sec as f64 * 1e3 + t.tv_nsec as f64 / 1e6 };
                let start = cpu();
                device.install(|device| device.launch(&graph, NodeId(index), &args, ws[index], true, &context));
                *best = best.min(cpu() - start);
            }
        }
        println!("{size:4}² {cin:4}→{cout:4} {k}x{k}/{s} {}  norm {:.2} grad {:.2} of {:.2} ms: added {:.2} = {:.0} % of norm;  bits {:.2} of {:.2}", if depthwise {"dw"} else {"  "}, best[0], best[1], best[2], best[2]-best[1], 100.0*(best[2]-best[1])/best[0], best[3], best[4]);
    }
}
