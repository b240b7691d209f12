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
    /// Zeros before and after each axis.
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

impl Pool2D {
    /// The argmax byte of a window whose result a ReLU made 0. It gets no gradient.
    pub const NO_ARGMAX: u8 = u8::MAX;

    /// Whether a ReLU after a max pool can run in it: no place of a window has the byte that means no argmax.
    pub fn can_rectify(&self) -> bool {
        self.window[0] * self.window[1] <= usize::from(Pool2D::NO_ARGMAX)
    }

    /// Whether every window has some of the image under it.
    pub fn is_inside(&self) -> bool {
        let Pads { top, bottom, left, right } = self.pads;
        top.max(bottom) < self.window[0] && left.max(right) < self.window[1]
    }
}

/// A convolution, a max pool of two by two pixels after it, and a ReLU after that where there is one. The
/// image between them is never stored.
#[derive(Clone, Debug, PartialEq)]
pub struct PooledConv2D {
    /// The convolution: of one group, with neighbouring taps.
    pub conv: Conv2D,
    /// Whether negative results become 0. They have no argmax then: the byte is [`Pool2D::NO_ARGMAX`].
    pub relu: bool,
}

impl PooledConv2D {
    /// The pool: windows side by side.
    pub const POOL: Pool2D =
        Pool2D { window: [2, 2], strides: [2, 2], pads: Pads { top: 0, bottom: 0, left: 0, right: 0 } };

    /// Whether the inputs of the four pixels of a window under one filter tap lie close together, so that a
    /// vector can select those of the argmax: filters over few channels.
    pub fn picks(&self, channels: usize) -> bool {
        let Conv2D { kernel, strides, .. } = &self.conv;
        *strides == [1, 1] && matches!((*kernel, channels), ([3, 3], 1..=3) | ([5, 5], 1 | 3))
    }

    /// Height and width of the image between convolution and pool, for an image of this height and width.
    pub fn between(&self, image: [usize; 2]) -> [usize; 2] {
        let Conv2D { kernel, strides, pads, .. } = &self.conv;
        let margins = [pads.height(), pads.width()];
        [0, 1].map(|axis| (image[axis] + margins[axis]).saturating_sub(kernel[axis]) / strides[axis] + 1)
    }
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
    /// Columns after the image.
    pub right: usize,
}

/// How new pixels are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// Repeat the nearest pixel.
    Nearest,
    /// A weighted mean of the four nearest pixels, with half-pixel centres.
    Bilinear,
}

impl Pads {
    /// These margins around others.
    #[must_use]
    pub fn and(&self, other: &Pads) -> Pads {
        Pads {
            top: self.top + other.top,
            bottom: self.bottom + other.bottom,
            left: self.left + other.left,
            right: self.right + other.right,
        }
    }

    /// Rows added in all.
    pub fn height(&self) -> usize {
        self.top + self.bottom
    }

    /// Columns added in all.
    pub fn width(&self) -> usize {
        self.left + self.right
    }
}
