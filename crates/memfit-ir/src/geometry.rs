//! Geometry of convolutions, pools and margins.

/// A convolution's geometry.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv2D {
    /// Height and width of the filter.
    pub kernel: [usize; 2],
    /// Step between outputs.
    pub strides: [usize; 2],
    /// Step between taps.
    pub dilation: [usize; 2],
    /// Independent groups of channels; as many as input channels for a depthwise convolution.
    pub groups: usize,
    /// Zeros around the image.
    pub pads: Pads,
}

/// The geometry of a convolution over depth, height and width.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv3D {
    /// Depth, height and width of the filter.
    pub kernel: [usize; 3],
    /// Step between outputs.
    pub strides: [usize; 3],
    /// Step between taps.
    pub dilation: [usize; 3],
    /// Independent groups of channels.
    pub groups: usize,
    /// Zeros before and behind each axis.
    pub pads: [[usize; 2]; 3],
}

impl Conv3D {
    /// How far the filter reaches along each axis.
    pub fn span(&self) -> [usize; 3] {
        [0, 1, 2].map(|axis| (self.kernel[axis] - 1) * self.dilation[axis] + 1)
    }
}

/// A pool's geometry.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool2D {
    /// Height and width of the window.
    pub window: [usize; 2],
    /// Step between windows.
    pub strides: [usize; 2],
    /// Margins around the image.
    pub pads: Pads,
}

/// Margins of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pads {
    /// Rows above.
    pub top: usize,
    /// Rows below.
    pub bottom: usize,
    /// Columns before.
    pub left: usize,
    /// Columns behind.
    pub right: usize,
}

/// How new pixels are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// Repeat the nearest pixel.
    Nearest,
    /// Weigh the four nearest, with half-pixel centres.
    Bilinear,
}

impl Pads {
    /// Rows added in all.
    pub fn height(&self) -> usize {
        self.top + self.bottom
    }

    /// Columns added in all.
    pub fn width(&self) -> usize {
        self.left + self.right
    }
}
