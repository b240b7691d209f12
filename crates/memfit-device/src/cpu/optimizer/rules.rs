//! The loops of the optimizers. Which state a rule has is decided outside the loops, so that they become vector code.

/// What happens to gradient and weight before a rule sees them.
pub(super) struct Before {
    /// Gradients are cut to this.
    pub(super) limit: f32,
    /// Then shrunk by this.
    pub(super) factor: f32,
    /// The share of a weight that decays.
    pub(super) decay: f32,
}

impl Before {
    #[inline(always)]
    pub(super) fn gradient(&self, g: f32) -> f32 {
        let g = if g > self.limit { self.limit } else { g };
        self.factor * if g < -self.limit { -self.limit } else { g }
    }

    #[inline(always)]
    pub(super) fn weight(&self, w: f32) -> f32 {
        w - w * self.decay
    }
}

/// Descent along the gradient.
#[inline(always)]
pub(super) fn sgd(learning_rate: f32, before: &Before, gradient: &[f32], weight: &mut [f32]) {
    for (w, g) in weight.iter_mut().zip(gradient) {
        *w = before.weight(*w) - learning_rate * before.gradient(*g);
    }
}

/// Descent with a velocity.
pub(super) struct Momentum {
    pub(super) learning_rate: f32,
    pub(super) momentum: f32,
    pub(super) nesterov: bool,
}

impl Momentum {
    #[inline(always)]
    pub(super) fn apply(
        &self,
        before: &Before,
        gradient: &[f32],
        weight: &mut [f32],
        [velocity, ..]: [&mut [f32]; 3],
    ) {
        assert_eq!(velocity.len(), weight.len(), "a velocity for every weight");
        for ((w, v), g) in weight.iter_mut().zip(velocity).zip(gradient) {
            let step = self.learning_rate * before.gradient(*g);
            *v = self.momentum * *v - step;
            *w = before.weight(*w) + if self.nesterov { self.momentum * *v - step } else { *v };
        }
    }
}

/// Steps by the mean of gradients over the root of the mean of their squares.
pub(super) struct Adam {
    /// The learning rate, corrected for means that began at 0.
    pub(super) alpha: f32,
    pub(super) rest_1: f32,
    pub(super) rest_2: f32,
    pub(super) epsilon: f32,
    pub(super) amsgrad: bool,
}

impl Adam {
    #[inline(always)]
    pub(super) fn apply(
        &self,
        before: &Before,
        gradient: &[f32],
        weight: &mut [f32],
        [m, v, most]: [&mut [f32]; 3],
    ) {
        assert!(m.len() == weight.len() && v.len() == weight.len(), "both means for every weight");
        if self.amsgrad {
            assert_eq!(most.len(), weight.len(), "a largest mean for every weight");
            for ((((w, m), v), most), g) in weight.iter_mut().zip(m).zip(v).zip(most).zip(gradient) {
                self.means(m, v, before.gradient(*g));
                *most = if *v > *most { *v } else { *most };
                *w = before.weight(*w) - *m * self.alpha / (most.sqrt() + self.epsilon);
            }
        } else {
            for (((w, m), v), g) in weight.iter_mut().zip(m).zip(v).zip(gradient) {
                self.means(m, v, before.gradient(*g));
                *w = before.weight(*w) - *m * self.alpha / (v.sqrt() + self.epsilon);
            }
        }
    }

    #[inline(always)]
    fn means(&self, m: &mut f32, v: &mut f32, g: f32) {
        *m += (g - *m) * self.rest_1;
        *v += (g * g - *v) * self.rest_2;
    }
}

/// Steps by the gradient over the root of the mean of squares, with a velocity and about a mean where wanted.
pub(super) struct Rmsprop {
    pub(super) learning_rate: f32,
    pub(super) rho: f32,
    pub(super) momentum: f32,
    pub(super) epsilon: f32,
    pub(super) centered: bool,
}

impl Rmsprop {
    #[inline(always)]
    pub(super) fn apply(
        &self,
        before: &Before,
        gradient: &[f32],
        weight: &mut [f32],
        [squares, second, third]: [&mut [f32]; 3],
    ) {
        match (self.momentum != 0.0, self.centered) {
            (false, false) => self.run::<false, false>(before, gradient, weight, squares, second, third),
            (false, true) => self.run::<false, true>(before, gradient, weight, squares, third, second),
            (true, false) => self.run::<true, false>(before, gradient, weight, squares, second, third),
            (true, true) => self.run::<true, true>(before, gradient, weight, squares, second, third),
        }
    }

    #[inline(always)]
    fn run<const MOMENTUM: bool, const CENTERED: bool>(
        &self,
        before: &Before,
        gradient: &[f32],
        weight: &mut [f32],
        squares: &mut [f32],
        velocity: &mut [f32],
        average: &mut [f32],
    ) {
        let count = weight.len();
        let (gradient, squares) = (&gradient[..count], &mut squares[..count]);
        let velocity = if MOMENTUM { &mut velocity[..count] } else { velocity };
        let average = if CENTERED { &mut average[..count] } else { average };
        for i in 0..count {
            let g = before.gradient(gradient[i]);
            squares[i] = self.rho * squares[i] + (1.0 - self.rho) * (g * g);
            let mut denominator = squares[i] + self.epsilon;
            if CENTERED {
                average[i] = self.rho * average[i] + (1.0 - self.rho) * g;
                denominator = squares[i] - average[i] * average[i] + self.epsilon;
            }
            let mut step = self.learning_rate * g / denominator.sqrt();
            if MOMENTUM {
                velocity[i] = self.momentum * velocity[i] + step;
                step = velocity[i];
            }
            weight[i] = before.weight(weight[i]) - step;
        }
    }
}
