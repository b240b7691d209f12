//! The loops of the optimizers that keep sums, largest values or signs, element by element.

use super::rules::Before;

/// Steps over the root of the sum of all squares.
#[inline(always)]
pub(super) fn adagrad(
    learning_rate: f32,
    epsilon: f32,
    before: &Before,
    gradient: &[f32],
    weight: &mut [f32],
    [sums, ..]: [&mut [f32]; 3],
) {
    assert_eq!(sums.len(), weight.len(), "a sum for every weight");
    for ((w, sum), g) in weight.iter_mut().zip(sums).zip(gradient) {
        let g = before.gradient(*g);
        *sum += g * g;
        *w = before.weight(*w) - learning_rate * g / (*sum + epsilon).sqrt();
    }
}

/// Steps as large as the last ones were, over gradients as large as the last ones were.
pub(super) struct Adadelta {
    pub(super) learning_rate: f32,
    pub(super) rho: f32,
    pub(super) epsilon: f32,
}

impl Adadelta {
    #[inline(always)]
    pub(super) fn apply(
        &self,
        before: &Before,
        gradient: &[f32],
        weight: &mut [f32],
        [squares, steps, _]: [&mut [f32]; 3],
    ) {
        assert!(squares.len() == weight.len() && steps.len() == weight.len(), "both means for every weight");
        for (((w, square), step), g) in weight.iter_mut().zip(squares).zip(steps).zip(gradient) {
            let g = before.gradient(*g);
            *square = self.rho * *square + (1.0 - self.rho) * (g * g);
            let change = (*step + self.epsilon).sqrt() * g / (*square + self.epsilon).sqrt();
            *step = self.rho * *step + (1.0 - self.rho) * (change * change);
            *w = before.weight(*w) - self.learning_rate * change;
        }
    }
}

/// Adam over the largest gradient instead of the root of squares.
pub(super) struct Adamax {
    /// The learning rate, corrected for a mean that began at 0.
    pub(super) alpha: f32,
    pub(super) rest_1: f32,
    pub(super) beta_2: f32,
    pub(super) epsilon: f32,
}

impl Adamax {
    #[inline(always)]
    pub(super) fn apply(
        &self,
        before: &Before,
        gradient: &[f32],
        weight: &mut [f32],
        [m, largest, _]: [&mut [f32]; 3],
    ) {
        assert!(m.len() == weight.len() && largest.len() == weight.len(), "both for every weight");
        for (((w, m), most), g) in weight.iter_mut().zip(m).zip(largest).zip(gradient) {
            let g = before.gradient(*g);
            *m += (g - *m) * self.rest_1;
            let kept = self.beta_2 * *most;
            *most = if g.abs() > kept { g.abs() } else { kept };
            *w = before.weight(*w) - self.alpha * *m / (*most + self.epsilon);
        }
    }
}

/// Adam that looks ahead along its mean.
pub(super) struct Nadam {
    /// Share of the mean in a step, learning rate and correction included.
    pub(super) of_mean: f32,
    /// The same of the gradient.
    pub(super) of_gradient: f32,
    /// Correction of the squares.
    pub(super) of_squares: f32,
    pub(super) rest_1: f32,
    pub(super) rest_2: f32,
    pub(super) epsilon: f32,
}

impl Nadam {
    #[inline(always)]
    pub(super) fn apply(
        &self,
        before: &Before,
        gradient: &[f32],
        weight: &mut [f32],
        [m, v, _]: [&mut [f32]; 3],
    ) {
        assert!(m.len() == weight.len() && v.len() == weight.len(), "both means for every weight");
        for (((w, m), v), g) in weight.iter_mut().zip(m).zip(v).zip(gradient) {
            let g = before.gradient(*g);
            *m += (g - *m) * self.rest_1;
            *v += (g * g - *v) * self.rest_2;
            let step = self.of_mean * *m + self.of_gradient * g;
            *w = before.weight(*w) - step / ((*v * self.of_squares).sqrt() + self.epsilon);
        }
    }
}

/// Follows the regularized leader.
pub(super) struct Ftrl {
    pub(super) learning_rate: f32,
    /// The power of the sums that divides the learning rate.
    pub(super) power: f32,
    pub(super) l1: f32,
    pub(super) l2: f32,
    pub(super) l2_shrinkage: f32,
}

impl Ftrl {
    #[inline(always)]
    pub(super) fn apply(
        &self,
        before: &Before,
        gradient: &[f32],
        weight: &mut [f32],
        [sums, linear, _]: [&mut [f32]; 3],
    ) {
        assert!(sums.len() == weight.len() && linear.len() == weight.len(), "both for every weight");
        let raised = |sum: f32| if self.power == 0.5 { sum.sqrt() } else { sum.powf(self.power) };
        for (((w, sum), linear), g) in weight.iter_mut().zip(sums).zip(linear).zip(gradient) {
            let (g, old) = (before.gradient(*g), before.weight(*w));
            let more = *sum + g * g;
            let (now, then) = (raised(more), raised(*sum));
            *linear += g + 2.0 * self.l2_shrinkage * old - (now - then) / self.learning_rate * old;
            let quadratic = now / self.learning_rate + 2.0 * self.l2;
            *w = (linear.clamp(-self.l1, self.l1) - *linear) / quadratic;
            *sum = more;
        }
    }
}

/// Steps of one size, along the sign of a mean.
pub(super) struct Lion {
    pub(super) learning_rate: f32,
    pub(super) beta_1: f32,
    pub(super) beta_2: f32,
}

impl Lion {
    #[inline(always)]
    pub(super) fn apply(
        &self,
        before: &Before,
        gradient: &[f32],
        weight: &mut [f32],
        [m, ..]: [&mut [f32]; 3],
    ) {
        assert_eq!(m.len(), weight.len(), "a mean for every weight");
        for ((w, m), g) in weight.iter_mut().zip(m).zip(gradient) {
            let g = before.gradient(*g);
            let along = *m * self.beta_1 + g * (1.0 - self.beta_1);
            let sign = f32::from(i8::from(along > 0.0) - i8::from(along < 0.0));
            *w = before.weight(*w) - self.learning_rate * sign;
            *m = *m * self.beta_2 + g * (1.0 - self.beta_2);
        }
    }
}
