//! Random layers beside plain dropout: noise of a shape that may be smaller than the values it changes.

/// Noise that is a function of seed, step and place, so that it is drawn again instead of stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Noise {
    /// What is drawn and what it does.
    pub kind: NoiseKind,
    /// Which sequence of draws this layer uses.
    pub seed: u64,
    /// Dimensions of what is drawn, after the batch: those of the values, or 1 where neighbours share a draw.
    pub dims: Vec<usize>,
}

/// What noise does to a value `x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NoiseKind {
    /// 0 for a share of draws, else `x / (1 − rate)`; its own gradient.
    Dropout {
        /// The share.
        rate: f32,
    },
    /// `x` and a normal deviate; the gradient passes as it is.
    Add {
        /// Standard deviation.
        stddev: f32,
    },
    /// `x` times a normal deviate about 1; its own gradient.
    Multiply {
        /// Standard deviation.
        stddev: f32,
    },
    /// Keras's AlphaDropout: a share of draws becomes SELU's lowest value, and all are moved so that mean and variance stay.
    Alpha {
        /// The share.
        rate: f32,
    },
    /// The gradient of `Alpha`.
    AlphaGrad {
        /// The share.
        rate: f32,
    },
}

impl NoiseKind {
    /// What AlphaDropout puts in place of a value, and the scale and shift of all.
    pub fn alpha_constants(rate: f32) -> (f64, f64, f64) {
        let lowest = -1.673_263_242_354_377_2 * 1.050_700_987_355_480_5;
        let rate = f64::from(rate);
        let scale = ((1.0 - rate) * (1.0 + rate * lowest * lowest)).powf(-0.5);
        (lowest, scale, -scale * lowest * rate)
    }
}
