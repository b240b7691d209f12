//! Images changed at random while training: what may happen to them.

use crate::Interpolation;

/// A change of every image. What is drawn depends on seed, step and row, so that it can be drawn again.
#[derive(Clone, Debug, PartialEq)]
pub struct Augment {
    /// What happens.
    pub change: Change,
    /// Which sequence of draws this layer uses.
    pub seed: u64,
}

/// What happens to an image. Ranges are `[low, high]`; each row draws its own, but for a crop, which a whole batch shares.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Half of the images are flipped.
    Flip {
        /// Left and right change places.
        horizontal: bool,
        /// Top and bottom change places.
        vertical: bool,
    },
    /// A part of the image.
    Crop {
        /// Rows of pixels that stay.
        height: usize,
        /// Columns of pixels that stay.
        width: usize,
    },
    /// The image turned around its centre.
    Rotate {
        /// In full rotations.
        turns: [f32; 2],
        /// How pixels are read.
        sampling: Sampling,
    },
    /// The image shifted.
    Translate {
        /// Downwards, as a share of the height.
        height: [f32; 2],
        /// To the right, as a share of the width.
        width: [f32; 2],
        /// How pixels are read.
        sampling: Sampling,
    },
    /// The image larger or smaller, around its centre.
    Zoom {
        /// What is added to 1: above 0 it shows more of the image.
        height: [f32; 2],
        /// The same for the width; as the height where there is none.
        width: Option<[f32; 2]>,
        /// How pixels are read.
        sampling: Sampling,
    },
    /// Differences to each channel's mean, times a factor.
    Contrast {
        /// The factor.
        factor: [f32; 2],
        /// Results are cut to this.
        range: [f32; 2],
    },
    /// A number added to all pixels.
    Brightness {
        /// As a share of the range.
        share: [f32; 2],
        /// Results are cut to this.
        range: [f32; 2],
    },
}

/// How pixels between and outside pixels are read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Between pixels.
    pub interpolation: Interpolation,
    /// Outside of the image.
    pub fill: Fill,
}

/// What stands outside of an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// One number.
    Constant(f32),
    /// The nearest pixel.
    Nearest,
    /// The image mirrored at its edges: `dcba|abcd|dcba`.
    Reflect,
    /// The image again: `abcd|abcd|abcd`.
    Wrap,
}
