//! The loops of the optimizers. Which state a rule has is decided outside the loops, so that they become vector code.

use super::super::lanes::{Lanes, load, store};

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

    /// The same of a vector.
    #[inline(always)]
    pub(super) fn gradients<L: Lanes>(&self, g: L) -> L {
        g.at_most(L::splat(self.limit)).at_least(L::splat(-self.limit)).mul(L::splat(self.factor))
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

/// Vectors of each operand that are read before any is written.
const VECTORS: usize = 4;
/// Weights of so many bytes are written past the caches: every thread has read them, and where the cores of two share no cache,
/// each line that is written in one waits until the other has let go of it.
const STREAMED: usize = 64 << 10;

impl Adam {
    /// Changes a part of a weight of so many elements.
    #[inline(always)]
    pub(super) fn apply<L: Lanes>(
        &self,
        before: &Before,
        gradient: &[f32],
        weight: &mut [f32],
        [m, v, most]: [&mut [f32]; 3],
        elements: usize,
    ) {
        let count = weight.len();
        assert!(
            m.len() == count && v.len() == count && gradient.len() == count,
            "both means for every weight"
        );
        if self.amsgrad {
            assert_eq!(most.len(), weight.len(), "a largest mean for every weight");
            for ((((w, m), v), most), g) in weight.iter_mut().zip(m).zip(v).zip(most).zip(gradient) {
                self.means(m, v, before.gradient(*g));
                *most = if *v > *most { *v } else { *most };
                *w = before.weight(*w) - *m * self.alpha / (most.sqrt() + self.epsilon);
            }
            return;
        }
        let (operands, mut at) = ([weight.as_mut_ptr(), m.as_mut_ptr(), v.as_mut_ptr()], 0);
        let streams =
            STREAMED <= elements * size_of::<f32>() && operands[0].addr().is_multiple_of(size_of::<L>());
        while at < count {
            let (left, gradient) = (L::COUNT.min(count - at), gradient.as_ptr());
            // SAFETY: all four hold `count` floats, of which so many are left; a weight that streams is aligned.
            at += unsafe {
                match count - at >= VECTORS * L::COUNT {
                    true => self.vectors::<L, VECTORS>(before, gradient, operands, at, L::COUNT, streams),
                    false => self.vectors::<L, 1>(before, gradient, operands, at, left, false),
                }
            };
        }
        L::settle();
    }

    /// Some vectors, or the first `count` of one, and how many floats these are. All of them are read before any is written.
    ///
    /// # Safety
    /// From `at` on, the gradient can be read, and weight and means can be written; where it `streams`, the weight is aligned there.
    #[inline(always)]
    unsafe fn vectors<L: Lanes, const N: usize>(
        &self,
        before: &Before,
        gradient: *const f32,
        operands: [*mut f32; 3],
        at: usize,
        count: usize,
        streams: bool,
    ) -> usize {
        let (mut g, mut values) = ([L::splat(0.0); N], [[L::splat(0.0); N]; 3]);
        for i in 0..N {
            // SAFETY: the caller's promise.
            g[i] = unsafe { load(gradient.add(at + i * L::COUNT), count) };
            for (values, operand) in values.iter_mut().zip(operands) {
                // SAFETY: the caller's promise.
                values[i] = unsafe { load(operand.add(at + i * L::COUNT), count) };
            }
        }
        let [rest_1, rest_2] = [self.rest_1, self.rest_2].map(L::splat);
        let [alpha, epsilon, decay] = [self.alpha, self.epsilon, before.decay].map(L::splat);
        for i in 0..N {
            let g = before.gradients(g[i]);
            let [w, m, v] = [values[0][i], values[1][i], values[2][i]];
            let m = m.add(g.sub(m).mul(rest_1));
            let v = v.add(g.mul(g).sub(v).mul(rest_2));
            let w = w.sub(w.mul(decay)).sub(m.mul(alpha).div(v.root().add(epsilon)));
            [values[0][i], values[1][i], values[2][i]] = [w, m, v];
        }
        for i in 0..N {
            for (place, (values, operand)) in values.iter().zip(operands).enumerate() {
                let to = operand.wrapping_add(at + i * L::COUNT);
                // SAFETY: the caller's promise.
                unsafe {
                    if streams && place == 0 {
                        values[i].stream(to);
                    } else {
                        store(values[i], to, count);
                    }
                }
            }
        }
        if N == 1 { count } else { N * L::COUNT }
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
