//! Layer normalisation: a row is held in the registers of a warp or a block, and read again only where it is
//! too long for that.

use memfit_ir::Operand::{Beta, DBeta, DGamma, Dx, Dy, Gamma, Mean, Other, Rstd, X, Y};
use memfit_ir::{Bytes, Norm};

use crate::call::{Call, Operand, THREADS, int, long, pack_width};
use crate::work::{Argument, Kernel, Lowered, Source};

const TEXT: &str = include_str!("../kernels/layer_norm.cu");

/// Elements of a row that a thread holds, at most.
const HELD: usize = 32;
/// Threads of a row that is too long to be held.
const THREADS_LONG: u32 = 1024;
/// Threads that add up the parts of the columns.
const THREADS_SUMS: u32 = 1024;
const COLUMNS_SUMS: usize = 8;
/// Blocks of forward, at most.
const BLOCKS: usize = 2112;
/// Threads of a gradient, at most: several hundred on every multiprocessor. Each block leaves a part of the
/// sums for gamma and beta.
const THREADS_GRAD: usize = 101_376;

/// Normalises every position, and writes its mean and its rstd.
pub(super) fn forward(call: &Call<'_>, norm: &Norm, axes: usize) -> Lowered {
    let (x, y) = (call.input(X), call.output(Y));
    let rows = Rows::of(x, axes);
    let arguments = vec![
        x.pointer(),
        call.pointer_if_given(Gamma),
        call.pointer_if_given(Beta),
        y.pointer(),
        call.output(Mean).pointer(),
        call.output(Rstd).pointer(),
        long(rows.count),
        int(rows.packs),
        Argument::Float(norm.epsilon),
    ];
    rows.kernel("layer_norm", rows.source(x, false), rows.blocks(BLOCKS), arguments).into()
}

/// The gradient through normalised values, mean and deviation, and a further value where that is added; adds
/// those of gamma and beta.
pub(super) fn grad(call: &Call<'_>, axes: usize, plus: bool) -> Lowered {
    let (dy, x, dx) = (call.input(Dy), call.input(X), call.output(Dx));
    let (mean, rstd) = (call.input(Mean).pointer(), call.input(Rstd).pointer());
    let rows = Rows::of_grad(dy, axes);
    let has_weights = !call.node.updates.is_empty();
    let source = rows.source(dy, has_weights);
    let columns = rows.packs * rows.width;
    let mut lowered = Lowered::default();
    let blocks = rows.blocks(THREADS_GRAD / rows.threads());
    let parts_count = if rows.items == 0 { rows.count.clamp(1, 16) } else { blocks };
    let parts = if has_weights {
        Argument::At(lowered.scratch(Bytes::of::<f32>(2 * parts_count * columns)))
    } else {
        Argument::Null
    };
    let shape = [long(rows.count), int(rows.packs)];
    if has_weights && rows.items == 0 {
        let mut arguments = vec![dy.pointer(), x.pointer(), mean, rstd, parts];
        arguments.extend(shape);
        lowered.kernel(Kernel {
            source: source.clone(),
            entry: "weight_parts",
            blocks: [count(rows.packs.div_ceil(THREADS as usize)), count(parts_count), 1],
            threads: THREADS,
            arguments,
        });
    }
    let mut arguments = vec![dy.pointer(), x.pointer(), mean, rstd];
    let other = if plus { call.input(Other).pointer() } else { Argument::Null };
    arguments.extend([call.pointer_if_given(Gamma), other, dx.pointer(), parts]);
    arguments.extend(shape);
    lowered.kernel(rows.kernel("layer_norm_grad", source.clone(), blocks, arguments));
    if has_weights {
        let [dgamma, dbeta] = [DGamma, DBeta]
            .map(|operand| call.update_if_given(operand).map_or(Argument::Null, |sum| sum.pointer()));
        lowered.kernel(Kernel {
            source,
            entry: "weight_sums",
            blocks: [count(columns.div_ceil(COLUMNS_SUMS)), 2, 1],
            threads: THREADS_SUMS,
            arguments: vec![parts, int(parts_count), int(columns), dgamma, dbeta, call.overwrite()],
        });
    }
    lowered
}

/// Rows of the last axes, and how threads share them.
struct Rows {
    count: usize,
    /// Packs of a row, and elements of a pack.
    packs: usize,
    width: usize,
    /// Threads of a row.
    team: usize,
    /// Packs of a row that a thread holds; 0 where a row is too long.
    items: usize,
}

impl Rows {
    fn of(x: Operand<'_>, axes: usize) -> Rows {
        let dims = x.dims();
        let length = dims[dims.len() - axes..].iter().product::<usize>().max(1);
        let width = pack_width(length, x.dtype());
        let packs = length / width;
        let items = |team: usize| packs.div_ceil(team);
        let team = [32, 64, 128, 256].into_iter().find(|team| items(*team) * width <= HELD);
        let (team, items) = team.map_or((THREADS_LONG as usize, 0), |team| (team, items(team)));
        Rows { count: x.elements / length, packs, width, team, items }
    }

    /// For a gradient, which holds sums of every column beside values and `dy`: as few columns for each
    /// thread as possible.
    fn of_grad(x: Operand<'_>, axes: usize) -> Rows {
        let rows = Rows::of(x, axes);
        let team = rows.packs.next_multiple_of(32);
        if team <= THREADS as usize { Rows { team, items: 1, ..rows } } else { rows }
    }

    fn source(&self, x: Operand<'_>, has_weights: bool) -> Source {
        let Rows { width, team, items, .. } = self;
        let weights = u8::from(has_weights);
        let defines = format!(
            "typedef {} X;\n#define WIDTH {width}\n#define TEAM {team}\n#define ITEMS {items}\n#define WEIGHTS {weights}\n",
            x.c_type()
        );
        Source { text: TEXT, defines }
    }

    /// Threads of a block: teams of one warp share one.
    fn threads(&self) -> usize {
        if self.team == 32 { THREADS as usize } else { self.team }
    }

    /// Blocks for all rows, at most `most`.
    fn blocks(&self, most: usize) -> usize {
        self.count.div_ceil(self.threads() / self.team).clamp(1, most)
    }

    fn kernel(&self, entry: &'static str, source: Source, blocks: usize, arguments: Vec<Argument>) -> Kernel {
        Kernel { source, entry, blocks: [count(blocks), 1, 1], threads: count(self.threads()), arguments }
    }
}

fn count(count: usize) -> u32 {
    u32::try_from(count).expect("there are few blocks")
}
