//! Optimizers that need sums over the whole weight before they change it: Lamb and Adafactor.

use memfit_ir::Operand::Weight;
use memfit_ir::{Bytes, Update, UpdateRule};

use super::elementwise::number;
use super::sums::{PARTS, part_blocks};
use super::update::{defines, operands};
use crate::call::{Call, THREADS, blocks_for, long};
use crate::work::{Argument, Kernel, Lowered, Source};

const TEXT: &str = include_str!("../kernels/whole_update.cu");

/// Adam's step, as large as the weight it changes: one pass moves the means and takes both norms, a second
/// moves the weight.
pub(super) fn lamb(call: &Call<'_>, update: &Update, [beta_1, beta_2, epsilon]: [f32; 3]) -> Lowered {
    let numbers = [("BETA_1", beta_1), ("BETA_2", beta_2), ("EPSILON", epsilon)];
    let mut steps = Steps::new(call, update, 0, &numbers);
    let (blocks, parts) = steps.parts();
    steps.launch("means", blocks, THREADS, &[parts]);
    steps.launch("apply", steps.blocks(), THREADS, &[parts, Argument::Int(blocks[0].cast_signed())]);
    steps.lowered
}

/// Means of squares over rows and over columns, and no matrix of them.
pub(super) fn adafactor(call: &Call<'_>, update: &Update) -> Lowered {
    let UpdateRule::Adafactor { beta_2_decay, epsilon_1, epsilon_2, clip_threshold, .. } = update.rule else {
        unreachable!("only Adafactor comes here");
    };
    let numbers = [
        ("BETA_2_DECAY", beta_2_decay),
        ("EPSILON_1", epsilon_1),
        ("EPSILON_2", epsilon_2),
        ("CLIP_THRESHOLD", clip_threshold),
    ];
    let matrices = match call.update(Weight).dims() {
        [outer @ .., rows, columns] => Some((outer.iter().product::<usize>(), *rows, *columns)),
        [] | [_] => None,
    };
    let mut steps = Steps::new(call, update, if matrices.is_some() { 2 } else { 1 }, &numbers);
    let (blocks, parts) = steps.parts();
    steps.launch("weight_squares", blocks, THREADS, &[parts]);
    let mut rest = [Argument::Null, long(1), long(1)];
    if let Some((count, rows, columns)) = matrices {
        let means = Argument::At(steps.lowered.scratch(Bytes::of::<f64>(count)));
        let lines = count * rows;
        steps.launch("row_means", blocks_for(lines * 32), THREADS, &[long(lines), long(columns)]);
        let groups = grid(count * columns.div_ceil(32));
        steps.launch("column_means", groups, 1024, &[long(rows), long(columns)]);
        steps.launch("matrix_means", grid(count), THREADS, &[means, long(rows)]);
        rest = [means, long(rows), long(columns)];
    }
    steps.launch("step_squares", blocks, THREADS, &[&[parts], &rest[..]].concat());
    let count = Argument::Int(blocks[0].cast_signed());
    steps.launch("apply", steps.blocks(), THREADS, &[&[parts, count], &rest[..]].concat());
    steps.lowered
}

/// Kernels that all begin with the same operands.
struct Steps {
    lowered: Lowered,
    source: Source,
    operands: Vec<Argument>,
    elements: usize,
}

impl Steps {
    fn new(call: &Call<'_>, update: &Update, rule: usize, numbers: &[(&str, f32)]) -> Steps {
        let numbers: String =
            numbers.iter().map(|(name, value)| format!("#define {name} {}\n", number(*value))).collect();
        let defines = format!("{}#define RULE {rule}\n{numbers}", defines(update).0);
        let source = Source { text: TEXT, defines };
        let elements = call.update(Weight).elements;
        Steps { lowered: Lowered::default(), source, operands: operands(call), elements }
    }

    /// Blocks of a sum over all elements, and room for two parts of each.
    fn parts(&mut self) -> ([u32; 3], Argument) {
        let parts = self.lowered.scratch(Bytes::of::<f64>(2 * PARTS));
        (part_blocks(self.elements), Argument::At(parts))
    }

    /// Blocks of a pass over all elements.
    fn blocks(&self) -> [u32; 3] {
        blocks_for(self.elements)
    }

    fn launch(&mut self, entry: &'static str, blocks: [u32; 3], threads: u32, more: &[Argument]) {
        let arguments = [&self.operands, more].concat();
        self.lowered.kernel(Kernel { source: self.source.clone(), entry, blocks, threads, arguments });
    }
}

fn grid(blocks: usize) -> [u32; 3] {
    [u32::try_from(blocks.max(1)).expect("a weight has fewer columns"), 1, 1]
}
