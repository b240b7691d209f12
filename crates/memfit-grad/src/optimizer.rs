//! Optimizers and learning-rate schedules, by Keras's names, arguments and defaults.

use memfit_ir::{Average, TensorId, UpdateRule};

/// How weights follow their gradients.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimizer {
    /// The update of one weight.
    pub rule: UpdateRule,
    /// The learning rate of each step.
    pub schedule: Schedule,
    /// Decoupled weight decay; 0 for none.
    pub weight_decay: f32,
    /// Weights that do not decay.
    pub undecayed: Vec<TensorId>,
    /// What happens to gradients first.
    pub clip: ClipBy,
    /// Moving averages of the weights.
    pub average: Option<Average>,
    /// The gradients of this many steps make one update, by their mean: steps weigh alike, whatever their
    /// rows, as in Keras.
    pub accumulation_steps: u64,
    /// Kept for Keras: what its losses are multiplied by and its gradients divided by again, which changes no number here.
    pub loss_scale_factor: Option<f32>,
}

/// How gradients are clipped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClipBy {
    /// Not at all.
    None,
    /// Each element into `[−limit, limit]`.
    Value(f32),
    /// Each weight's gradient to a norm of at most the limit.
    Norm(f32),
    /// All gradients together to a norm of at most the limit.
    GlobalNorm(f32),
}

/// The learning rate as a function of the step, which counts from 0.
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// The same at every step.
    Constant(f64),
    /// `rate · decay_rate^(step / decay_steps)`.
    ExponentialDecay {
        /// Rate at step 0.
        initial: f64,
        /// Steps for one factor.
        decay_steps: f64,
        /// The factor.
        decay_rate: f64,
        /// Only whole factors.
        staircase: bool,
    },
    /// Half a cosine down to `alpha · rate`, after a linear warm-up where there is one.
    CosineDecay {
        /// Rate at step 0.
        initial: f64,
        /// Steps of the decay.
        decay_steps: f64,
        /// Share of the rate that remains.
        alpha: f64,
        /// Rate at the end of the warm-up; none for no warm-up.
        warmup_target: Option<f64>,
        /// Steps of the warm-up.
        warmup_steps: f64,
    },
    /// Half a cosine down to `alpha · rate`, again and again, each `length_factor` times as long and `rate_factor` times as high as
    /// the one before.
    CosineDecayRestarts {
        /// Rate at step 0.
        initial: f64,
        /// Steps of the first decay.
        first_decay_steps: f64,
        /// By how much each decay is longer.
        length_factor: f64,
        /// By how much each decay starts higher.
        rate_factor: f64,
        /// Share of the rate that remains.
        alpha: f64,
    },
    /// One value up to and including each boundary, the last one beyond.
    PiecewiseConstantDecay {
        /// Steps at which the value changes.
        boundaries: Vec<f64>,
        /// One more value than boundaries.
        values: Vec<f64>,
    },
    /// `(rate − end)(1 − step / decay_steps)^power + end`.
    PolynomialDecay {
        /// Rate at step 0.
        initial: f64,
        /// Steps of the decay.
        decay_steps: f64,
        /// Rate at the end.
        end: f64,
        /// The power.
        power: f64,
        /// Start again, with the steps stretched.
        cycle: bool,
    },
    /// `rate / (1 + decay_rate · step / decay_steps)`.
    InverseTimeDecay {
        /// Rate at step 0.
        initial: f64,
        /// Steps of one unit.
        decay_steps: f64,
        /// Growth of the divisor.
        decay_rate: f64,
        /// Only whole units.
        staircase: bool,
    },
}

impl Optimizer {
    /// An optimizer without clipping or decay.
    pub fn new(rule: UpdateRule, learning_rate: f64) -> Optimizer {
        Optimizer {
            rule,
            schedule: Schedule::Constant(learning_rate),
            weight_decay: 0.0,
            undecayed: Vec::new(),
            clip: ClipBy::None,
            average: None,
            accumulation_steps: 1,
            loss_scale_factor: None,
        }
    }

    /// Plain stochastic gradient descent.
    pub fn sgd(learning_rate: f64) -> Optimizer {
        Optimizer::new(UpdateRule::Sgd { momentum: 0.0, nesterov: false }, learning_rate)
    }

    /// Adam with Keras's defaults.
    pub fn adam() -> Optimizer {
        let rule = UpdateRule::Adam { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-7, amsgrad: false };
        Optimizer::new(rule, 0.001)
    }
}

impl Optimizer {
    /// How many numbers are kept from step to step for a weight of these dimensions.
    pub fn state_elements(&self, dims: &[usize]) -> usize {
        let count = |dims: &[usize]| dims.iter().product::<usize>();
        let rule: usize = self.rule.state(dims).iter().map(|(_, dims)| count(dims)).sum();
        let copies = usize::from(self.average.is_some()) + usize::from(self.accumulation_steps != 1);
        rule + copies * count(dims)
    }
}

impl Schedule {
    /// The learning rate of a step.
    pub fn at(&self, step: u64) -> f32 {
        let step = step as f64;
        let whole = |value: f64, staircase: bool| if staircase { value.floor() } else { value };
        let rate = match self {
            Schedule::Constant(rate) => *rate,
            Schedule::ExponentialDecay { initial, decay_steps, decay_rate, staircase } => {
                initial * decay_rate.powf(whole(step / decay_steps, *staircase))
            }
            Schedule::CosineDecay { initial, decay_steps, alpha, warmup_target, warmup_steps } => {
                cosine(step, *initial, *decay_steps, *alpha, *warmup_target, *warmup_steps)
            }
            Schedule::CosineDecayRestarts {
                initial,
                first_decay_steps,
                length_factor,
                rate_factor,
                alpha,
            } => {
                let (restarts, done) = restarts(step / first_decay_steps, *length_factor);
                let share = 0.5 * rate_factor.powi(restarts) * (1.0 + (std::f64::consts::PI * done).cos());
                initial * ((1.0 - alpha) * share + alpha)
            }
            Schedule::PiecewiseConstantDecay { boundaries, values } => {
                let passed = boundaries.iter().filter(|boundary| **boundary < step).count();
                values[passed]
            }
            Schedule::PolynomialDecay { initial, decay_steps, end, power, cycle } => {
                let cycles = if *cycle { (step / decay_steps).ceil().max(1.0) } else { 1.0 };
                let length = decay_steps * cycles;
                (initial - end) * (1.0 - step.min(length) / length).powf(*power) + end
            }
            Schedule::InverseTimeDecay { initial, decay_steps, decay_rate, staircase } => {
                initial / (1.0 + decay_rate * whole(step / decay_steps, *staircase))
            }
        };
        rate as f32
    }
}

/// How many decays are over after `done` times the length of the first, and how much of the next is done.
fn restarts(mut done: f64, length_factor: f64) -> (i32, f64) {
    let (mut count, mut length) = (0, 1.0);
    // Lengths add up as whole numbers of first decays do, so that a boundary is met exactly.
    while length <= done {
        done -= length;
        length *= length_factor;
        count += 1;
    }
    (count, done / length)
}

fn cosine(
    step: f64,
    initial: f64,
    decay_steps: f64,
    alpha: f64,
    warmup_target: Option<f64>,
    warmup_steps: f64,
) -> f64 {
    let decay = |step: f64, from: f64| {
        let done = step.min(decay_steps) / decay_steps;
        let share = 0.5 * (1.0 + (std::f64::consts::PI * done).cos());
        from * ((1.0 - alpha) * share + alpha)
    };
    match warmup_target {
        None => decay(step, initial),
        Some(target) if step < warmup_steps => initial + (target - initial) * step / warmup_steps,
        Some(target) => decay((step - warmup_steps).min(decay_steps), target),
    }
}
