//! Losses without a form of their own in the graph: how far predictions are from their targets, by Keras's names.

/// How far a prediction is from its target, averaged over the last axis unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distance {
    /// `p − t ln p`.
    Poisson,
    /// `ln cosh (p − t)`.
    LogCosh,
    /// `max(1 − t p, 0)`, where targets are −1 or 1; 0 counts as −1.
    Hinge,
    /// The square of that.
    SquaredHinge,
    /// `100 |p − t| / |t|`.
    MeanAbsolutePercentageError,
    /// `(ln (p + 1) − ln (t + 1))²`.
    MeanSquaredLogarithmicError,
    /// `Σ t ln (t / p)` over the last axis.
    KlDivergence,
    /// Binary cross-entropy that counts the less the surer a prediction is.
    BinaryFocalCrossentropy {
        /// Predictions are logits, not probabilities.
        from_logits: bool,
        /// Share of each target moved to one half.
        label_smoothing: f32,
        /// What class 1 weighs; class 0 weighs the rest of 1.
        alpha: Option<f32>,
        /// The power of the uncertainty.
        gamma: f32,
    },
    /// `max(1 + max (1 − t) p − Σ t p, 0)` over the last axis.
    CategoricalHinge,
    /// Cross-entropy of classes that counts the less the surer a prediction is.
    CategoricalFocalCrossentropy {
        /// Predictions are logits, not probabilities.
        from_logits: bool,
        /// Share of each target spread over all classes.
        label_smoothing: f32,
        /// What every class weighs.
        alpha: f32,
        /// The power of the uncertainty.
        gamma: f32,
    },
    /// `1 − 2 Σ t p / (Σ t + Σ p)` over all axes of a row, or of the whole batch.
    Dice {
        /// Axes of a row that have one number, which must be all; 0 where the whole batch has one.
        axes: usize,
    },
    /// `1 − Σ t p / (Σ t p + alpha Σ t (1 − p) + beta Σ p (1 − t))`, likewise.
    Tversky {
        /// What a target that is missed costs.
        alpha: f32,
        /// What a prediction without a target costs.
        beta: f32,
        /// Axes of a row that have one number, which must be all; 0 where the whole batch has one.
        axes: usize,
    },
    /// Minus the cosine of the angle between prediction and target along the last axis.
    CosineSimilarity,
}

impl Distance {
    /// Whether rows of the batch meet in one number.
    pub fn mixes_rows(self) -> bool {
        matches!(self, Distance::Dice { axes: 0 } | Distance::Tversky { axes: 0, .. })
    }

    /// Whether a row, and not a sample of its last axis, has a distance.
    pub fn is_overlap(self) -> bool {
        self.axes_overlapped().is_some()
    }

    /// How many axes of a row overlap, of distances of rows or of the whole batch.
    pub fn axes_overlapped(self) -> Option<usize> {
        if let Distance::Dice { axes } | Distance::Tversky { axes, .. } = self { Some(axes) } else { None }
    }
}

/// How the losses of samples become one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Their mean.
    Mean,
    /// Their sum.
    Sum,
    /// Their sum over that of their weights.
    MeanOfWeights,
}
