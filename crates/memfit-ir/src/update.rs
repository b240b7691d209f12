//! Optimizers as data: the update of one weight, and the state it keeps.

/// Gradients of several steps, added up before they are applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accumulate {
    /// This many steps.
    pub steps: u64,
    /// Nothing happens where `found_inf`, the last input, is not 0.
    pub guarded: bool,
}

/// One optimizer step for one weight.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// The rule.
    pub rule: UpdateRule,
    /// What happens to the gradient first.
    pub clip: Clip,
    /// Decoupled weight decay: the weight shrinks by `learning rate · weight_decay`.
    pub weight_decay: f32,
    /// Nothing happens where `found_inf`, the last input, is not 0.
    pub guarded: bool,
    /// The gradient is a sum over this many steps; the last of them applies its mean. 1 where every step is
    /// applied.
    pub steps: u64,
    /// A moving average of the weight, the last of the updates.
    pub average: Option<Average>,
}

impl Update {
    /// A rule by itself: nothing clipped, nothing decays.
    pub fn new(rule: UpdateRule) -> Update {
        Update { rule, clip: Clip::None, weight_decay: 0.0, guarded: false, steps: 1, average: None }
    }

    /// Whether it reads the square of a norm.
    pub fn clips_by_norm(&self) -> bool {
        match self.clip {
            Clip::Norm(_) => true,
            Clip::None | Clip::Value(_) => false,
        }
    }
}

/// A look at what an update would write.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckUpdate {
    /// What found_inf becomes where it is not finite; from 1.
    pub number: usize,
    /// The update.
    pub update: Update,
}

impl CheckUpdate {
    /// The place of the weight among what the check reads; its state and its average follow.
    pub fn weight_at(&self) -> usize {
        1 + usize::from(self.update.clips_by_norm())
    }
}

/// A moving average of weights: Keras's `use_ema`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Average {
    /// What is kept of the old average.
    pub momentum: f32,
    /// After this many steps, each time, the average becomes the weight.
    pub overwrite_every: Option<u64>,
}

/// Optimizers, by Keras's formulas. The state tensors follow the weight among the updates, in the order given.
#[derive(Clone, Debug, PartialEq)]
pub enum UpdateRule {
    /// State: velocity where `momentum` is not 0.
    Sgd {
        /// Share of the velocity that is kept.
        momentum: f32,
        /// Look ahead along the velocity.
        nesterov: bool,
    },
    /// State: m, v, and the largest v where `amsgrad`.
    Adam {
        /// Decay of the mean.
        beta_1: f32,
        /// Decay of the squares.
        beta_2: f32,
        /// Added to the root.
        epsilon: f32,
        /// Divide by the largest v so far.
        amsgrad: bool,
    },
    /// State: mean of squares, then velocity where `momentum` is not 0, then the mean where `centered`.
    Rmsprop {
        /// Decay of the squares.
        rho: f32,
        /// Share of the velocity that is kept.
        momentum: f32,
        /// Added under the root.
        epsilon: f32,
        /// Subtract the squared mean.
        centered: bool,
    },
    /// State: sum of squares.
    Adagrad {
        /// What the sum begins at.
        initial_accumulator_value: f32,
        /// Added under the root.
        epsilon: f32,
    },
    /// State: mean of squared gradients, mean of squared steps.
    Adadelta {
        /// Decay of both means.
        rho: f32,
        /// Added under the roots.
        epsilon: f32,
    },
    /// State: m, the largest gradient.
    Adamax {
        /// Decay of the mean.
        beta_1: f32,
        /// Decay of the largest.
        beta_2: f32,
        /// Added to the largest.
        epsilon: f32,
    },
    /// State: m, v.
    Nadam {
        /// Decay of the mean.
        beta_1: f32,
        /// Decay of the squares.
        beta_2: f32,
        /// Added to the root.
        epsilon: f32,
    },
    /// State: sum of squares, the linear part.
    Ftrl {
        /// The power of the sum of squares that divides the learning rate; at most 0.
        learning_rate_power: f32,
        /// What the sum begins at.
        initial_accumulator_value: f32,
        /// Strength of the absolute penalty.
        l1: f32,
        /// Strength of the squared penalty.
        l2: f32,
        /// Strength of the squared penalty that is felt with the gradient.
        l2_shrinkage: f32,
        /// Added to the squared penalty, over twice the learning rate.
        beta: f32,
    },
    /// State: m.
    Lion {
        /// Share of the mean in a step.
        beta_1: f32,
        /// Decay of the mean.
        beta_2: f32,
    },
    /// State: means of squares over the last axis and over the one before it; a weight with fewer axes has one of its own shape.
    Adafactor {
        /// Power of the step in the decay of the means.
        beta_2_decay: f32,
        /// Added to squares.
        epsilon_1: f32,
        /// Least size of a weight that steps are relative to.
        epsilon_2: f32,
        /// Steps of a larger root mean square are cut to it.
        clip_threshold: f32,
        /// Kept for Keras, whose steps are relative either way.
        relative_step: bool,
    },
    /// State: m, v.
    Lamb {
        /// Decay of the mean.
        beta_1: f32,
        /// Decay of the squares.
        beta_2: f32,
        /// Added to the root.
        epsilon: f32,
    },
}

impl UpdateRule {
    /// Whether an element of a weight changes by its own gradient and state alone.
    pub fn is_elementwise(&self) -> bool {
        match self {
            UpdateRule::Sgd { .. }
            | UpdateRule::Adam { .. }
            | UpdateRule::Rmsprop { .. }
            | UpdateRule::Adagrad { .. }
            | UpdateRule::Adadelta { .. }
            | UpdateRule::Adamax { .. }
            | UpdateRule::Nadam { .. }
            | UpdateRule::Ftrl { .. }
            | UpdateRule::Lion { .. } => true,
            UpdateRule::Adafactor { .. } | UpdateRule::Lamb { .. } => false,
        }
    }

    /// Names of the state tensors of a weight of these dimensions, with their own.
    pub fn state(&self, dims: &[usize]) -> Vec<(&'static str, Vec<usize>)> {
        if let (UpdateRule::Adafactor { .. }, [outer @ .., rows, columns]) = (self, dims) {
            let with = |last: usize| outer.iter().copied().chain([last]).collect();
            return vec![("rows", with(*rows)), ("columns", with(*columns))];
        }
        self.names().into_iter().flatten().map(|name| (name, dims.to_vec())).collect()
    }

    /// How many state tensors there are; none where that depends on the weight's dimensions.
    pub(crate) fn states(&self) -> Option<usize> {
        let is_known = !matches!(self, UpdateRule::Adafactor { .. });
        is_known.then(|| self.names().into_iter().flatten().count())
    }

    /// Names of state tensors of the weight's own shape.
    fn names(&self) -> [Option<&'static str>; 3] {
        let some = |holds: bool, name: &'static str| holds.then_some(name);
        match *self {
            UpdateRule::Sgd { momentum, .. } => [some(momentum != 0.0, "momentum"), None, None],
            UpdateRule::Adam { amsgrad, .. } => {
                [Some("momentum"), Some("velocity"), some(amsgrad, "velocity_hat")]
            }
            UpdateRule::Rmsprop { momentum, centered, .. } => {
                [Some("velocity"), some(momentum != 0.0, "momentum"), some(centered, "average_gradient")]
            }
            UpdateRule::Adagrad { .. } => [Some("accumulator"), None, None],
            UpdateRule::Adadelta { .. } => [Some("accumulated_grad"), Some("accumulated_delta_var"), None],
            UpdateRule::Adamax { .. } => [Some("momentum"), Some("norm"), None],
            UpdateRule::Nadam { .. } | UpdateRule::Lamb { .. } => [Some("momentum"), Some("velocity"), None],
            UpdateRule::Ftrl { .. } => [Some("accumulator"), Some("linear"), None],
            UpdateRule::Lion { .. } => [Some("momentum"), None, None],
            UpdateRule::Adafactor { .. } => [Some("velocity"), None, None],
        }
    }

    /// What the first state tensor begins at.
    pub fn first_state(&self) -> f32 {
        match *self {
            UpdateRule::Adagrad { initial_accumulator_value, .. }
            | UpdateRule::Ftrl { initial_accumulator_value, .. } => initial_accumulator_value,
            UpdateRule::Sgd { .. }
            | UpdateRule::Adam { .. }
            | UpdateRule::Rmsprop { .. }
            | UpdateRule::Adadelta { .. }
            | UpdateRule::Adamax { .. }
            | UpdateRule::Nadam { .. }
            | UpdateRule::Lion { .. }
            | UpdateRule::Adafactor { .. }
            | UpdateRule::Lamb { .. } => 0.0,
        }
    }

    /// Nadam's product of all its momenta after this many updates.
    pub fn nadam_product(beta_1: f32, updates: u64) -> f64 {
        let mut product = 1.0;
        let mut step = 1;
        // The product vanishes long before the updates become many.
        while step <= updates && 1e-40 < product {
            product *= f64::from(beta_1) * (1.0 - 0.5 * 0.96f64.powf(step as f64));
            step += 1;
        }
        product
    }
}

/// What is done to a gradient before it is applied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Clip {
    /// Nothing.
    None,
    /// Each element into `[−limit, limit]`.
    Value(f32),
    /// The gradient scaled down so that the norm, whose square is the node's second input, is at most the
    /// limit.
    Norm(f32),
}
