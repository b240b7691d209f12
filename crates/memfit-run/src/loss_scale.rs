//! The dynamic loss scale, as Keras's LossScaleOptimizer keeps it: halved and the step skipped where a gradient
//! overflowed, doubled after many steps in a row that did not.

use memfit_ir::{DType, Graph, Kind, Node, Op, TensorId};

/// The first scale.
const FIRST: f32 = 32768.0;
/// Steps in a row that double it.
const GROWTH_STEPS: u64 = 2000;

/// A scale, and the gradients that show whether it is too large.
#[derive(Clone, Debug)]
pub struct LossScale {
    /// What gradients are multiplied by.
    pub scale: f32,
    /// Steps since the scale changed.
    steps: u64,
    /// Holds the number of the first gradient that was not finite, or 0.
    found_inf: TensorId,
    /// The gradients, by their number less 1.
    gradients: Vec<TensorId>,
}

impl LossScale {
    /// The scale of a graph with f16 values that checks its gradients; none for any other.
    pub fn of(graph: &Graph) -> Option<LossScale> {
        if !graph.tensors.iter().any(|tensor| tensor.dtype == DType::F16) {
            return None;
        }
        // Under `guard = "step"` other things are checked too.
        let of_gradient = |node: &&Node| {
            matches!(node.op, Op::CheckFinite(_)) && graph.tensors[node.inputs[0].0].kind == Kind::Gradient
        };
        let checks = graph.nodes.iter().filter(of_gradient);
        let gradients: Vec<TensorId> = checks.clone().map(|node| node.inputs[0]).collect();
        let found_inf = checks.map(|node| node.updates[0]).next()?;
        Some(LossScale { scale: FIRST, steps: 0, found_inf, gradients })
    }

    /// The scale, and the steps since it changed: what a checkpoint keeps of it.
    pub fn state(&self) -> (f32, u64) {
        (self.scale, self.steps)
    }

    /// Goes on from what [`LossScale::state`] gave.
    pub fn restore(&mut self, (scale, steps): (f32, u64)) {
        (self.scale, self.steps) = (scale, steps);
    }

    /// The tensor that holds `found_inf`.
    pub fn found_inf(&self) -> TensorId {
        self.found_inf
    }

    /// Whether `found_inf` names a gradient, for which a smaller scale may help.
    pub fn concerns(&self, found_inf: f32) -> bool {
        found_inf as usize <= self.gradients.len()
    }

    /// Takes a step's `found_inf`; returns the first gradient that was not finite, for which the step was
    /// skipped.
    pub fn settle(&mut self, found_inf: f32) -> Option<TensorId> {
        if found_inf != 0.0 {
            self.scale /= 2.0;
            self.steps = 0;
            return Some(self.gradients[found_inf as usize - 1]);
        }
        self.steps += 1;
        if self.steps == GROWTH_STEPS {
            self.scale *= 2.0;
            self.steps = 0;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale() -> LossScale {
        let gradients = vec![TensorId(7), TensorId(8)];
        LossScale { scale: FIRST, steps: 0, found_inf: TensorId(0), gradients }
    }

    #[test]
    fn the_scale_doubles_after_2000_finite_steps_in_a_row_and_halves_at_once() {
        let mut scale = scale();
        (0..1999).for_each(|_| assert_eq!(scale.settle(0.0), None));
        assert_eq!(scale.scale, 32768.0);
        assert_eq!(scale.settle(2.0), Some(TensorId(8)));
        assert_eq!(scale.scale, 16384.0);
        (0..1999).for_each(|_| assert_eq!(scale.settle(0.0), None));
        assert_eq!(scale.scale, 16384.0);
        assert_eq!(scale.settle(0.0), None);
        assert_eq!(scale.scale, 32768.0);
        assert_eq!(scale.settle(1.0), Some(TensorId(7)));
    }
}
