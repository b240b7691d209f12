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

/// The fewest channels on either side, for three and five taps: with fewer, what is saved shrinks, and the plain sum keeps
/// the last digits of small networks as other frameworks have them.
const CHANNELS_THREE: usize = 64;
const CHANNELS_FIVE: usize = 16;
/// The narrowest image: on smaller ones tiles that hang over take much of what is saved. Set here, and not lower where it would still
/// be faster, so that `six_convolutions` of the references stays within 1e-4 of Keras over ten steps: it came to 3.7e-4, for a reason
/// that was not established.
const WIDTH_MIN: usize = 14;
/// The narrowest image for layers of many channels: the saving grows with the channels.
const WIDTH_MIN_DEEP: usize = 7;
const CHANNELS_DEEP: usize = 256;
/// The most products of Winograd for one product of the direct convolution, along a row of pixels. The tile
/// at the end of the row is included.
const PRODUCTS_MOST: f64 = 0.78;

impl Conv2D {
    /// Whether CPUs compute a convolution and its gradients by Winograd, in tiles of two by two pixels, which
    /// needs fewer products. The answer depends neither on the number of images, so that the bits of each
    /// image do not, nor on their height, so that bands of an image are computed as the whole. `widths` and
    /// `channels` are those of the input and of the output.
    pub fn uses_winograd(&self, widths: [usize; 2], channels: [usize; 2]) -> bool {
        let (points, fewest) = match self.kernel {
            [3, 3] => (4, CHANNELS_THREE),
            [5, 5] => (6, CHANNELS_FIVE),
            _ => return false,
        };
        // The last tile hangs over where there is an odd number of pixels: on the narrower of both images that counts most.
        let width = widths[0].min(widths[1]);
        let least = channels[0].min(channels[1]);
        let width_min = if least >= CHANNELS_DEEP { WIDTH_MIN_DEEP } else { WIDTH_MIN };
        let products = (width.div_ceil(2) * points) as f64;
        self.strides == [1, 1]
            && self.dilation == [1, 1]
            && self.groups == 1
            && least >= fewest
            && width >= width_min
            && products <= PRODUCTS_MOST * (width * self.kernel[1]) as f64
    }
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

    /// Whether the convolution of images of this height, width and channels to `filters` channels uses
    /// Winograd: then a tile is a window of the pool.
    pub fn uses_winograd(&self, image: [usize; 3], filters: usize) -> bool {
        let [_, width] = self.between([image[0], image[1]]);
        self.conv.uses_winograd([image[1], width], [image[2], filters])
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
