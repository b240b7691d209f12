//! The loops of the optimizers that keep sums, maxima or signs, element by element.

use super::blocks::Formula;
use super::rules::Before;

/// Steps over the root of the sum of all squares.
pub(super) struct Adagrad {
    pub(super) learning_rate: f32,
    pub(super) epsilon: f32,
}

impl Formula for Adagrad {
    #[inline(always)]
    fn next(&self, before: &Before, g: f32, w: f32, [sum, ..]: [f32; 3]) -> (f32, [f32; 3]) {
        let sum = sum + g * g;
        (before.weight(w) - self.learning_rate * g / (sum + self.epsilon).sqrt(), [sum, 0.0, 0.0])
    }
}

/// Steps as large as the last ones were, over gradients as large as the last ones were.
pub(super) struct Adadelta {
    pub(super) learning_rate: f32,
    pub(super) rho: f32,
    pub(super) epsilon: f32,
}

impl Formula for Adadelta {
    #[inline(always)]
    fn next(&self, before: &Before, g: f32, w: f32, [square, step, _]: [f32; 3]) -> (f32, [f32; 3]) {
        let square = self.rho * square + (1.0 - self.rho) * (g * g);
        let change = (step + self.epsilon).sqrt() * g / (square + self.epsilon).sqrt();
        let step = self.rho * step + (1.0 - self.rho) * (change * change);
        (before.weight(w) - self.learning_rate * change, [square, step, 0.0])
    }
}

/// Adam with the maximum of the gradients instead of the root of squares.
pub(super) struct Adamax {
    /// The learning rate, corrected for a mean that began at 0.
    pub(super) alpha: f32,
    pub(super) rest_1: f32,
    pub(super) beta_2: f32,
    pub(super) epsilon: f32,
}

impl Formula for Adamax {
    #[inline(always)]
    fn next(&self, before: &Before, g: f32, w: f32, [m, most, _]: [f32; 3]) -> (f32, [f32; 3]) {
        let m = m + (g - m) * self.rest_1;
        let kept = self.beta_2 * most;
        let most = if g.abs() > kept { g.abs() } else { kept };
        (before.weight(w) - self.alpha * m / (most + self.epsilon), [m, most, 0.0])
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

impl Formula for Nadam {
    #[inline(always)]
    fn next(&self, before: &Before, g: f32, w: f32, [m, v, _]: [f32; 3]) -> (f32, [f32; 3]) {
        let m = m + (g - m) * self.rest_1;
        let v = v + (g * g - v) * self.rest_2;
        let step = self.of_mean * m + self.of_gradient * g;
        (before.weight(w) - step / ((v * self.of_squares).sqrt() + self.epsilon), [m, v, 0.0])
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

impl Formula for Ftrl {
    #[inline(always)]
    fn next(&self, before: &Before, g: f32, w: f32, [sum, linear, _]: [f32; 3]) -> (f32, [f32; 3]) {
        let raised = |sum: f32| if self.power == 0.5 { sum.sqrt() } else { sum.powf(self.power) };
        let old = before.weight(w);
        let more = sum + g * g;
        let (now, then) = (raised(more), raised(sum));
        let linear = linear + (g + 2.0 * self.l2_shrinkage * old - (now - then) / self.learning_rate * old);
        let quadratic = now / self.learning_rate + 2.0 * self.l2;
        ((linear.clamp(-self.l1, self.l1) - linear) / quadratic, [more, linear, 0.0])
    }
}

/// Steps of one size, along the sign of a mean.
pub(super) struct Lion {
    pub(super) learning_rate: f32,
    pub(super) beta_1: f32,
    pub(super) beta_2: f32,
}

impl Formula for Lion {
    #[inline(always)]
    fn next(&self, before: &Before, g: f32, w: f32, [m, ..]: [f32; 3]) -> (f32, [f32; 3]) {
        let along = m * self.beta_1 + g * (1.0 - self.beta_1);
        let sign = f32::from(i8::from(along > 0.0) - i8::from(along < 0.0));
        let m = m * self.beta_2 + g * (1.0 - self.beta_2);
        (before.weight(w) - self.learning_rate * sign, [m, 0.0, 0.0])
    }
}
