//! Attention forward: a running maximum and a running sum for every query, while one tile of keys follows
//! another.

use std::ops::Range;

use memfit_ir::Attention;
use memfit_ir::Operand::{K, LogSumExp, Q, V, Y};

use super::super::floats::Floats;
use super::super::lanes::Level;
use super::super::operands::Operands;
use super::hiding::Hiding;
use super::kernels::{Copy, Finish, Running, Sight, Weigh};
use super::{
    Rows, Scratch, Sizes, multiply, packed, parts, run, scratch_floats, seen, skips, tile_step,
    workspace_floats,
};

/// The most queries of a task.
const QUERIES_TASK: usize = 256;
/// The most queries of a tile: a multiple of every level's register tile; their scores stay in the
/// first-level cache.
const QUERIES: usize = 24;
/// The most keys of a tile: packed, they stay in the second-level cache.
const KEYS: usize = 256;

/// Floats of workspace that `forward` needs.
pub(crate) fn workspace(sizes: &Sizes, threads: usize) -> usize {
    workspace_floats(scratch_floats(&buffers(sizes)), threads)
}

/// Packed keys, packed values, queries, scores, and what runs along of every query.
fn buffers(sizes: &Sizes) -> [usize; 6] {
    let (queries, keys) = (sizes.queries.min(QUERIES), sizes.keys.min(KEYS));
    let queries_task = sizes.queries.min(QUERIES_TASK);
    [
        packed(sizes.width, keys),
        packed(keys, sizes.value_width),
        queries * sizes.width,
        queries * tile_step(keys),
        queries_task,
        queries_task,
    ]
}

/// `y = softmax(scale · q kᵀ) v`, and the logarithm of each softmax's sum.
pub(crate) fn forward(operands: &Operands, kind: &Attention) {
    let sizes = Sizes::new([Q, K, V].map(|operand| operands.shape(operand)), operands.context.rows);
    let forward = Forward {
        sizes,
        kind,
        hiding: Hiding::new(operands, kind, sizes),
        level: operands.threads.level(),
        q: operands.input_floats(Q),
        k: operands.input_floats(K),
        v: operands.input_floats(V),
        y: operands.output_floats(Y),
        logsumexp: operands.output_floats(LogSumExp),
    };
    let chunks = sizes.queries.div_ceil(QUERIES_TASK);
    run(operands, sizes.rows * sizes.heads * chunks, scratch_floats(&buffers(&sizes)), |task, scratch| {
        let start = task % chunks * QUERIES_TASK;
        let queries = start..sizes.queries.min(start + QUERIES_TASK);
        forward.task(task / chunks / sizes.heads, task / chunks % sizes.heads, queries, scratch);
    });
}

struct Forward<'a> {
    sizes: Sizes,
    kind: &'a Attention,
    hiding: Hiding<'a>,
    level: Level,
    q: Floats<'a>,
    k: Floats<'a>,
    v: Floats<'a>,
    y: Floats<'a>,
    logsumexp: Floats<'a>,
}

impl Forward<'_> {
    /// Some queries of one head.
    fn task(&self, row: usize, head: usize, queries: Range<usize>, mut scratch: Scratch) {
        let Forward { sizes, kind, level, hiding, .. } = *self;
        let mask = hiding.of_row(row);
        let Sizes { width, value_width, .. } = sizes;
        let [keys, values, query, scores, maxima, sums] = buffers(&sizes).map(|floats| scratch.take(floats));
        let running = Running { maxima: maxima.as_mut_ptr(), sums: sums.as_mut_ptr() };
        let key_head = head / (sizes.heads / sizes.key_heads);
        let k = sizes.key_head(self.k, row, key_head, width);
        let v = sizes.key_head(self.v, row, key_head, value_width);
        let q = sizes.query_head(self.q, row, head, width);
        let y = sizes.query_head(self.y, row, head, value_width);
        let query = Rows::over(query, width);
        let scores = Rows::over(scores, tile_step(sizes.keys.min(KEYS)));
        for tile in parts(0..seen(kind, queries.end, &(0..sizes.keys)), KEYS) {
            let key_panels = k.from(tile.start).right_transposed(level, width, tile.len(), keys);
            let value_panels = v.from(tile.start).right(level, tile.len(), value_width, values);
            for block in parts(queries.clone(), QUERIES) {
                let count = seen(kind, block.end, &tile);
                if count == 0 {
                    continue;
                }
                let (rows, factor) = (block.len(), kind.scale);
                let at = block.start - queries.start;
                level.call(Copy { from: q.from(block.start), to: query, rows, width, factor });
                multiply(level, [rows, width, count], query.left(), key_panels, scores, false);
                let seen = tile.start..tile.start + count;
                if let Some(mask) = mask {
                    mask.hide(scores, block.clone(), seen.clone());
                }
                let y = y.from(block.start);
                let (key, causal) = (tile.start, skips(kind));
                level.call(Weigh {
                    scores,
                    sight: Sight { queries: block.clone(), key, count, causal },
                    running: running.from(at),
                    values: (0 < tile.start).then_some(y),
                    value_width,
                });
                hiding.drop(scores, (row, head), block, seen);
                multiply(level, [rows, count, value_width], scores.left(), value_panels, y, 0 < tile.start);
            }
        }
        let at = (row * sizes.heads + head) * sizes.queries + queries.start;
        assert!(at + queries.len() <= self.logsumexp.len(), "every query of every head has a sum");
        let logsumexp = self.logsumexp.pointer().wrapping_add(at);
        let values = y.from(queries.start);
        level.call(Finish { values, value_width, queries: queries.len(), running, logsumexp });
    }
}

impl Running {
    /// What was kept of the queries from one on.
    fn from(self, query: usize) -> Running {
        Running { maxima: self.maxima.wrapping_add(query), sums: self.sums.wrapping_add(query) }
    }
}
