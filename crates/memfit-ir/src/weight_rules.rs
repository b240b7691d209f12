//! What is asked of single weights: penalties that count into the loss, and where weights must stay. By Keras's names.

/// A penalty on a weight: `l1 · Σ|w| + l2 · Σw²`, and one on angles.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Regularizer {
    /// Factor of absolute values.
    pub l1: f32,
    /// Factor of squares.
    pub l2: f32,
    /// What lines of a matrix cost that are not at right angles.
    pub orthogonal: Option<Orthogonal>,
}

/// A penalty on the cosines between all pairs of rows, or of columns, of a matrix: their mean size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Orthogonal {
    /// Factor of the mean.
    pub factor: f32,
    /// Whether rows are meant.
    pub by_rows: bool,
}

/// Where a weight must stay. Norms are taken over neighbouring axes, from the first up to but without the second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Constraint {
    /// At or above 0.
    NonNeg,
    /// Norms of at most `max_value`.
    MaxNorm {
        /// The most.
        max_value: f32,
        /// Axes of the norm.
        axes: [usize; 2],
    },
    /// Norms of 1.
    UnitNorm {
        /// Axes of the norm.
        axes: [usize; 2],
    },
    /// Norms between two values, approached by `rate`.
    MinMaxNorm {
        /// The least.
        min_value: f32,
        /// The most.
        max_value: f32,
        /// The share of the distance that one step goes.
        rate: f32,
        /// Axes of the norm.
        axes: [usize; 2],
    },
}
