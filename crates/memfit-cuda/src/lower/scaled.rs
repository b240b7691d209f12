//! The gradient of a filter in TF32, by way of f16. Tensor cores take f16 as it lies in memory, but TF32 only
//! with the numbers of a sum side by side, which an image's are not, so that the library is slow there. An
//! f16 number has as many significant bits as TF32. It lacks the range, so each channel is scaled by a power
//! of two, which is divided out when the sums are added to the gradient.

use memfit_ir::Operand::{DKernel, Dy, X};
use memfit_ir::{Bytes, Conv2D, DType};

use super::conv2d::Geometry;
use crate::call::{Call, THREADS, blocks_for, int, long};
use crate::work::{Address, Argument, Kernel, Lowered, Pass, Source, Work};

const TEXT: &str = include_str!("../kernels/scaled.cu");

/// Products for each byte of both images from which on f16 is worth the passes that convert to it.
const FLOPS_PER_BYTE: usize = 250;

/// Bytes of f16 at once: of a large batch, some rows after the other.
const BYTES_AT_ONCE: usize = 80 << 20;

/// Pixels at once. Numbers are below one half, so that no sum of this many products exceeds the range of f16.
const PIXELS_AT_ONCE: usize = 1 << 17;

/// Channels that the library's kernels for f16 take at once.
const EIGHT: usize = 8;

/// The gradient of the kernel, added to what is there, where it pays to compute it so.
pub(super) fn grad_kernel(call: &Call<'_>, geometry: &Geometry<'_>) -> Option<Lowered> {
    let (x, dy, dkernel) = (call.input(X), call.input(Dy), call.update(DKernel));
    let at_once = if call.tf32 && x.dtype() == DType::F32 { rows_at_once(geometry)? } else { return None };
    let [input, output] = [geometry.input, geometry.output];
    let row = |image: [usize; 3]| image.iter().product::<usize>();
    let mut lowered = Lowered::default();
    let half = |elements: usize| Bytes(DType::F16.size()) * elements as u64;
    let half_x = lowered.scratch(half(at_once * row(input)));
    let half_dy = lowered.scratch(half(at_once * row(output)));
    let dfilter = lowered.scratch(half(dkernel.elements));
    let bytes_most = Bytes::of::<u32>(input[2] + output[2]);
    let most_x = lowered.scratch(bytes_most);
    let most_dy = most_x.offset(Bytes::of::<u32>(input[2]));
    for first in (0..call.rows).step_by(at_once) {
        let rows = at_once.min(call.rows - first);
        let part = geometry.of_rows(rows);
        let start = |image: [usize; 3]| Bytes::of::<f32>(first * row(image));
        lowered.work.push(Work::Zero { to: most_x, bytes: bytes_most });
        for (from, image, most, to) in [
            (x.address().offset(start(input)), input, most_x, half_x),
            (dy.address().offset(start(output)), output, most_dy, half_dy),
        ] {
            lowered.kernel(channel_most(from, most, rows * image[0] * image[1], image[2]));
            lowered.kernel(scaled_f16([from, to, most], rows * row(image), image[2]));
        }
        lowered.work.extend(part.work(Pass::Filter, DType::F16, [half_x, dfilter, half_dy]));
        let overwrite = if first == 0 { call.overwrite() } else { Argument::Int(0) };
        let arguments =
            [Argument::At(dfilter), dkernel.pointer(), Argument::At(most_x), Argument::At(most_dy)];
        let sizes = geometry.filter().map(int);
        lowered.kernel(Kernel {
            source: source(None),
            entry: "filter_from_scaled",
            blocks: blocks_for(dkernel.elements / 4),
            threads: THREADS,
            arguments: arguments.into_iter().chain(sizes).chain([overwrite]).collect(),
        });
    }
    Some(lowered)
}

/// Rows that are converted at once, where the gradient is faster by way of f16.
fn rows_at_once(geometry: &Geometry<'_>) -> Option<usize> {
    let Geometry { conv: Conv2D { kernel, groups, .. }, rows, input, output, .. } = *geometry;
    let suits = *groups == 1 && input[2].is_multiple_of(EIGHT) && output[2].is_multiple_of(EIGHT);
    let elements = input.iter().product::<usize>() + output.iter().product::<usize>();
    let flops = 2 * kernel[0] * kernel[1] * input[2] * output.iter().product::<usize>();
    if !suits || geometry.padded_size().is_some() || flops < FLOPS_PER_BYTE * 4 * elements {
        return None;
    }
    let fits =
        |rows: usize| rows * elements * 2 <= BYTES_AT_ONCE && rows * output[0] * output[1] <= PIXELS_AT_ONCE;
    let mut at_once = rows.max(1);
    while 1 < at_once && !fits(at_once) {
        at_once = at_once.div_ceil(2);
    }
    (output[0] * output[1] <= PIXELS_AT_ONCE).then_some(at_once)
}

/// A kernel for the largest magnitude of every channel.
fn channel_most(from: Address, most: Address, pixels: usize, channels: usize) -> Kernel {
    let packs = channels / 4;
    let of_block = packs.min(64);
    let (groups, lanes) = (packs.div_ceil(of_block), THREADS as usize / of_block);
    let blocks = pixels.div_ceil(lanes * 16).clamp(1, (1056 / groups).max(1));
    let count = |count: usize| u32::try_from(count).expect("there are few blocks");
    Kernel {
        source: source(Some(of_block)),
        entry: "channel_most",
        blocks: [count(groups), count(blocks), 1],
        threads: THREADS,
        arguments: vec![Argument::At(from), Argument::At(most), long(pixels), int(packs)],
    }
}

/// A kernel that scales and converts to f16.
fn scaled_f16([from, to, most]: [Address; 3], elements: usize, channels: usize) -> Kernel {
    let count = elements / EIGHT;
    Kernel {
        source: source(None),
        entry: "scaled_f16",
        blocks: blocks_for(count),
        threads: THREADS,
        arguments: vec![
            Argument::At(from),
            Argument::At(to),
            Argument::At(most),
            long(count),
            int(channels / EIGHT),
        ],
    }
}

fn source(packs: Option<usize>) -> Source {
    let defines = packs.map_or_else(String::new, |packs| format!("#define PACKS {packs}\n"));
    Source { text: TEXT, defines }
}
