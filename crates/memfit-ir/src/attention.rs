//! Attention: what it is besides the shapes of its operands.

/// Scaled dot-product attention: `softmax(scale · q kᵀ) v` for each head.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attention {
    /// Factor of the scores.
    pub scale: f32,
    /// Whether a query sees only the keys at its own place and before.
    pub causal: bool,
    /// Whether there is a mask of queries, which is the operand after the others. A query that does not
    /// count, or that sees no key, takes the mean of all values, as in Keras.
    pub query_mask: bool,
    /// Whether there is a mask of keys, after that of queries: keys that do not count are not seen.
    pub key_mask: bool,
    /// What becomes of the weights of values in training; nothing where they stay.
    pub dropout: Option<AttentionDropout>,
}

/// Dropout of the weights by which a query takes values: a function of seed, step and place, so that it is drawn again
/// instead of stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionDropout {
    /// The share of weights set to 0.
    pub rate: f32,
    /// Which sequence of draws this layer uses.
    pub seed: u64,
}

impl Attention {
    /// How many masks there are.
    pub fn masks(&self) -> usize {
        usize::from(self.query_mask) + usize::from(self.key_mask)
    }
}
