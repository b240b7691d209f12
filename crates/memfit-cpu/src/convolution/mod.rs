//! Two-dimensional convolution and its gradients, as products whose operands are gathered while they are
//! packed.
//!
//! Images are NHWC and filters `[height][width][channels in / groups][channels out]`, as Keras has them.

mod depthwise;
mod forward;
mod gather;
mod grad_input;
mod grad_kernel;
mod grad_kernel_of;
mod pack;
pub(crate) mod pooled;
mod strip;
mod winograd;

pub use forward::{forward, forward_workspace};
pub use grad_input::{grad_input, grad_input_workspace};
pub use grad_kernel::{grad_kernel, grad_kernel_workspace};
pub(crate) use grad_kernel_of::{grad_kernel_of, grad_kernel_of_workspace, times_made};
pub(crate) use winograd::WINOGRAD;

/// The shape of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// How many images.
    pub rows: usize,
    /// Height, width and channels of an input image.
    pub input: [usize; 3],
    /// Height, width and channels of an output image.
    pub output: [usize; 3],
    /// Height and width of the filter.
    pub kernel: [usize; 2],
    /// Input pixels between neighbouring output pixels, down and across.
    pub strides: [usize; 2],
    /// Input pixels between neighbouring taps of the filter, down and across.
    pub dilation: [usize; 2],
    /// How many groups the channels are cut into; each group is convolved by itself.
    pub groups: usize,
    /// Rows of zeros above an input image.
    pub pad_top: usize,
    /// Columns of zeros to the left of an input image.
    pub pad_left: usize,
}

impl Convolution {
    /// Floats in all input images.
    fn input_floats(&self) -> usize {
        self.rows * self.input.iter().product::<usize>()
    }

    /// Floats in all output images.
    fn output_floats(&self) -> usize {
        self.rows * self.output.iter().product::<usize>()
    }

    /// Floats in the filter.
    fn kernel_floats(&self) -> usize {
        self.taps() * self.channels_in() * self.output[2]
    }

    /// Pixels that the filter covers.
    fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Input channels of one group.
    fn channels_in(&self) -> usize {
        self.input[2] / self.groups
    }

    /// Output channels of one group.
    fn channels_out(&self) -> usize {
        self.output[2] / self.groups
    }

    /// Whether pixels do not mix and every input pixel makes one output pixel, so that images are plain
    /// matrices.
    fn is_matrix_product(&self) -> bool {
        self.taps() == 1
            && self.strides == [1, 1]
            && self.groups == 1
            && (self.pad_top, self.pad_left) == (0, 0)
            && self.input[..2] == self.output[..2]
    }

    /// Whether channels do not mix either.
    fn is_depthwise(&self) -> bool {
        self.channels_in() == 1 && self.channels_out() == 1
    }

    fn check(&self, input: usize, kernel: usize, output: usize) {
        assert!(
            self.groups > 0
                && self.input[2].is_multiple_of(self.groups)
                && self.output[2].is_multiple_of(self.groups),
            "groups have equal numbers of channels"
        );
        assert!(
            input == self.input_floats() && kernel == self.kernel_floats() && output == self.output_floats(),
            "operands have the sizes of their shape"
        );
    }
}

#[cfg(test)]
pub(crate) mod tests;
