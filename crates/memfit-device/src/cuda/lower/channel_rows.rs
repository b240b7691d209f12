//! The gradient of a filter as products over pixels, in single precision.
//!
//! Tensor cores take factors in TF32 along their rows alone, and images have a row for each pixel; so both images are turned round
//! first, a few at a time, into frames of one width. A tap further down is then the same matrix a line further on, and for taps further to the right
//! the image stands there once for each, because matrices begin at multiples of four numbers.

use memfit_ir::{Bytes, Conv2D, DType};

use super::product::Sizes;
use crate::cuda::call::{Call, THREADS, int, long};
use crate::cuda::work::{Address, Argument, Kernel, Lowered, Product, Source, Work};

const TEXT: &str = include_str!("../kernels/channel_rows.cu");

/// Products a tap for each number that is turned round, below which that takes longer than it spares: on an H200 beside cuDNN 9.14,
/// 256 to 256 channels (62) lost a sixth and 256 to 512 (99) won a quarter.
const PRODUCTS_LEAST: usize = 90;

/// Turned images at once take no more than this, unless a single one does.
const TURNED_MOST: usize = 192 << 20;

/// Columns and channels that a block turns.
const TILE: usize = 32;

/// A filter's gradient that is taken this way.
pub(super) struct ChannelRows {
    kernel: [usize; 2],
    pads: [usize; 2],
    input: [usize; 3],
    output: [usize; 3],
    rows: usize,
}

impl ChannelRows {
    /// The gradient of a convolution's filter, where it is one that gains.
    pub(super) fn of(
        conv: &Conv2D,
        input: [usize; 3],
        output: [usize; 3],
        rows: usize,
        dtype: DType,
    ) -> Option<ChannelRows> {
        let Conv2D { kernel, strides, dilation, groups, pads } = conv;
        let plain = *strides == [1, 1] && *dilation == [1, 1] && *groups == 1 && kernel[1] <= 5;
        let rows = ChannelRows { kernel: *kernel, pads: [pads.top, pads.left], input, output, rows };
        let products = output.iter().product::<usize>() * input[2];
        let gains = PRODUCTS_LEAST * rows.turned() <= products;
        (dtype == DType::F32 && plain && *kernel != [1, 1] && gains).then_some(rows)
    }

    /// Lines and columns of a frame: those of the result, with as many lines more as the filter reaches down.
    fn frame(&self) -> [usize; 2] {
        [self.output[0] + self.kernel[0] - 1, self.output[1].next_multiple_of(4)]
    }

    /// Numbers of an image and its gradient when they are turned.
    fn turned(&self) -> usize {
        let [height, width] = self.frame();
        height * width * (self.kernel[1] * self.input[2] + self.output[2])
    }

    /// Images that are turned at once, by their shape alone but for the last.
    fn at_once(&self) -> usize {
        (TURNED_MOST / (self.turned() * size_of::<f32>())).clamp(1, self.rows.max(1))
    }

    pub(super) fn grad_kernel(&self, call: &Call<'_>) -> Lowered {
        let (x, dy, dkernel) = (call.input(0), call.input(1), call.update(0));
        let ([taps_down, taps_right], [height, width]) = (self.kernel, self.frame());
        let ([.., channels], [.., filters]) = (self.input, self.output);
        let (at_once, bytes) = (self.at_once(), |floats: usize| Bytes::of::<f32>(floats));
        let pitch = at_once * height * width;
        let mut lowered = Lowered::default();
        let x_rows = lowered.scratch(bytes(taps_right * channels * pitch));
        let dy_rows = lowered.scratch(bytes(filters * pitch));
        for first in (0..self.rows).step_by(at_once) {
            let images = at_once.min(self.rows - first);
            let image = |of: [usize; 3]| bytes(first * of.iter().product::<usize>());
            let from = x.address().behind(image(self.input));
            lowered.kernel(self.turn(images, self.input, self.pads, taps_right, [from, x_rows]));
            let from = dy.address().behind(image(self.output));
            lowered.kernel(self.turn(images, self.output, [0, 0], 1, [from, dy_rows]));
            for down in 0..taps_down {
                // The last lines of the last frame have no gradient, and are where a tap further down would end.
                let k = images * height * width - (taps_down - 1) * width;
                let line = x_rows.behind(bytes(down * width));
                let to = dkernel.address().behind(bytes(down * taps_right * channels * filters));
                let sizes = Sizes { m: taps_right * channels, n: filters, k };
                let product = sizes.product(DType::F32, DType::F32, [line, dy_rows, to]);
                let adds = !call.fresh || first != 0;
                let pitches = Some([pitch, pitch]);
                lowered.work.push(Work::Product(Product { transpose_b: true, adds, pitches, ..product }));
            }
        }
        lowered
    }

    /// Turns images into frames, in so many copies.
    fn turn(
        &self,
        images: usize,
        [height, width, channels]: [usize; 3],
        [top, left]: [usize; 2],
        copies: usize,
        [from, to]: [Address; 2],
    ) -> Kernel {
        let [frame_height, frame_width] = self.frame();
        let blocks = [images * frame_height * frame_width.div_ceil(TILE), channels.div_ceil(TILE), 1];
        let pitch = self.at_once() * frame_height * frame_width;
        let mut arguments = vec![Argument::At(from), Argument::At(to)];
        arguments.extend([height, width, channels, top, left, frame_height, frame_width].map(int));
        arguments.push(long(pitch));
        Kernel {
            source: Source {
                text: TEXT,
                defines: format!("#define COPIES {copies}\n#define THREADS {THREADS}\n"),
            },
            entry: "channel_rows",
            blocks: blocks.map(|count| u32::try_from(count).expect("a batch has few enough lines")),
            threads: THREADS,
            arguments,
        }
    }
}
