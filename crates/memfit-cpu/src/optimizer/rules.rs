//! The loops of the optimizers. Which state a rule has is decided outside the loops, so that they become
//! vector code.

use super::super::lanes::{Lanes, Mask, load, store};
use super::blocks::Formula;

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
pub(super) struct Sgd {
    pub(super) learning_rate: f32,
}

impl Formula for Sgd {
    #[inline(always)]
    fn next(&self, before: &Before, g: f32, w: f32, state: [f32; 3]) -> (f32, [f32; 3]) {
        (before.weight(w) - self.learning_rate * g, state)
    }
}

/// Descent with a velocity.
pub(super) struct Momentum {
    pub(super) learning_rate: f32,
    pub(super) momentum: f32,
    pub(super) nesterov: bool,
}

impl Formula for Momentum {
    #[inline(always)]
    fn next(&self, before: &Before, g: f32, w: f32, [v, ..]: [f32; 3]) -> (f32, [f32; 3]) {
        let step = self.learning_rate * g;
        let v = self.momentum * v - step;
        let along = if self.nesterov { self.momentum * v - step } else { v };
        (before.weight(w) + along, [v, 0.0, 0.0])
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
/// Weights of at least this many bytes are written past the caches. Every thread has read them, and where two
/// cores share no cache, each line that one of them writes waits until the other gives it up.
const STREAMED: usize = 64 << 10;

impl Adam {
    /// Updates a part of a weight of `elements` elements, without AMSGrad's maximum; returns how many
    /// elements kept their values.
    #[inline(always)]
    pub(super) fn apply<L: Lanes>(
        &self,
        before: &Before,
        gradient: &[f32],
        weight: &mut [f32],
        [m, v, _]: [&mut [f32]; 3],
        elements: usize,
    ) -> usize {
        let count = weight.len();
        assert!(
            m.len() == count && v.len() == count && gradient.len() == count,
            "both means for every weight"
        );
        let (operands, mut at, mut kept) = ([weight.as_mut_ptr(), m.as_mut_ptr(), v.as_mut_ptr()], 0, 0);
        let streams =
            STREAMED <= elements * size_of::<f32>() && operands[0].addr().is_multiple_of(size_of::<L>());
        while at < count {
            let (left, gradient) = (L::COUNT.min(count - at), gradient.as_ptr());
            let is_whole = count - at >= VECTORS * L::COUNT;
            // SAFETY: all four hold `count` floats, of which `left` are left; a weight that streams is
            // aligned.
            let is_written = unsafe {
                match is_whole {
                    true => {
                        self.vectors::<L, VECTORS, true>(before, gradient, operands, at, L::COUNT, streams)
                    }
                    false => self.vectors::<L, 1, false>(before, gradient, operands, at, left, false),
                }
            };
            let done = if is_whole { VECTORS * L::COUNT } else { left };
            if !is_written {
                kept += done;
            }
            at += done;
        }
        L::fence();
        kept
    }

    /// Some vectors, all of them where they are `WHOLE`, or else the first `count` of one. All of them are
    /// read before any is written, and they are written only if all results are finite; says whether they
    /// were.
    ///
    /// # Safety
    /// From `at` on, the gradient can be read, and weight and means can be written; where it `streams`, the
    /// weight is aligned there.
    #[inline(always)]
    unsafe fn vectors<L: Lanes, const N: usize, const WHOLE: bool>(
        &self,
        before: &Before,
        gradient: *const f32,
        [weight, mean, square]: [*mut f32; 3],
        at: usize,
        count: usize,
        streams: bool,
    ) -> bool {
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
        // A product with 0 is 0 where a value is finite, and NaN elsewhere. A mean that is not finite shows
        // in the weight.
        let mut found_inf = nothing[0];
        for i in 0..N {
            found_inf = v[i].mul_add(nothing[0], w[i]).mul_add(nothing[0], found_inf);
        }
        let finite = found_inf.between(L::splat(-1.0), L::splat(1.0)).bits();
        let lanes = u32::MAX >> (u32::BITS as usize - count);
        if finite & lanes != lanes {
            return false;
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
        true
    }
}

impl Formula for Adam {
    #[inline(always)]
    fn next(&self, before: &Before, g: f32, w: f32, [m, v, most]: [f32; 3]) -> (f32, [f32; 3]) {
        let m = m + (g - m) * self.rest_1;
        let v = v + (g * g - v) * self.rest_2;
        let most = if self.amsgrad && most > v { most } else { v };
        (before.weight(w) - m * self.alpha / (most.sqrt() + self.epsilon), [m, v, most])
    }
}

/// Steps by the gradient over the root of the mean of squares, with a velocity and about a mean where wanted.
pub(super) struct Rmsprop<const MOMENTUM: bool, const CENTERED: bool> {
    pub(super) learning_rate: f32,
    pub(super) rho: f32,
    pub(super) momentum: f32,
    pub(super) epsilon: f32,
}

impl<const MOMENTUM: bool, const CENTERED: bool> Formula for Rmsprop<MOMENTUM, CENTERED> {
    #[inline(always)]
    fn next(&self, before: &Before, g: f32, w: f32, state: [f32; 3]) -> (f32, [f32; 3]) {
        let squares = self.rho * state[0] + (1.0 - self.rho) * (g * g);
        let mut next = [squares, 0.0, 0.0];
        let mut denominator = squares + self.epsilon;
        if CENTERED {
            let at = 1 + usize::from(MOMENTUM);
            next[at] = self.rho * state[at] + (1.0 - self.rho) * g;
            denominator = squares - next[at] * next[at] + self.epsilon;
        }
        let mut step = self.learning_rate * g / denominator.sqrt();
        if MOMENTUM {
            next[1] = self.momentum * state[1] + step;
            step = next[1];
        }
        (before.weight(w) - step, next)
    }
}
