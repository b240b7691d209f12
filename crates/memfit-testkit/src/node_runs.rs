//! Every node of a graph alone, as the CPU runs it. Another device is compared with this, from the same
//! bytes.

use memfit::{DeviceChoice as Choice, Opening};
use memfit_device::{Backend, Context, Device};
use memfit_ir::{Bytes, DType, Graph, Kind, Node, NodeId, Slot, TensorId, random};

use crate::op_cases::{ROWS, draw_values};

/// The step and micro-batch of every run.
pub const CONTEXT: Context = Context {
    step: 3,
    iteration: 3,
    row_start: 0,
    rows: ROWS,
    rows_total: ROWS,
    learning_rate: 0.1,
    loss_scale: 1.0,
    seed: 5,
};

/// One launch of a node, with the bytes of its inputs, outputs and updates.
pub struct NodeRun<'a> {
    /// Which node.
    pub index: usize,
    /// The node.
    pub node: &'a Node,
    /// Its operands.
    pub ids: Vec<TensorId>,
    /// Whether updates are overwritten (beta = 0).
    pub fresh: bool,
    /// Bytes of the operands before the launch.
    pub before: Vec<Vec<u8>>,
    /// Bytes of the operands after the launch.
    pub after: Vec<Vec<u8>>,
}

impl NodeRun<'_> {
    /// Whether an operand is written without being read.
    pub fn is_output(&self, place: usize) -> bool {
        let inputs = self.node.inputs.len();
        (inputs..inputs + self.node.outputs.len()).contains(&place)
    }

    /// How far another device's bytes of an operand are from the CPU's, relative to the largest value, and in words.
    pub fn gap(&self, graph: &Graph, place: usize, got: &[u8]) -> (f64, String) {
        let tensor = &graph.tensors[self.ids[place].0];
        let (dtype, wanted) = (tensor.dtype, &self.after[place]);
        (gap(dtype, got, wanted), format!("`{}` {dtype} {}", tensor.name, sample(dtype, got, wanted)))
    }

    /// Whether an operand is compared. An argmax of nearly equal values may change when factors are rounded.
    pub fn is_compared(&self, graph: &Graph, place: usize, tf32: bool) -> bool {
        !tf32 || graph.tensors[self.ids[place].0].dtype != DType::U8
    }

    /// How far they may be; farther where factors were rounded to TF32.
    pub fn limit(&self, graph: &Graph, tf32: bool) -> f64 {
        let has = |dtype: DType| self.ids.iter().any(|id| graph.tensors[id.0].dtype == dtype);
        match (has(DType::BF16), has(DType::F16)) {
            (true, _) => 3e-2,
            (false, true) => 4e-3,
            (false, false) if tf32 => 2e-3,
            (false, false) => 2e-5,
        }
    }
}

/// A slot for every tensor, one after the other, and room for a workspace.
pub fn layout(graph: &Graph, workspace: Bytes) -> (Vec<Slot>, Slot) {
    let mut end = Bytes::ZERO;
    let mut place = |bytes: Bytes| {
        let slot = Slot { offset: end, bytes };
        end = slot.end().align_up(256);
        slot
    };
    let slots = graph.tensors.iter().map(|tensor| place(tensor.bytes(ROWS))).collect();
    (slots, place(workspace))
}

/// A device with room for all tensors of a graph, where they are, and each node's workspace.
pub fn device(choice: Choice, graph: &Graph, tf32: bool) -> (Box<dyn Device>, Vec<Slot>, Vec<Slot>) {
    let opening = Opening { threads: Some(2), rows: ROWS, tf32, vectors: None, allocator: None };
    device_of(choice.open(opening).expect("the device opens"), graph)
}

/// The same of a device that is open.
pub fn device_of(setup: Box<dyn Backend>, graph: &Graph) -> (Box<dyn Device>, Vec<Slot>, Vec<Slot>) {
    let workspaces: Vec<Bytes> = setup.costs(graph).iter().map(|cost| cost.workspace(ROWS)).collect();
    let most = workspaces.iter().copied().max().unwrap_or_default();
    let (slots, room) = layout(graph, most);
    let granule = setup.capabilities().granule;
    let arena = room.end().align_up(granule.0).max(granule);
    let workspaces = workspaces.into_iter().map(|bytes| Slot { offset: room.offset, bytes }).collect();
    (setup.seal(arena).expect("the arena is small"), slots, workspaces)
}

/// Runs every node on the CPU, first so that it overwrites sums, then so that it adds to them, as in a second
/// micro-batch.
pub fn on_cpu(graph: &Graph, each: &mut dyn FnMut(&NodeRun<'_>)) {
    on_cpu_in(graph, &CONTEXT, each);
}

/// The same in another step and micro-batch, of [`ROWS`] rows.
pub fn on_cpu_in(graph: &Graph, context: &Context, each: &mut dyn FnMut(&NodeRun<'_>)) {
    let (mut cpu, slots, workspaces) = device(Choice::Cpu, graph, false);
    for (tensor, values) in draw_values(graph, ROWS, 11) {
        let to = cpu.bytes_mut(slots[tensor.0]);
        for (four, value) in to.as_chunks_mut().0.iter_mut().zip(values) {
            let is_integer = graph.tensors[tensor.0].dtype == DType::I32;
            *four = if is_integer { (value as i32).to_ne_bytes() } else { (value as f32).to_ne_bytes() };
        }
    }
    // States of optimizers as they are after some steps.
    let states = graph.tensors.iter().enumerate().filter(|(_, tensor)| tensor.kind == Kind::Optimizer);
    for (index, _) in states {
        for (at, four) in cpu.bytes_mut(slots[index]).as_chunks_mut().0.iter_mut().enumerate() {
            *four = random::uniform(index as u64, at as u64, 0.05, 0.5).to_ne_bytes();
        }
    }
    for (index, node) in graph.nodes.iter().enumerate() {
        let ids: Vec<TensorId> = [&node.inputs[..], &node.outputs, &node.updates].concat();
        let args: Vec<Slot> = ids.iter().map(|id| slots[id.0]).collect();
        let read = |cpu: &dyn Device| -> Vec<Vec<u8>> {
            args.iter().map(|slot| cpu.bytes(*slot).to_vec()).collect()
        };
        for fresh in [true, false] {
            let before = read(&*cpu);
            cpu.launch(graph, NodeId(index), &args, workspaces[index], fresh, context);
            let after = read(&*cpu);
            each(&NodeRun { index, node, ids: ids.clone(), fresh, before, after });
        }
    }
}

/// The largest difference relative to the largest value; infinite where numbers that must be equal are not.
fn gap(dtype: DType, got: &[u8], wanted: &[u8]) -> f64 {
    let (Some(got), Some(wanted)) = (numbers(dtype, got), numbers(dtype, wanted)) else {
        return if got == wanted { 0.0 } else { f64::INFINITY };
    };
    let scale =
        wanted.iter().filter(|value| value.is_finite()).fold(1e-3f64, |most, value| most.max(value.abs()));
    got.iter().zip(&wanted).fold(0.0f64, |worst, (got, wanted)| {
        if got == wanted || (got.is_nan() && wanted.is_nan()) {
            return worst;
        }
        let gap = (got - wanted).abs() / scale;
        if gap.is_nan() { f64::INFINITY } else { worst.max(gap) }
    })
}

fn sample(dtype: DType, got: &[u8], wanted: &[u8]) -> String {
    match (numbers(dtype, got), numbers(dtype, wanted)) {
        (Some(got), Some(wanted)) => {
            let gap = |i: usize| if got[i].is_nan() { f64::INFINITY } else { (got[i] - wanted[i]).abs() };
            let at = (0..got.len()).max_by(|a, b| gap(*a).total_cmp(&gap(*b))).unwrap_or(0);
            format!("at {at} of {}: {:.6} for {:.6}", got.len(), got[at], wanted[at])
        }
        _ => format!("{:?} for {:?}", &got[..got.len().min(8)], &wanted[..wanted.len().min(8)]),
    }
}

fn numbers(dtype: DType, bytes: &[u8]) -> Option<Vec<f64>> {
    let halves = || bytes.as_chunks().0.iter().map(|two| u16::from_ne_bytes(*two));
    match dtype {
        DType::F32 => {
            Some(bytes.as_chunks().0.iter().map(|four| f64::from(f32::from_ne_bytes(*four))).collect())
        }
        DType::BF16 => Some(halves().map(|half| f64::from(f32::from_bits(u32::from(half) << 16))).collect()),
        DType::F16 => Some(halves().map(from_f16).collect()),
        DType::I32 | DType::I64 | DType::U8 | DType::Bool => None,
    }
}

fn from_f16(half: u16) -> f64 {
    let sign = if half & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, rest) = (i32::from(half >> 10 & 31), f64::from(half & 1023));
    sign * match exponent {
        31 if rest == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        0 => rest * 2f64.powi(-24),
        _ => (1024.0 + rest) * 2f64.powi(exponent - 25),
    }
}
