//! What is known of every op without its operands' shapes: their names, what may share bytes, how it treats each axis.
//!
//! [`Op::signature`] is the one list of such facts. Those of a fused op follow from its parts.

mod fused;
mod operand;
mod ops;
mod table;

use std::ops::RangeInclusive;

pub(crate) use fused::{applied, plus};
pub use operand::{Named, Operand};
pub(crate) use ops::{EACH, op};

use crate::{Node, Op, TensorId};

/// The facts about an op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Signature {
    /// The op's name in texts.
    pub name: &'static str,
    /// What it reads.
    pub inputs: OperandList,
    /// What it writes.
    pub outputs: OperandList,
    /// What it changes in place.
    pub updates: OperandList,
    /// An output and an input that may stand at the same bytes where the input is not needed afterwards.
    in_place: [Option<(Operand, Operand)>; 3],
    /// Whether the first output is called by its own name as well, and not by the op's.
    labels_all: bool,
    /// What it does.
    pub facts: Facts,
}

/// What an op does, whatever its operands are called.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// How it treats each axis of what it reads first.
    pub axes: Axes,
    /// Which ops its estimated time errs like.
    pub cost_class: CostClass,
    /// Whether the output is the input's bytes under another shape.
    pub is_view: bool,
    /// Whether it draws random numbers, by seed, step and place.
    pub is_random: bool,
    /// Whether it adds to a sum over the step that is read when the step ends: a loss or a metric.
    pub is_sum_of_step: bool,
    /// Whether it sums over the rows of a batch for a normalisation.
    pub is_of_batch_norm: bool,
    /// Whether its gradient has a rule.
    pub is_differentiable: bool,
}

/// Ops whose estimated times err alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CostClass {
    /// Moves bytes.
    Bytes,
    /// Multiplies matrices.
    Product,
    /// Convolves.
    Convolution,
}

impl CostClass {
    /// How many classes there are.
    pub const COUNT: usize = 3;
}

/// What an op does along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Along {
    /// What is written at an index follows from what is read at it, and weights.
    Independent,
    /// The same, and besides all indices are added to what the op changes.
    Summed,
    /// What is written at an index depends on other indices as well.
    Mixed,
}

/// How an op treats each axis of what it reads first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axes {
    /// The batch; none where the op works on weights and their gradients.
    pub batch: Option<Along>,
    /// The axes between the batch and the last four.
    pub inner: Along,
    /// The last four axes, or as many as there are after the batch.
    pub last: [Along; 4],
    /// One axis, counted after the batch, whose indices meet whatever the others do.
    pub mixed: Option<usize>,
}

impl Axes {
    /// What happens along an axis, counted after the batch, of that many.
    pub fn along(&self, axis: usize, axes: usize) -> Along {
        let from_end = axes.saturating_sub(axis);
        if self.mixed == Some(axis) {
            Along::Mixed
        } else if (1..=4).contains(&from_end) {
            self.last[4 - from_end]
        } else {
            self.inner
        }
    }

    /// Of two ops of which one reads what the other writes. Places from the end stand for each other.
    fn then(self, next: Axes) -> Axes {
        let mut last = self.last;
        last.iter_mut().zip(next.last).for_each(|(own, next)| *own = next.max(*own));
        Axes {
            batch: self.batch.max(next.batch),
            inner: self.inner.max(next.inner),
            last,
            mixed: self.mixed.or(next.mixed),
        }
    }
}

/// Whether an operand is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Always.
    Always,
    /// Where the node has one operand more than without it.
    Optional,
    /// As the op's fields say.
    Asked {
        /// What they say.
        given: bool,
    },
    /// Several times.
    Repeated,
}

/// Places for operands of one kind.
const PLACES: usize = 8;

/// Names of the operands that an op reads, writes or changes, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperandList {
    places: [(Operand, Presence); PLACES],
    len: u8,
    /// How often the repeated operand is there; as often as the node says where it is not given.
    times: Option<u32>,
}

impl OperandList {
    const NONE: OperandList =
        OperandList { places: [(Operand::X, Presence::Always); PLACES], len: 0, times: None };

    /// The operands, each with whether it is there.
    #[inline]
    pub fn places(&self) -> &[(Operand, Presence)] {
        &self.places[..usize::from(self.len)]
    }

    /// How many tensors there can be.
    pub fn counts(&self) -> RangeInclusive<usize> {
        let (mut least, mut most) = (0, 0usize);
        for (_, presence) in self.places() {
            let range = match presence {
                Presence::Always => 1..=1,
                Presence::Optional => 0..=1,
                Presence::Asked { given } => usize::from(*given)..=usize::from(*given),
                Presence::Repeated => {
                    self.times.map_or(1..=usize::MAX, |times| times as usize..=times as usize)
                }
            };
            least += range.start();
            most = most.saturating_add(*range.end());
        }
        least..=most
    }

    /// How many tensors there must be, in words.
    pub(crate) fn describe_count(&self) -> String {
        match self.counts().into_inner() {
            (least, most) if least == most => format!("{least} operands"),
            (least, usize::MAX) => format!("at least {least} operands"),
            (least, most) => format!("{least} to {most} operands"),
        }
    }

    /// Whether an operand of this name can be there.
    #[inline]
    pub fn has(&self, operand: Operand) -> bool {
        self.places().iter().any(|(name, _)| *name == operand)
    }

    /// Where an operand begins among `count` tensors, and how often it is there.
    #[inline]
    pub fn find(&self, operand: Operand, count: usize) -> Option<(usize, usize)> {
        let extra = || count.saturating_sub(*self.counts().start());
        let mut begin = 0;
        for (name, presence) in self.places() {
            let times = match presence {
                Presence::Always => 1,
                Presence::Optional => extra().min(1),
                Presence::Asked { given } => usize::from(*given),
                Presence::Repeated => self.times.map_or_else(|| 1 + extra(), |times| times as usize),
            };
            if *name == operand && 0 < times {
                return Some((begin, times));
            }
            begin += times;
        }
        None
    }

    /// The place of an operand among `count` tensors, where it is there.
    #[inline]
    pub fn place(&self, operand: impl Into<Named>, count: usize) -> Option<usize> {
        let Named { operand, index } = operand.into();
        let (begin, times) = self.find(operand, count)?;
        (index < times && begin + index < count).then_some(begin + index)
    }

    /// An op that a text nests deeper than any kernel has more operands than fit, and suits no node.
    #[inline(always)]
    fn push(&mut self, operand: Operand, presence: Presence) {
        if usize::from(self.len) < PLACES {
            self.places[usize::from(self.len)] = (operand, presence);
            self.len += 1;
        }
    }

    #[inline(always)]
    fn always(&mut self, operands: &[Operand]) {
        operands.iter().for_each(|operand| self.push(*operand, Presence::Always));
    }

    fn extend(&mut self, places: &[(Operand, Presence)], times: Option<u32>) {
        places.iter().for_each(|(operand, presence)| self.push(*operand, *presence));
        self.times = self.times.or(times);
    }
}

impl Signature {
    /// The pairs of operands, output and input, that may stand at the same bytes.
    pub fn in_place(&self) -> impl Iterator<Item = (Operand, Operand)> + use<> {
        self.in_place.into_iter().flatten()
    }

    /// What the names of an op's outputs end with.
    pub(crate) fn labels(&self) -> impl Iterator<Item = &'static str> + '_ {
        let label = |(index, (operand, _)): (usize, &(Operand, Presence))| match index {
            0 if !self.labels_all => self.name,
            _ => operand.label(),
        };
        self.outputs.places().iter().enumerate().map(label)
    }
}

impl Op {
    /// The op's name in texts.
    pub fn name(&self) -> &'static str {
        self.operands().name
    }

    /// The signature without what follows from the parts of a fused op: names and permissions alone, as a launch needs them.
    pub fn operands(&self) -> Signature {
        if let Op::Fused(fused) = self { fused.operands() } else { self.signature() }
    }

    /// Which ops its estimated time errs like. A fused op errs like its dearest part.
    pub fn cost_class(&self) -> CostClass {
        self.signature().facts.cost_class
    }

    /// Whether it adds to a sum over the step that is read when the step ends: a loss or a metric.
    pub fn is_sum_of_step(&self) -> bool {
        self.signature().facts.is_sum_of_step
    }

    /// Whether rows of the batch meet, so that a batch may not be split without changing the result.
    pub fn mixes_rows(&self) -> bool {
        self.signature().facts.axes.batch == Some(Along::Mixed)
    }

    /// Whether it sums over the rows of a batch for a normalisation.
    pub fn is_of_batch_norm(&self) -> bool {
        self.signature().facts.is_of_batch_norm
    }

    /// Whether the output is the input's bytes under another shape.
    pub fn is_view(&self) -> bool {
        self.signature().facts.is_view
    }
}

impl Node {
    /// The tensor that it reads by this name.
    pub fn input(&self, operand: impl Into<Named>) -> TensorId {
        let operand = operand.into();
        self.input_if_given(operand).unwrap_or_else(|| self.has_no(operand))
    }

    /// The tensor that it reads by this name, which the node may be without.
    pub fn input_if_given(&self, operand: impl Into<Named>) -> Option<TensorId> {
        self.named(&self.op.operands().inputs, &self.inputs, operand.into())
    }

    /// The tensor that it writes by this name.
    pub fn output(&self, operand: impl Into<Named>) -> TensorId {
        let operand = operand.into();
        let output = self.named(&self.op.operands().outputs, &self.outputs, operand);
        output.unwrap_or_else(|| self.has_no(operand))
    }

    /// The tensor that it reads, writes or changes by this name. No op has a name twice.
    pub fn tensor(&self, operand: Operand) -> TensorId {
        let signature = self.op.operands();
        if signature.inputs.has(operand) {
            return self.input(operand);
        }
        let (list, tensors) = match signature.outputs.has(operand) {
            true => (signature.outputs, &self.outputs),
            false => (signature.updates, &self.updates),
        };
        self.named(&list, tensors, operand.into()).unwrap_or_else(|| self.has_no(operand.into()))
    }

    fn named(&self, list: &OperandList, tensors: &[TensorId], operand: Named) -> Option<TensorId> {
        assert!(list.has(operand.operand), "{} has no operand `{operand}`", self.op.name());
        list.place(operand, tensors.len()).map(|place| tensors[place])
    }

    fn has_no(&self, operand: Named) -> ! {
        panic!("this {} has no operand `{operand}`", self.op.name())
    }

    /// Pairs (output, input) of places that may stand at the same bytes, where they have equal sizes and the input is not
    /// needed afterwards.
    pub fn in_place(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let signature = self.op.operands();
        let (inputs, outputs) = (self.inputs.len(), self.outputs.len());
        signature.in_place().flat_map(move |(written, read)| {
            let written = signature.outputs.place(written, outputs);
            let (begin, times) = signature.inputs.find(read, inputs).unwrap_or((0, 0));
            (begin..begin + times).filter_map(move |read| Some((written?, read)))
        })
    }
}
