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
    /// Minus the cosine of the angle between prediction and target along the last axis.
    CosineSimilarity,
}
