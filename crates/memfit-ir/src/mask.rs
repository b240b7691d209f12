//! Masks: which places of a sequence count.

/// What a mask is computed from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mask {
    /// Numbers of entries: all but 0 count.
    NotZero,
    /// Numbers of classes: all but this one count.
    OtherClass(i32),
    /// Values: a place counts where any of its features is another number than this.
    AnyOther(f32),
}
