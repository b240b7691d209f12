//! Attention backward: the probabilities of a tile are computed again from scores and the sums that forward
//! kept.
//!
//! A task has one head of keys and all queries that look at it, tile by tile of the keys. It packs a tile's
//! keys and values before it writes their gradients, and has read all of `y` before it writes `dq`: so `dk`
//! may stand where `k` stands, `dv` where `v`, and `dq` where `y`.

use std::ops::Range;

use memfit_ir::Attention;
use memfit_ir::Operand::{Dk, Dq, Dv, Dy, K, LogSumExp, Q, V, Y};

use super::super::floats::Floats;
use super::super::lanes::Level;
use super::super::microkernel::Panels;
use super::super::operands::Operands;
use super::hiding::{Hiding, RowMask};
use super::kernels::{Clear, Copy, Deltas, ScoreGradients, Sight};
use super::{
    Rows, Scratch, Sizes, multiply, packed, parts, run, scratch_floats, seen, skips, tile_step,
    workspace_floats,
};

/// The most queries and the most keys of a tile: all that belongs to it stays in the second-level cache.
const QUERIES: usize = 128;
const KEYS: usize = 128;
/// The most queries of a tile under a causal mask: smaller tiles compute fewer scores that the mask hides.
const QUERIES_CAUSAL: usize = 64;
const _: () = assert!(QUERIES_CAUSAL <= QUERIES);

/// Floats of workspace that `grad` needs.
pub(crate) fn workspace(sizes: &Sizes, threads: usize) -> usize {
    workspace_floats(scratch_floats(&buffers(sizes)), threads)
}

/// Packed keys twice and values, queries and `dy` plain and packed, two tiles, and a delta for every query.
fn buffers(sizes: &Sizes) -> [usize; 10] {
    let Sizes { width, value_width, .. } = *sizes;
    let (queries, keys) = (sizes.queries.min(QUERIES), sizes.keys.min(KEYS));
    [
        packed(width, keys),
        packed(value_width, keys),
        packed(keys, width),
        queries * width,
        queries * value_width,
        packed(queries, width),
        packed(queries, value_width),
        queries * tile_step(keys),
        queries * tile_step(keys),
        sizes.heads / sizes.key_heads * sizes.queries,
    ]
}

/// Gradients of queries, keys and values.
pub(crate) fn grad(operands: &Operands, kind: &Attention) {
    let sizes = Sizes::new([Q, K, V].map(|operand| operands.shape(operand)), operands.context.rows);
    let grad = Grad {
        sizes,
        kind,
        hiding: Hiding::new(operands, kind, sizes),
        level: operands.threads.level(),
        dy: operands.input_floats(Dy),
        q: operands.input_floats(Q),
        k: operands.input_floats(K),
        v: operands.input_floats(V),
        y: operands.input_floats(Y),
        logsumexp: operands.input_floats(LogSumExp),
        dq: operands.output_floats(Dq),
        dk: operands.output_floats(Dk),
        dv: operands.output_floats(Dv),
    };
    run(operands, sizes.rows * sizes.key_heads, scratch_floats(&buffers(&sizes)), |task, scratch| {
        grad.task(task / sizes.key_heads, task % sizes.key_heads, scratch);
    });
}

struct Grad<'a> {
    sizes: Sizes,
    kind: &'a Attention,
    hiding: Hiding<'a>,
    level: Level,
    dy: Floats<'a>,
    q: Floats<'a>,
    k: Floats<'a>,
    v: Floats<'a>,
    y: Floats<'a>,
    logsumexp: Floats<'a>,
    dq: Floats<'a>,
    dk: Floats<'a>,
    dv: Floats<'a>,
}

/// One head of queries.
#[derive(Clone, Copy)]
struct QueryHead<'a> {
    /// The row of the batch, and the head.
    place: (usize, usize),
    mask: Option<RowMask<'a>>,
    dy: Rows,
    q: Rows,
    dq: Rows,
    logsumexp: *const f32,
    deltas: *const f32,
}

/// A tile's keys and values as operands, and where their gradients go.
struct Tile {
    keys: Range<usize>,
    keys_across: Panels,
    values_across: Panels,
    keys_down: Panels,
    dk: Rows,
    dv: Rows,
}

/// Scratch memory of a block of queries.
struct Block<'a> {
    query: &'a mut [f32],
    dy_tile: &'a mut [f32],
    query_panels: &'a mut [f32],
    dy_panels: &'a mut [f32],
    scores: Rows,
    dscores: Rows,
}

impl Grad<'_> {
    /// One head of keys.
    fn task(&self, row: usize, key_head: usize, mut scratch: Scratch) {
        let Grad { sizes, level, .. } = *self;
        let Sizes { width, value_width, .. } = sizes;
        let [
            keys_across,
            values_across,
            keys_down,
            query,
            dy_tile,
            query_panels,
            dy_panels,
            scores,
            dscores,
            deltas,
        ] = buffers(&sizes).map(|floats| scratch.take(floats));
        let step = tile_step(sizes.keys.min(KEYS));
        let (scores, dscores) = (Rows::over(scores, step), Rows::over(dscores, step));
        let mut block = Block { query, dy_tile, query_panels, dy_panels, scores, dscores };
        let group = sizes.heads / sizes.key_heads;
        for (member, deltas) in deltas.chunks_exact_mut(sizes.queries).enumerate() {
            let head = key_head * group + member;
            level.call(Deltas {
                dy: sizes.query_head(self.dy, row, head, value_width),
                y: sizes.query_head(self.y, row, head, value_width),
                width: value_width,
                queries: sizes.queries,
                deltas: deltas.as_mut_ptr(),
            });
        }
        let [k, dk] = [self.k, self.dk].map(|of| sizes.key_head(of, row, key_head, width));
        let [v, dv] = [self.v, self.dv].map(|of| sizes.key_head(of, row, key_head, value_width));
        for keys in parts(0..sizes.keys, KEYS) {
            let count = keys.len();
            let tile = Tile {
                keys_across: k.from(keys.start).right_transposed(level, width, count, keys_across),
                values_across: v.from(keys.start).right_transposed(level, value_width, count, values_across),
                keys_down: k.from(keys.start).right(level, count, width, keys_down),
                dk: dk.from(keys.start),
                dv: dv.from(keys.start),
                keys,
            };
            level.call(Clear { rows: tile.dk, count, width });
            level.call(Clear { rows: tile.dv, count, width: value_width });
            for (member, deltas) in deltas.chunks_exact(sizes.queries).enumerate() {
                let head = self.query_head(row, key_head * group + member, deltas);
                let (first, size) = match skips(self.kind) {
                    true => (tile.keys.start.min(sizes.queries), QUERIES_CAUSAL),
                    false => (0, QUERIES),
                };
                for queries in parts(first..sizes.queries, size) {
                    self.block(&tile, head, queries, &mut block);
                }
            }
        }
    }

    fn query_head(&self, row: usize, head: usize, deltas: &[f32]) -> QueryHead<'_> {
        let Sizes { width, value_width, .. } = self.sizes;
        let at = (row * self.sizes.heads + head) * self.sizes.queries;
        assert!(at + self.sizes.queries <= self.logsumexp.len(), "every query of every head has a sum");
        QueryHead {
            place: (row, head),
            mask: self.hiding.of_row(row),
            dy: self.sizes.query_head(self.dy, row, head, value_width),
            q: self.sizes.query_head(self.q, row, head, width),
            dq: self.sizes.query_head(self.dq, row, head, width),
            logsumexp: self.logsumexp.pointer().wrapping_add(at),
            deltas: deltas.as_ptr(),
        }
    }

    /// What some queries and a tile of keys give each other.
    fn block(&self, tile: &Tile, head: QueryHead<'_>, queries: Range<usize>, block: &mut Block) {
        let Grad { sizes, kind, level, hiding, .. } = *self;
        let Sizes { width, value_width, .. } = sizes;
        let (rows, count) = (queries.len(), seen(kind, queries.end, &tile.keys));
        let (q, dy, dq) =
            (head.q.from(queries.start), head.dy.from(queries.start), head.dq.from(queries.start));
        let query = Rows::over(block.query, width);
        let dy_tile = Rows::over(block.dy_tile, value_width);
        level.call(Copy { from: q, to: query, rows, width, factor: kind.scale });
        level.call(Copy { from: dy, to: dy_tile, rows, width: value_width, factor: 1.0 });
        let query_panels = q.right(level, rows, width, block.query_panels);
        let dy_panels = dy_tile.right(level, rows, value_width, block.dy_panels);
        let Block { scores, dscores, .. } = *block;

        multiply(level, [rows, width, count], query.left(), tile.keys_across, scores, false);
        multiply(level, [rows, value_width, count], dy_tile.left(), tile.values_across, dscores, false);
        let keys = tile.keys.start..tile.keys.start + count;
        if let Some(mask) = head.mask {
            mask.hide(scores, queries.clone(), keys.clone());
        }
        hiding.drop(dscores, head.place, queries.clone(), keys.clone());
        level.call(ScoreGradients {
            scores,
            dscores,
            sight: Sight { queries: queries.clone(), key: tile.keys.start, count, causal: skips(kind) },
            scale: kind.scale,
            logsumexp: head.logsumexp.wrapping_add(queries.start),
            deltas: head.deltas.wrapping_add(queries.start),
        });
        if let Some(mask) = head.mask {
            mask.clear(dscores, queries.clone(), count);
        }
        hiding.drop(scores, head.place, queries.clone(), keys);
        let across = scores.left_transposed();
        multiply(level, [count, rows, value_width], across, dy_panels, tile.dv, true);
        multiply(level, [count, rows, width], dscores.left_transposed(), query_panels, tile.dk, true);
        multiply(level, [rows, count, width], dscores.left(), tile.keys_down, dq, 0 < tile.keys.start);
    }
}
