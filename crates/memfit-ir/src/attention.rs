//! Attention: what it is besides the shapes of its operands.

/// Scaled dot-product attention: `softmax(scale · q kᵀ) v` for each head.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Factor of the scores.
    pub scale: f32,
    /// Whether a query sees only the keys at its own place and before.
    pub causal: bool,
}
