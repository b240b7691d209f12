//! Updates applied where their gradients are made: a block of the gradient in a worker's workspace, then the rule over that block of
//! the weight.

use memfit_ir::Operand::{Dy, X};
use memfit_ir::{FusedUpdate, Op, Shape};

use super::dense;
use super::gemm::driver::{self, LINE, Product, Strided};
use super::gemm::operand::{self, Matrix, MatrixRight};
use super::gemm::{self, Gemm};
use super::lanes::{Lanes, Level};
use super::operands::Operands;
use super::optimizer::Application;
use super::tasks::{self, Cut, Tasks};
use super::threads::Shared;

/// The product that makes a gradient.
pub(crate) fn product([x, dy]: [&Shape; 2], rows: usize) -> Gemm {
    dense::grad_kernel_product(x, dy, rows)
}

/// Floats of a block: few enough to stay in the second-level cache, and many enough that memory is read in long runs, first for the
/// gradient and then for the weight.
const BLOCK: std::ops::RangeInclusive<usize> = 1 << 14..=1 << 17;
/// A weight has at least this many blocks, where that leaves them large enough.
const BLOCKS: usize = 256;
/// Where there are more columns than this, a block has this many floats or rows, if that is more: all rows of
/// a block share the packing of the right operand.
const COLUMNS_WIDE: usize = 64;
const BLOCK_WIDE: usize = 1 << 16;
const ROWS_WIDE: usize = operand::ROWS_DIRECT + 1;

/// Floats of workspace: for every worker what a product needs, a block, and another where sums are made in
/// parts.
pub(crate) fn workspace(product: &Gemm, threads: usize) -> usize {
    threads * worker_floats(product) + LINE
}

fn worker_floats(product: &Gemm) -> usize {
    let partial = if driver::may_split(product.m, product.n) { block(product) } else { 0 };
    driver::worker_floats(product.n, product.k) + block(product) + partial
}

/// Rows of the weight that a task changes.
fn cut(product: &Gemm) -> Cut {
    if COLUMNS_WIDE < product.n {
        let most = (BLOCK_WIDE / product.n).max(ROWS_WIDE);
        return Cut::of_size(product.m, driver::even_tile(product.m, most, 1).max(ROWS_WIDE));
    }
    let floats = (product.m * product.n / BLOCKS).clamp(*BLOCK.start(), *BLOCK.end());
    Cut::of_size(product.m, floats / product.n.max(1))
}

/// Floats of a block and up to the next cache line.
fn block(product: &Gemm) -> usize {
    (cut(product).range(0).len() * product.n).next_multiple_of(LINE)
}

/// Makes a gradient, and changes the weight by it.
pub(crate) fn launch(operands: &Operands, applied: &FusedUpdate) {
    assert_eq!(*applied.gradient, Op::DenseGradKernel, "other gradients are not made block by block");
    let shape = product([operands.shape(X), operands.shape(Dy)], operands.context.rows);
    let workers = driver::aligned(operands.workspace().floats());
    let blocks = Blocks {
        level: operands.threads.level(),
        cut: cut(&shape),
        product: gemm::product(&shape, operands.input(X), operands.input(Dy)),
        application: Application::new(operands, &applied.update),
        floats: worker_floats(&shape),
        block: block(&shape),
        partial: worker_floats(&shape) - block(&shape) - driver::worker_floats(shape.n, shape.k),
        workers: Shared::new(workers),
    };
    tasks::run(operands.threads, blocks.cut.count(), &blocks);
}

struct Blocks<'a> {
    level: Level,
    cut: Cut,
    product: Product<'a, Matrix<'a>, MatrixRight<'a>, Strided>,
    application: Application<'a>,
    /// What a worker has, and how much of it the gradient and parts of it.
    floats: usize,
    block: usize,
    partial: usize,
    workers: Shared<'a, f32>,
}

impl Tasks for Blocks<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, worker: usize) {
        let (rows, columns) = (self.cut.range(task), self.product.n);
        // SAFETY: a worker runs one task at a time.
        let floats = unsafe { self.workers.slice(worker * self.floats..(worker + 1) * self.floats) };
        let (gradient, rest) = floats.split_at_mut(self.block);
        let (partial, scratch) = rest.split_at_mut(self.partial);
        self.product.rows(self.level, rows.clone(), scratch, partial, gradient);
        let range = rows.start * columns..rows.end * columns;
        let gradient = &gradient[..range.len()];
        // SAFETY: ranges of rows do not overlap, and every one of them belongs to one task.
        unsafe { self.application.apply::<L>(range, gradient, false) };
    }
}
