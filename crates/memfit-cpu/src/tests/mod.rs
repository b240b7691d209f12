//! Every op against plain loops in double precision, through the door that the runner uses.

mod arena;
mod attention;
mod costs;
mod dense;
mod elementwise;
mod fused_update;
mod half;
mod launches;
mod loss;
mod measure;
mod metric;
mod norm;
mod optimizer;
mod pool;
mod producer;
mod rearrange;
mod spatial;

use memfit_ir::{
    ALIGNMENT, Bytes, DType, Graph, Kind, Node, NodeId, Op, Phase, Shape, Slot, TensorId, random,
};

use memfit_device::{Context, Device};

use crate::open;

/// One launch: an op with its operands. Results do not depend on threads, on room to spare or on standing in
/// place.
pub(crate) struct Case {
    op: Op,
    inputs: Vec<(Shape, Values)>,
    outputs: Option<Vec<(Shape, DType)>>,
    updates: Vec<(Shape, Values)>,
    context: Context,
}

/// The elements of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    F32(Vec<f32>),
    I32(Vec<i32>),
    U8(Vec<u8>),
    Half(DType, Vec<u16>),
}

/// The results of a launch.
#[derive(Debug, PartialEq)]
pub(crate) struct Results {
    outputs: Vec<Values>,
    updates: Vec<Values>,
}

impl Case {
    pub(crate) fn new(op: Op, rows: usize) -> Case {
        let context = Context {
            step: 3,
            iteration: 3,
            row_start: 5,
            rows,
            rows_total: rows,
            learning_rate: 0.1,
            loss_scale: 1.0,
            seed: 11,
        };
        Case { op, inputs: vec![], outputs: None, updates: vec![], context }
    }

    pub(crate) fn input(mut self, shape: Shape, values: impl Into<Values>) -> Case {
        self.inputs.push((shape, values.into()));
        self
    }

    /// Outputs of an op for which the shape rules have none.
    pub(crate) fn output(mut self, shape: Shape, dtype: DType) -> Case {
        self.outputs.get_or_insert_default().push((shape, dtype));
        self
    }

    pub(crate) fn update(mut self, shape: Shape, values: impl Into<Values>) -> Case {
        self.updates.push((shape, values.into()));
        self
    }

    pub(crate) fn context(mut self, change: impl Fn(&mut Context)) -> Case {
        change(&mut self.context);
        self
    }

    /// Runs the op with every setting that must not matter, and returns the results, which are the same for
    /// all.
    pub(crate) fn run(&self) -> Results {
        self.run_all(false)
    }

    /// As `run`, with updates that are overwritten.
    pub(crate) fn run_overwriting(&self) -> Results {
        self.run_all(true)
    }

    fn run_all(&self, overwrite: bool) -> Results {
        let first = self.run_once(1, 0, None, overwrite);
        let (graph, node) = self.graph();
        let bytes = |id: TensorId| graph.tensors[id.0].shape.bytes(graph.tensors[id.0].dtype, 1);
        let node = &graph.nodes[node.0];
        let same_size = |pair: &(usize, usize)| bytes(node.outputs[pair.0]) == bytes(node.inputs[pair.1]);
        let pairs = node.in_place().filter(same_size).map(Some);
        for in_place in std::iter::once(None).chain(pairs) {
            for (threads, spare) in [(1, 2), (2, 0), (3, 1)] {
                let other = self.run_once(threads, spare, in_place, overwrite);
                assert_eq!(
                    first.bits(),
                    other.bits(),
                    "{threads} threads, {spare} rows to spare, {in_place:?}"
                );
            }
        }
        first
    }

    fn run_once(
        &self,
        threads: usize,
        spare: usize,
        in_place: Option<(usize, usize)>,
        overwrite: bool,
    ) -> Results {
        let (graph, node) = self.graph();
        let setup = open(Some(threads)).unwrap();
        let planned = self.context.rows + spare;
        let operands = operands(&graph.nodes[node.0]);
        let mut end = Bytes::ZERO;
        let mut place = |bytes: Bytes| {
            let slot = Slot { offset: end, bytes };
            end = slot.end().align_up(ALIGNMENT);
            slot
        };
        let bytes = |id: &TensorId| graph.tensors[id.0].shape.bytes(graph.tensors[id.0].dtype, planned);
        let mut args: Vec<Slot> = operands.iter().map(|id| place(bytes(id))).collect();
        if let Some((output, input)) = in_place {
            args[self.inputs.len() + output] = args[input];
        }
        let workspace = place(setup.costs(&graph)[node.0].workspace(planned));
        // The workspace ends where the arena does, so that writing past it hits the guard.
        let arena = workspace.end().align_up(setup.capabilities().granule.0);
        let shift = Bytes((arena - workspace.end()).0 / ALIGNMENT * ALIGNMENT);
        let shifted = |slot: Slot| Slot { offset: slot.offset + shift, ..slot };
        let (args, workspace) = (args.into_iter().map(shifted).collect::<Vec<_>>(), shifted(workspace));

        let mut device = setup.seal(arena).unwrap();
        device.bytes_mut(Slot { offset: Bytes::ZERO, bytes: arena }).fill(0xFF);
        self.launch(&mut *device, &graph, node, &args, workspace, overwrite)
    }

    fn launch(
        &self,
        device: &mut dyn Device,
        graph: &Graph,
        node: NodeId,
        args: &[Slot],
        workspace: Slot,
        overwrite: bool,
    ) -> Results {
        let updates = args.len() - self.updates.len();
        let given = self.inputs.iter().zip(args).chain(self.updates.iter().zip(&args[updates..]));
        for ((_, values), slot) in given {
            let bytes = values.bytes();
            device.bytes_mut(*slot)[..bytes.len()].copy_from_slice(&bytes);
        }
        device.launch(graph, node, args, workspace, overwrite, &self.context);

        let written = &args[self.inputs.len()..];
        for ((_, values), slot) in self.inputs.iter().zip(args).filter(|(_, slot)| !written.contains(slot)) {
            assert_eq!(device.bytes(*slot)[..values.bytes().len()], values.bytes(), "an input was changed");
        }
        let tensors = operands(&graph.nodes[node.0]);
        let mut read = |index: usize| {
            let tensor = &graph.tensors[tensors[index].0];
            let used = tensor.shape.bytes(tensor.dtype, self.context.rows).to_usize();
            let (used, spare) = device.bytes(args[index]).split_at(used);
            if !self.inputs.iter().zip(args).any(|(_, slot)| *slot == args[index]) {
                assert!(spare.iter().all(|byte| *byte == 0xFF), "rows to spare were written");
            }
            Values::from_bytes(tensor.dtype, used)
        };
        Results {
            outputs: (self.inputs.len()..updates).map(&mut read).collect(),
            updates: (updates..args.len()).map(&mut read).collect(),
        }
    }

    fn graph(&self) -> (Graph, NodeId) {
        let mut graph = Graph::default();
        let layer = graph.layer("layer");
        let tensors = |graph: &mut Graph, all: &[(Shape, Values)]| -> Vec<TensorId> {
            let add = |(shape, values): &(Shape, Values)| {
                assert_eq!(shape.bytes(values.dtype(), self.context.rows).to_usize(), values.bytes().len());
                graph.tensor("tensor", shape.clone(), values.dtype(), Kind::Activation, layer)
            };
            all.iter().map(add).collect()
        };
        let inputs = tensors(&mut graph, &self.inputs);
        let updates = tensors(&mut graph, &self.updates);
        match &self.outputs {
            None => {
                graph.push_updating(self.op.clone(), &inputs, &updates, Kind::Activation, layer).unwrap();
            }
            Some(outputs) => {
                let add = |(shape, dtype): &(Shape, DType)| {
                    graph.tensor("output", shape.clone(), *dtype, Kind::Activation, layer)
                };
                let outputs = outputs.iter().map(add).collect();
                let (op, phase) = (self.op.clone(), Phase::Piece);
                graph.nodes.push(Node { op, inputs, outputs, updates, layer, phase });
            }
        }
        (graph, NodeId(0))
    }
}

fn operands(node: &Node) -> Vec<TensorId> {
    node.inputs.iter().chain(&node.outputs).chain(&node.updates).copied().collect()
}

impl Results {
    /// The floats of an output.
    pub(crate) fn floats(&self, output: usize) -> &[f32] {
        self.outputs[output].floats()
    }

    /// The floats of an update.
    pub(crate) fn updated(&self, update: usize) -> &[f32] {
        self.updates[update].floats()
    }

    fn bits(&self) -> Vec<Vec<u8>> {
        self.outputs.iter().chain(&self.updates).map(Values::bytes).collect()
    }
}

impl Values {
    pub(crate) fn floats(&self) -> &[f32] {
        match self {
            Values::F32(values) => values,
            Values::I32(_) | Values::U8(_) | Values::Half(..) => panic!("not floats"),
        }
    }

    fn dtype(&self) -> DType {
        match self {
            Values::F32(_) => DType::F32,
            Values::I32(_) => DType::I32,
            Values::U8(_) => DType::U8,
            Values::Half(dtype, _) => *dtype,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Values::F32(values) => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
            Values::I32(values) => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
            Values::U8(values) => values.clone(),
            Values::Half(_, values) => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
        }
    }

    fn from_bytes(dtype: DType, bytes: &[u8]) -> Values {
        let fours = bytes.as_chunks::<4>().0.iter();
        match dtype {
            DType::F32 => Values::F32(fours.map(|four| f32::from_ne_bytes(*four)).collect()),
            DType::I32 => Values::I32(fours.map(|four| i32::from_ne_bytes(*four)).collect()),
            DType::U8 => Values::U8(bytes.to_vec()),
            DType::F16 | DType::BF16 => {
                let twos = bytes.as_chunks::<2>().0.iter();
                Values::Half(dtype, twos.map(|two| u16::from_ne_bytes(*two)).collect())
            }
            DType::I64 | DType::Bool => panic!("no kernel writes {dtype}"),
        }
    }
}

impl From<Vec<f32>> for Values {
    fn from(values: Vec<f32>) -> Values {
        Values::F32(values)
    }
}

impl From<&[f32]> for Values {
    fn from(values: &[f32]) -> Values {
        Values::F32(values.to_vec())
    }
}

impl From<Vec<i32>> for Values {
    fn from(values: Vec<i32>) -> Values {
        Values::I32(values)
    }
}

impl From<Vec<u8>> for Values {
    fn from(values: Vec<u8>) -> Values {
        Values::U8(values)
    }
}

/// Values in −2..2 that repeat on every run.
pub(crate) fn noise(count: usize, seed: u64) -> Vec<f32> {
    (0..count as u64).map(|index| random::uniform(seed, index, -2.0, 2.0)).collect()
}

/// Values in 0..1 that repeat on every run.
pub(crate) fn positive_noise(count: usize, seed: u64) -> Vec<f32> {
    (0..count as u64).map(|index| random::uniform(seed, index, 0.01, 1.0)).collect()
}

/// The values in double precision.
pub(crate) fn doubles(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

/// Whether values are those of a reference, up to so much of their size and of 1.
pub(crate) fn assert_near(values: &[f32], reference: &[f64], tolerance: f64, what: &str) {
    assert_eq!(values.len(), reference.len(), "{what}");
    for (index, (value, reference)) in values.iter().zip(reference).enumerate() {
        let near = (f64::from(*value) - reference).abs() <= tolerance * (1.0 + reference.abs());
        let same = near || (value.is_nan() && reference.is_nan()) || f64::from(*value) == *reference;
        assert!(same, "{what}: [{index}] is {value}, not {reference}");
    }
}

/// The gradient of `Σ dy · function(x)` by central differences.
pub(crate) fn gradient_of(function: impl Fn(&[f64]) -> Vec<f64>, x: &[f64], dy: &[f64]) -> Vec<f64> {
    const STEP: f64 = 1e-5;
    let value = |x: &[f64]| function(x).iter().zip(dy).map(|(y, dy)| y * dy).sum::<f64>();
    let derivative = |index: usize| {
        let mut moved = x.to_vec();
        moved[index] = x[index] + STEP;
        let above = value(&moved);
        moved[index] = x[index] - STEP;
        (above - value(&moved)) / (2.0 * STEP)
    };
    (0..x.len()).map(derivative).collect()
}
