//! Convolution over volumes as matrix products over some windows at a time: what a window sees is gathered
//! into the workspace. Groups are zeros between channels that do not meet. Backward, each place gathers from
//! the windows that saw it, so that no two threads add to one.

use memfit_ir::Operand::{Bias, DKernel, Dx, Dy, X, Y};
use memfit_ir::{Bytes, Conv3D, DType, Shape};

use super::dense::{Sizes, as_type};
use crate::call::{Call, Name, Operand, THREADS, blocks_for, int, long};
use crate::work::{Address, Argument, Kernel, Lowered, Product, Source, Work};

const TEXT: &str = include_str!("../kernels/conv3d.cu");

/// About the bytes of windows that are gathered at once.
const GATHERED: Bytes = Bytes::mib(64);

/// Parts begin at multiples of this many windows, which aligns the operands of the products.
const TOGETHER: usize = 128;

/// A convolution between two volumes.
struct Geometry<'a> {
    conv: &'a Conv3D,
    rows: usize,
    /// Depth, height, width and channels.
    input: [usize; 4],
    output: [usize; 4],
    source: Source,
    dtype: DType,
}

impl<'a> Geometry<'a> {
    fn new(call: &Call<'_>, conv: &'a Conv3D, [input, output, kernel]: [Operand<'_>; 3]) -> Geometry<'a> {
        let volume = |shape: &Shape| -> [usize; 4] {
            shape.dims[..].try_into().expect("the shape rules ask for volumes of four axes")
        };
        let defines = format!("typedef {} X;\ntypedef {} W;\n", input.c_type(), kernel.c_type());
        Geometry {
            conv,
            rows: call.rows,
            input: volume(input.shape()),
            output: volume(output.shape()),
            source: Source { text: TEXT, defines },
            dtype: input.dtype(),
        }
    }

    fn taps(&self) -> usize {
        self.conv.kernel.iter().product()
    }

    fn kernel(&self, entry: &'static str, items: usize, arguments: Vec<Argument>) -> Kernel {
        Kernel { source: self.source.clone(), entry, blocks: blocks_for(items), threads: THREADS, arguments }
    }

    /// The kernel as products take it, backwards where gradients of the input are wanted.
    fn spread(&self, lowered: &mut Lowered, kernel: Operand<'_>, back: bool) -> Address {
        let (ins, outs) = (self.input[3], self.output[3]);
        let count = self.taps() * ins * outs;
        let to = lowered.scratch(Bytes(self.dtype.size()) * count as u64);
        let mut arguments = vec![kernel.pointer(), Argument::At(to), long(count)];
        arguments.extend([int(ins), int(outs), int(self.conv.groups), Argument::Int(i32::from(back))]);
        lowered.kernel(self.kernel("spread_kernel", count, arguments));
        to
    }

    /// Gathers what windows see of `read`, or what places receive from it, and calls back for each product:
    /// the first of the windows, how many, and where they are.
    fn for_each_part(
        &self,
        lowered: &mut Lowered,
        x: Address,
        back: bool,
        mut product: impl FnMut(&mut Lowered, usize, usize, Address),
    ) {
        let (read, counted) = if back { (self.output, self.input) } else { (self.input, self.output) };
        let line = self.taps() * read[3];
        let windows = self.rows * counted[..3].iter().product::<usize>();
        let most = usize::try_from(GATHERED.0 / self.dtype.size()).unwrap_or(usize::MAX) / line.max(1);
        let at_once = windows.min((most / TOGETHER * TOGETHER).max(TOGETHER));
        let patches = lowered.scratch(Bytes(self.dtype.size()) * (at_once * line) as u64);
        let Conv3D { kernel, strides, dilation, pads, .. } = self.conv;
        let sizes = read.into_iter().chain([counted[0], counted[1], counted[2]]);
        let taps = [*kernel, *strides, *dilation, pads.map(|[before, _]| before)];
        let sizes: Vec<Argument> = sizes.chain(taps.into_iter().flatten()).map(int).collect();
        for first in (0..windows).step_by(at_once.max(1)) {
            let count = at_once.min(windows - first);
            let mut arguments = vec![Argument::At(x), Argument::At(patches), long(first), long(count)];
            arguments.extend(&sizes);
            let entry = if back { "gather_places" } else { "gather_windows" };
            lowered.kernel(self.kernel(entry, count * line, arguments));
            product(lowered, first, count, patches);
        }
    }

    /// Bytes of `windows` windows of a volume with `channels` channels.
    fn bytes(&self, windows: usize, channels: usize) -> Bytes {
        Bytes(self.dtype.size()) * (windows * channels) as u64
    }
}

/// `y = x ∗ kernel + bias`.
pub(super) fn forward(call: &Call<'_>, conv: &Conv3D) -> Lowered {
    let (x, kernel, y) = (call.input(X), call.input(Name::Kernel), call.output(Y));
    let geometry = Geometry::new(call, conv, [x, y, kernel]);
    let mut lowered = Lowered::default();
    let b = geometry.spread(&mut lowered, kernel, false);
    let bias = call.input_if_given(Bias).map(|bias| as_type(&mut lowered, bias, y.dtype()));
    let (k, n) = (geometry.taps() * geometry.input[3], geometry.output[3]);
    geometry.for_each_part(&mut lowered, x.address(), false, |lowered, first, m, patches| {
        let to = y.address().offset(geometry.bytes(first, n));
        let product = Sizes { m, n, k }.product(x.dtype(), y.dtype(), [patches, b, to]);
        lowered.work.push(Work::Product(Product { bias, ..product }));
    });
    lowered
}

/// The gradient of the input.
pub(super) fn grad_input(call: &Call<'_>, conv: &Conv3D) -> Lowered {
    let (dy, kernel, dx) = (call.input(Dy), call.input(Name::Kernel), call.output(Dx));
    let geometry = Geometry::new(call, conv, [dx, dy, kernel]);
    let mut lowered = Lowered::default();
    let b = geometry.spread(&mut lowered, kernel, true);
    let (k, n) = (geometry.taps() * geometry.output[3], geometry.input[3]);
    geometry.for_each_part(&mut lowered, dy.address(), true, |lowered, first, m, patches| {
        let to = dx.address().offset(geometry.bytes(first, n));
        let product = Sizes { m, n, k }.product(dy.dtype(), dx.dtype(), [patches, b, to]);
        lowered.work.push(Work::Product(product));
    });
    lowered
}

/// The gradient of the kernel, added to what is there.
pub(super) fn grad_kernel(call: &Call<'_>, conv: &Conv3D) -> Lowered {
    let (x, dy, dkernel) = (call.input(X), call.input(Dy), call.update(DKernel));
    let geometry = Geometry::new(call, conv, [x, dy, dkernel]);
    let (m, n) = (geometry.taps() * geometry.input[3], geometry.output[3]);
    let mut lowered = Lowered::default();
    // Between groups there are gradients that are not used.
    let full = (conv.groups != 1).then(|| lowered.scratch(Bytes::of::<f32>(m * n)));
    let to = full.unwrap_or(dkernel.address());
    geometry.for_each_part(&mut lowered, x.address(), false, |lowered, first, k, patches| {
        let from = dy.address().offset(geometry.bytes(first, n));
        let product = Sizes { m, n, k }.product(x.dtype(), DType::F32, [patches, from, to]);
        let adds = first != 0 || (full.is_none() && !call.overwrite);
        lowered.work.push(Work::Product(Product { transpose_a: true, adds, ..product }));
    });
    if let Some(full) = full {
        let count = dkernel.elements;
        let mut arguments = vec![Argument::At(full), dkernel.pointer(), long(count)];
        arguments.extend([int(geometry.input[3]), int(n), int(conv.groups), call.overwrite()]);
        lowered.kernel(geometry.kernel("pick_kernel", count, arguments));
    }
    lowered
}
