//! Images changed at random.

use memfit_ir::Operand::{X, Y};
use memfit_ir::{Augment, Bytes, Change, Fill, Interpolation, Sampling};

use crate::call::{Call, THREADS, blocks_for, int, long};
use crate::work::{Argument, Kernel, Lowered, Source};

use super::noise::sequence;

const TEXT: &str = include_str!("../kernels/augment.cu");

/// A change as the kernel takes it.
struct Numbers {
    name: &'static str,
    a: [f32; 2],
    b: [f32; 2],
    flags: i32,
    sampling: Sampling,
}

fn numbers(change: &Change) -> Numbers {
    let none = Sampling { interpolation: Interpolation::Nearest, fill: Fill::Nearest };
    let of = |name, a, b, flags, sampling| Numbers { name, a, b, flags, sampling };
    match *change {
        Change::Flip { horizontal, vertical } => {
            of("FLIP", [0.0; 2], [0.0; 2], i32::from(horizontal) + 2 * i32::from(vertical), none)
        }
        Change::Crop { .. } => of("CROP", [0.0; 2], [0.0; 2], 0, none),
        Change::Rotate { turns, sampling } => of("ROTATE", turns, [0.0; 2], 0, sampling),
        Change::Translate { height, width, sampling } => of("TRANSLATE", height, width, 0, sampling),
        Change::Zoom { height, width, sampling } => {
            of("ZOOM", height, width.unwrap_or([0.0; 2]), i32::from(width.is_some()), sampling)
        }
        Change::Contrast { factor, range } => of("CONTRAST", factor, range, 0, none),
        Change::Brightness { share, range } => of("BRIGHTNESS", share, range, 0, none),
    }
}

/// Changes every image.
pub(super) fn augment(call: &Call<'_>, augment: &Augment) -> Lowered {
    let (x, y) = (call.input(X), call.output(Y));
    let Numbers { name, a, b, flags, sampling } = numbers(&augment.change);
    let (fill, outside) = match sampling.fill {
        Fill::Constant(value) => ("FILL_CONSTANT", value),
        Fill::Nearest => ("FILL_NEAREST", 0.0),
        Fill::Reflect => ("FILL_REFLECT", 0.0),
        Fill::Wrap => ("FILL_WRAP", 0.0),
    };
    let interpolation = match sampling.interpolation {
        Interpolation::Nearest => 0,
        Interpolation::Bilinear => 1,
    };
    let defines = format!(
        "typedef {} X;\n#define CHANGE {name}\n#define INTERPOLATION {interpolation}\n#define FILL {fill}\n",
        x.c_type()
    );
    let source = Source { text: TEXT, defines };
    let [height, width, channels] = x.dims()[..] else { panic!("the shape rules let only images in") };
    let mut lowered = Lowered::default();
    let mut means = x.pointer();
    if matches!(augment.change, Change::Contrast { .. }) {
        means = Argument::At(lowered.scratch(Bytes::of::<f32>(call.rows * channels)));
        let blocks = u32::try_from(call.rows * channels).expect("a grid has more blocks");
        lowered.kernel(Kernel {
            source: source.clone(),
            entry: "augment_means",
            blocks: [blocks, 1, 1],
            threads: THREADS,
            arguments: vec![x.pointer(), means, long(height * width), long(channels)],
        });
    }
    let mut arguments = vec![x.pointer(), y.pointer(), means, Argument::Context, long(y.elements)];
    arguments.extend([height, width, channels, y.dims()[0], y.dims()[1]].map(int));
    arguments.extend([long(call.row_start), sequence(augment.seed)]);
    arguments.extend([a[0], a[1], b[0], b[1], outside].map(Argument::Float));
    arguments.push(Argument::Int(flags));
    let blocks = blocks_for(y.elements);
    lowered.kernel(Kernel { source, entry: "augment", blocks, threads: THREADS, arguments });
    lowered
}
