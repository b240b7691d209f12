//! The signatures of fused ops: what they do follows from their parts, and some of their operands from ops inside them.

use super::Operand::*;
use super::ops::{EACH, op};
use super::{Facts, Signature};
use crate::{Fused, FusedUpdate, Norm, Op, Producer};

impl Fused {
    pub(super) fn signature(&self) -> Signature {
        let operands = self.operands();
        // One without parts, such as a producer that computes nothing, suits no operands.
        let facts = self.part_facts().unwrap_or(operands.facts);
        let is_differentiable = operands.facts.is_differentiable;
        Signature { facts: Facts { is_differentiable, ..facts }, ..operands }
    }
}

impl Facts {
    /// Those of two ops as one.
    pub(crate) fn then(self, next: Facts) -> Facts {
        Facts {
            axes: self.axes.then(next.axes),
            cost_class: self.cost_class.max(next.cost_class),
            is_view: false,
            is_random: self.is_random || next.is_random,
            is_sum_of_step: self.is_sum_of_step || next.is_sum_of_step,
            is_of_batch_norm: self.is_of_batch_norm || next.is_of_batch_norm,
            is_differentiable: false,
        }
    }
}

impl Signature {
    /// What a producer reads.
    pub(crate) fn produced(self, producer: &Producer) -> Signature {
        let statistics = |norm: &Norm| self.reads(&[X]).weights(norm).reads(&[Mean, Variance]);
        producer.norm.as_ref().map_or(self.reads(&[X]), statistics)
    }
}

/// An op and a further value, to which the kernel adds.
pub(crate) fn plus(name: &'static str, op: &Op) -> Signature {
    let mut signature = Signature { name, ..op.operands() }.reads(&[Other]);
    signature.facts.is_differentiable = false;
    signature
}

/// What a gradient op with the update of its first sum has as operands.
pub(crate) fn applied(of: &FusedUpdate) -> Signature {
    let gradient = of.gradient.operands();
    let mut signature = op("applied", EACH);
    for (index, place) in gradient.inputs.places().iter().enumerate() {
        if of.weight_at != Some(index) {
            signature.inputs.extend(&[*place], gradient.inputs.times);
        }
    }
    let sums = gradient.updates.places();
    signature.updates.extend(sums.get(1..).unwrap_or_default(), gradient.updates.times);
    let written = op("", EACH).written(&of.update).updates;
    signature.updates.extend(written.places(), written.times);
    signature
}
