//! A convolution and the 2×2 max pool after it: results of the convolution go from registers into the pool,
//! and the gradient of the filter is computed from the gradient of the pool's output. The image between them
//! is never stored.

mod deep;
pub mod dense;
mod forward;
mod grad_kernel;
mod picked;
mod winograd_rgb;

pub use deep::{grad_input, grad_input_workspace};
pub(super) use forward::write;
pub use forward::{forward, forward_workspace};
pub use grad_kernel::{grad_kernel, grad_kernel_workspace};

use super::super::gemm::driver::LINE;
use super::super::lanes::Lanes;
use super::Convolution;
use super::gather::Gather;

/// The shape of a convolution of one group with neighbouring taps, whose output is pooled.
#[derive(Clone, Copy, Debug)]
pub struct Pooled {
    /// The convolution; its output is the image between it and the pool.
    pub conv: Convolution,
    /// Whether negative results become 0, and then have no argmax.
    pub relu: bool,
}

impl Pooled {
    /// Height, width and channels of the pool's output.
    pub fn output(&self) -> [usize; 3] {
        let [height, width, channels] = self.conv.output;
        [height / 2, width / 2, channels]
    }

    /// Floats of the pool's output.
    fn output_floats(&self) -> usize {
        self.conv.rows * self.output().iter().product::<usize>()
    }

    /// Products of one output of the convolution.
    fn depth(&self) -> usize {
        self.conv.kernel[0] * self.tap_row()
    }

    /// How many floats a row of taps sees.
    fn tap_row(&self) -> usize {
        self.conv.kernel[1] * self.conv.input[2]
    }

    fn check(&self) {
        let Convolution { groups, dilation, .. } = self.conv;
        assert!(groups == 1 && dilation == [1, 1], "the shape rules ask for one group and neighbouring taps");
    }
}

/// The lines of an image that lines of windows see, copied one after the other with the zeros around the
/// image.
#[derive(Clone, Copy, Debug)]
struct Lines {
    /// Floats that are seen of a line, and floats from one line to the next: a vector may reach past the end.
    seen: usize,
    stride: usize,
    /// Lines under the first line of windows, and how many more come with each further one.
    first: usize,
    step: usize,
}

impl Lines {
    fn new(pooled: &Pooled) -> Lines {
        let Convolution { input, kernel, strides, .. } = pooled.conv;
        let columns = (2 * pooled.output()[1]).saturating_sub(1) * strides[1] + kernel[1];
        let seen = columns * input[2];
        let stride = (seen + LINE).next_multiple_of(LINE);
        Lines { seen, stride, first: strides[0] + kernel[0], step: 2 * strides[0] }
    }

    /// Floats under `windows` lines of windows.
    fn floats(&self, windows: usize) -> usize {
        (self.first + windows.saturating_sub(1) * self.step) * self.stride
    }

    /// What a line of windows sees, in the image itself where no zeros are needed around it and `past` floats
    /// can be read after it; then lines are as far apart as the image's.
    #[inline(always)]
    fn seen<'a>(
        &self,
        gather: &Gather<'a>,
        image: usize,
        [window, across]: [usize; 2],
        past: usize,
    ) -> Option<(&'a [f32], usize)> {
        let (x, y) =
            (gather.across.seen(2 * across, 0), gather.down.seen(0, 0) + (window * self.step) as isize);
        let (x, y) = (usize::try_from(x).ok()?, usize::try_from(y).ok()?);
        let stride = gather.across.size * gather.pixel;
        let fits = y + self.first <= gather.down.size && x * gather.pixel + self.seen <= stride;
        let start = gather.line_start(image, y) + x * gather.pixel;
        let end = start + (self.first - 1) * stride + self.seen + past;
        (fits && end <= gather.images.len()).then(|| (&gather.images[start..], stride))
    }

    /// Copies what some lines of windows see, from a window of an image on, whose line and column are given.
    #[inline(always)]
    fn copy<L: Lanes>(
        &self,
        gather: &Gather,
        image: usize,
        [window, across]: [usize; 2],
        windows: usize,
        to: &mut [f32],
    ) {
        let lines = self.floats(windows) / self.stride;
        assert!(lines * self.stride <= to.len(), "the lines fit their buffer");
        let start = gather.across.seen(2 * across, 0) * gather.pixel as isize;
        for line in 0..lines {
            let y = gather.down.seen(0, 0) + (window * self.step + line) as isize;
            let to = to[line * self.stride..].as_mut_ptr();
            // SAFETY: there is room for a line, and the callers' images exist.
            unsafe { gather.copy_run::<L>(image, y, start, self.seen, to) };
        }
    }
}

#[cfg(test)]
mod tests;
