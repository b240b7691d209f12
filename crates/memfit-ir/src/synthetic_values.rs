//! Synthetic numbers as data: every element is a function of a seed and its place, so that any device can
//! draw them.

/// The values of a synthetic field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    /// Floats in `[low, high)`.
    Uniform {
        /// Lower end.
        low: f64,
        /// Upper end.
        high: f64,
    },
    /// Whole numbers in `low..high`.
    Integers {
        /// The smallest.
        low: i64,
        /// Above the largest.
        high: i64,
    },
    /// A single 1 along the last dimension, else 0.
    OneHot,
}

/// How the rows of a field are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SyntheticValues {
    /// What they hold.
    pub values: Values,
    /// The seed of the field's sequence.
    pub seed: u64,
}
