//! Masks: which places of a sequence count.

/// What a mask is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mask {
    /// Numbers of entries: all but 0 count.
    NotZero,
    /// Values: a place counts where any of its features is another number than this.
    AnyOther(f32),
}
