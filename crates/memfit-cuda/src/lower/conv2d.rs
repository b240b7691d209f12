//! Convolutions by the convolution library.
//!
//! Filters are f32 and `[h, w, in, out]` in the graph; the library needs `[out, h, w, in]` in the type of the
//! images, so they are converted in the workspace, once for every launch: a filter is small beside its
//! images. A filter of one pixel is a matrix product, which takes it as it stands. Margins that are not the
//! same on both sides are put around a copy of the image, and f16 or bf16 images with fewer than eight
//! channels are padded with zeros.

use memfit_ir::Operand::{Bias, DKernel, Dx, Dy, X, Y};
use memfit_ir::{Bytes, Conv2D, DType, Shape};

use super::dense::{Sizes, as_type};
use super::few_channels::Few;
use super::few_tensor_cores::FewOnTensorCores;
use super::moves::source;
use super::scaled;
use crate::call::{Call, Name, Operand, THREADS, blocks_for, int, long, pack_width};
use crate::work::{Address, Argument, Convolution, Kernel, Lowered, Pass, Product, Work};

/// Elements of an image tensor that the library can count.
const ELEMENTS_MOST: usize = (1 << 31) - 1;

/// `y = x ∗ kernel + bias`, with a ReLU where `relu`.
pub(super) fn forward(call: &Call<'_>, conv: &Conv2D, relu: bool) -> Lowered {
    let (x, kernel, y) = (call.input(X), call.input(Name::Kernel), call.output(Y));
    let geometry = Geometry::new(conv, x.shape(), y.shape(), call.rows).widened(x.dtype());
    let bias = call.input_if_given(Bias);
    let mut lowered = Lowered::default();
    if geometry.is_product() {
        let b = as_type(&mut lowered, kernel, x.dtype());
        let bias = bias.map(|bias| as_type(&mut lowered, bias, y.dtype()));
        let product = geometry.sizes().product(x.dtype(), y.dtype(), [x.address(), b, y.address()]);
        lowered.work.push(Work::Product(Product { bias, ..product }));
        if relu {
            lowered.kernel(finish(None, y, true));
        }
        return lowered;
    }
    if let Some(few) = FewOnTensorCores::of(call, conv, [geometry.input, geometry.output], x.dtype()) {
        return few.forward(call, relu);
    }
    if let Some(few) = geometry.few(x.dtype()) {
        return few.forward(call, relu);
    }
    let filter = geometry.filter_to_library(&mut lowered, kernel, x.dtype());
    let padded = geometry.padded(&mut lowered, x.address(), x.dtype());
    let mut calls = geometry.work(Pass::Forward, x.dtype(), [padded, filter, y.address()]);
    if bias.is_none() && !relu {
        lowered.work.extend(calls);
        return lowered;
    }
    let kernel = finish(bias, y, relu);
    // One call may add the bias by itself; of several, each might choose another algorithm.
    if let [Work::Convolution(only)] = &mut calls[..] {
        only.bias = bias.map(|bias| as_type(&mut lowered, bias, y.dtype()));
        only.relu = relu;
        lowered.work.extend(calls);
        lowered.work.push(Work::Finish(kernel));
    } else {
        lowered.work.extend(calls);
        lowered.kernel(kernel);
    }
    lowered
}

/// A kernel that adds a bias to every pixel, where there is one, and applies a ReLU where `relu`.
fn finish(bias: Option<Operand<'_>>, y: Operand<'_>, relu: bool) -> Kernel {
    let channels = y.shape().last();
    let width = pack_width(channels, y.dtype());
    let mut source = source(DType::F32, y.dtype());
    let function = if relu { "f_relu" } else { "" };
    source.defines += &format!("#define WIDTH {width}\n#define FUNCTION {function}\n");
    Kernel {
        source,
        entry: "finish_pixels",
        blocks: blocks_for((y.elements / width).div_ceil(2).max(channels)),
        threads: THREADS,
        arguments: vec![
            y.pointer(),
            bias.map_or(Argument::Null, |bias| bias.pointer()),
            long(y.elements / width),
            int(channels / width),
        ],
    }
}

/// The gradient of the input.
pub(super) fn grad_input(call: &Call<'_>, conv: &Conv2D) -> Lowered {
    let (dy, kernel, dx) = (call.input(Dy), call.input(Name::Kernel), call.output(Dx));
    let geometry = Geometry::new(conv, dx.shape(), dy.shape(), call.rows);
    let mut lowered = Lowered::default();
    if geometry.is_product() {
        let b = as_type(&mut lowered, kernel, dy.dtype());
        let Sizes { m, n, k } = geometry.sizes();
        let product =
            Sizes { m, n: k, k: n }.product(dy.dtype(), dx.dtype(), [dy.address(), b, dx.address()]);
        lowered.work.push(Work::Product(Product { transpose_b: true, ..product }));
        return lowered;
    }
    let filter = geometry.filter_to_library(&mut lowered, kernel, dy.dtype());
    let Some(bytes) = geometry.padded_bytes(dx.dtype()) else {
        lowered.work.extend(geometry.work(Pass::Input, dy.dtype(), [dx.address(), filter, dy.address()]));
        return lowered;
    };
    let padded = lowered.scratch(bytes);
    lowered.work.extend(geometry.work(Pass::Input, dy.dtype(), [padded, filter, dy.address()]));
    lowered.kernel(geometry.margins("crop_image", dx.dtype(), [padded, dx.address()], dx.elements));
    lowered
}

/// The gradient of the kernel, added to what is there.
pub(super) fn grad_kernel(call: &Call<'_>, conv: &Conv2D) -> Lowered {
    let (x, dy, dkernel) = (call.input(X), call.input(Dy), call.update(DKernel));
    let geometry = Geometry::new(conv, x.shape(), dy.shape(), call.rows).widened(x.dtype());
    let mut lowered = Lowered::default();
    if geometry.is_product() {
        let Sizes { m, n, k } = geometry.sizes();
        let addresses = [x.address(), dy.address(), dkernel.address()];
        let product = Sizes { m: k, n, k: m }.product(x.dtype(), dkernel.dtype(), addresses);
        lowered.work.push(Work::Product(Product { transpose_a: true, adds: !call.overwrite, ..product }));
        return lowered;
    }
    // For f16 and bf16 the library takes half of the time.
    let few = FewOnTensorCores::of(call, conv, [geometry.input, geometry.output], x.dtype());
    if let Some(few) = few.filter(|_| x.dtype() == DType::F32) {
        return few.grad_kernel(call);
    }
    if let Some(few) = geometry.few(x.dtype()) {
        return few.grad_kernel(call);
    }
    if let Some(lowered) = scaled::grad_kernel(call, &geometry) {
        return lowered;
    }
    let dfilter = lowered.scratch(Bytes(x.dtype().size()) * geometry.filter_elements() as u64);
    let padded = geometry.padded(&mut lowered, x.address(), x.dtype());
    lowered.work.extend(geometry.work(Pass::Filter, x.dtype(), [padded, dfilter, dy.address()]));
    let (from, to) = (Argument::At(dfilter), dkernel.pointer());
    let mut arguments = geometry.filter_arguments(from, to);
    arguments.push(call.overwrite());
    lowered.kernel(Kernel {
        source: source(x.dtype(), dkernel.dtype()),
        entry: "filter_from_library",
        blocks: blocks_for(dkernel.elements / 4),
        threads: THREADS,
        arguments,
    });
    lowered
}

/// A convolution between two images.
pub(super) struct Geometry<'a> {
    pub(super) conv: &'a Conv2D,
    pub(super) rows: usize,
    pub(super) input: [usize; 3],
    pub(super) output: [usize; 3],
    /// Channels of the image as the library gets it: for f16 and bf16, its fast kernels take eight at once.
    wide: usize,
}

/// Channels that the library's kernels for f16 and bf16 take at once.
const EIGHT: usize = 8;

impl<'a> Geometry<'a> {
    fn new(conv: &'a Conv2D, input: &Shape, output: &Shape, rows: usize) -> Geometry<'a> {
        let image = |shape: &Shape| -> [usize; 3] {
            shape.dims[..].try_into().expect("the shape rules ask for images of three dimensions")
        };
        let input = image(input);
        Geometry { conv, rows, input, output: image(output), wide: input[2] }
    }

    /// The same for other rows.
    pub(super) fn of_rows(&self, rows: usize) -> Geometry<'a> {
        Geometry { rows, ..*self }
    }

    /// The same for an image of this type whose channels may be padded with zeros.
    fn widened(self, dtype: DType) -> Geometry<'a> {
        let gains = dtype.size() == 2 && self.conv.groups == 1 && self.input[2] < EIGHT && !self.is_product();
        Geometry { wide: if gains { EIGHT } else { self.wide }, ..self }
    }

    /// The convolution of few channels that it is, where it is one.
    fn few(&self, dtype: DType) -> Option<Few<'_>> {
        Few::of(self.conv, self.input, self.output, self.rows, dtype)
    }

    /// Whether every pixel is a product of its own.
    fn is_product(&self) -> bool {
        let Conv2D { kernel, strides, groups, pads, .. } = self.conv;
        let margins = [pads.top, pads.bottom, pads.left, pads.right];
        *kernel == [1, 1] && *strides == [1, 1] && *groups == 1 && margins == [0; 4]
    }

    /// That product.
    fn sizes(&self) -> Sizes {
        let [height, width, k] = self.input;
        Sizes { m: self.rows * height * width, n: self.output[2], k }
    }

    /// Height and width of the filter together, input channels of a group, and output channels.
    pub(super) fn filter(&self) -> [usize; 3] {
        let [height, width] = self.conv.kernel;
        [height * width, self.input[2] / self.conv.groups, self.output[2]]
    }

    fn filter_arguments(&self, from: Argument, to: Argument) -> Vec<Argument> {
        let mut arguments = vec![from, to];
        arguments.extend(self.filter().map(long));
        arguments.push(long(self.wide / self.conv.groups));
        arguments
    }

    /// Elements of the filter as the library has it.
    fn filter_elements(&self) -> usize {
        let [taps, _, out] = self.filter();
        taps * self.wide / self.conv.groups * out
    }

    /// The filter in the library's layout.
    fn filter_to_library(&self, lowered: &mut Lowered, kernel: Operand<'_>, dtype: DType) -> Address {
        let count = self.filter_elements();
        let to = lowered.scratch(Bytes(dtype.size()) * count as u64);
        lowered.kernel(Kernel {
            source: source(kernel.dtype(), dtype),
            entry: "filter_to_library",
            blocks: blocks_for(count / 4),
            threads: THREADS,
            arguments: self.filter_arguments(kernel.pointer(), Argument::At(to)),
        });
        to
    }

    /// Height and width of the image with its margins, where those are not the same on both sides.
    pub(super) fn padded_size(&self) -> Option<[usize; 2]> {
        let pads = self.conv.pads;
        let [height, width, _] = self.input;
        let uneven = pads.top != pads.bottom || pads.left != pads.right;
        uneven.then(|| [pads.top + height + pads.bottom, pads.left + width + pads.right])
    }

    fn padded_bytes(&self, dtype: DType) -> Option<Bytes> {
        let [height, width] = self.padded_size()?;
        Some(Bytes(dtype.size()) * (self.rows * height * width * self.wide) as u64)
    }

    /// The image with even margins: as it stands, or a copy with its uneven ones around it.
    fn padded(&self, lowered: &mut Lowered, x: Address, dtype: DType) -> Address {
        let Some(bytes) = self.padded_bytes(dtype) else { return self.with_channels(lowered, x, dtype) };
        let to = lowered.scratch(bytes);
        let count = bytes.0 / dtype.size();
        let count = usize::try_from(count).expect("a tensor's elements can be counted");
        lowered.kernel(self.margins("pad_image", dtype, [x, to], count));
        to
    }

    /// The image with as many channels as the library gets.
    fn with_channels(&self, lowered: &mut Lowered, x: Address, dtype: DType) -> Address {
        let [height, width, channels] = self.input;
        if self.wide == channels {
            return x;
        }
        let pixels = self.rows * height * width;
        let to = lowered.scratch(Bytes(dtype.size()) * (pixels * self.wide) as u64);
        lowered.kernel(Kernel {
            source: source(dtype, dtype),
            entry: "eight_channels",
            blocks: blocks_for(pixels),
            threads: THREADS,
            arguments: vec![Argument::At(x), Argument::At(to), long(pixels), int(channels)],
        });
        to
    }

    /// A kernel that puts margins around an image, or takes them off.
    fn margins(&self, entry: &'static str, dtype: DType, [from, to]: [Address; 2], count: usize) -> Kernel {
        let [height, width] = self.padded_size().unwrap_or([self.input[0], self.input[1]]);
        let mut arguments = vec![Argument::At(from), Argument::At(to), long(count)];
        let pads = self.conv.pads;
        let [inner_height, inner_width, channels] = self.input;
        let sizes = [height, width, self.wide, pads.top, pads.left, inner_height, inner_width, channels];
        arguments.extend(sizes.map(int));
        Kernel { source: source(dtype, dtype), entry, blocks: blocks_for(count), threads: THREADS, arguments }
    }

    /// Calls of the library, each of fewer elements than it can count; parts of a filter's gradient add up.
    pub(super) fn work(&self, pass: Pass, dtype: DType, [x, filter, y]: [Address; 3]) -> Vec<Work> {
        let pads = self.conv.pads;
        let (input, pads) = match self.padded_size() {
            Some([height, width]) => ([height, width, self.wide], [0, 0]),
            None => ([self.input[0], self.input[1], self.wide], [pads.top, pads.left]),
        };
        let Conv2D { kernel, strides, dilation, groups, .. } = *self.conv;
        let output = self.output;
        let row = |image: [usize; 3]| image.iter().product::<usize>().max(1);
        let rows_at_once = (ELEMENTS_MOST / row(input).max(row(output))).max(1);
        let bytes = |image: [usize; 3], rows: usize| Bytes(dtype.size()) * (row(image) * rows) as u64;
        (0..self.rows)
            .step_by(rows_at_once)
            .map(|first| {
                Work::Convolution(Convolution {
                    pass,
                    rows: rows_at_once.min(self.rows - first),
                    input,
                    output,
                    kernel,
                    strides,
                    dilation,
                    groups,
                    pads,
                    dtype,
                    x: x.offset(bytes(input, first)),
                    filter,
                    y: y.offset(bytes(output, first)),
                    bias: None,
                    relu: false,
                    adds: pass == Pass::Filter && first != 0,
                })
            })
            .collect()
    }
}
