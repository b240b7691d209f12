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
                    true => {
                        self.vectors::<L, VECTORS, true>(before, gradient, operands, at, L::COUNT, streams)
                    }
                    false => self.vectors::<L, 1, false>(before, gradient, operands, at, left, false),
                }
            };
        }
        L::settle();
    }

    /// Some vectors, all of them where they are `WHOLE`, or else the first `count` of one; returns how many floats these are. All of
    /// them are read before any is written.
    ///
    /// # Safety
    /// From `at` on, the gradient can be read, and weight and means can be written; where it `streams`, the weight is aligned there.
    #[inline(always)]
    unsafe fn vectors<L: Lanes, const N: usize, const WHOLE: bool>(
        &self,
        before: &Before,
        gradient: *const f32,
        [weight, mean, square]: [*mut f32; 3],
        at: usize,
        count: usize,
        streams: bool,
    ) -> usize {
        let count = if WHOLE { L::COUNT } else { count };
        let nothing = [L::splat(0.0); N];
        let (mut g, mut w, mut m, mut v) = (nothing, nothing, nothing, nothing);
        for i in 0..N {
            let at = at + i * L::COUNT;
            // SAFETY: the caller's promise.
            unsafe {
                g[i] = load(gradient.add(at), count);
                w[i] = load(weight.add(at), count);
                m[i] = load(mean.add(at), count);
                v[i] = load(square.add(at), count);
            }
        }
        let (rest_1, rest_2) = (L::splat(self.rest_1), L::splat(self.rest_2));
        let (alpha, epsilon) = (L::splat(self.alpha), L::splat(self.epsilon));
        let decay = L::splat(before.decay);
        for i in 0..N {
            let g = before.gradients(g[i]);
            m[i] = m[i].add(g.sub(m[i]).mul(rest_1));
            v[i] = v[i].add(g.mul(g).sub(v[i]).mul(rest_2));
            w[i] = w[i].sub(w[i].mul(decay)).sub(m[i].mul(alpha).div(v[i].root().add(epsilon)));
        }
        for i in 0..N {
            let at = at + i * L::COUNT;
            // SAFETY: the caller's promise.
            unsafe {
                if streams {
                    w[i].stream(weight.add(at));
                } else {
                    store(w[i], weight.add(at), count);
                }
                store(m[i], mean.add(at), count);
                store(v[i], square.add(at), count);
            }
        }
        if WHOLE { N * L::COUNT } else { count }
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
