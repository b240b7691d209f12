//! Attention and its gradients: tiles of scores on tensor cores where widths and types allow and nothing is
//! hidden or dropped, else on plain floats.

use memfit_ir::Operand::{Dk, Dq, Dv, Dy, K, KeyMask, LogSumExp, Q, QueryMask, V, Y};
use memfit_ir::{Attention, AttentionDropout, Bytes, DType};

use super::noise::sequence;
use crate::call::{Call, Operand, int, long};
use crate::work::{Argument, Kernel, Lowered, Source};

/// For every width and type.
const PLAIN: &str = include_str!("../kernels/attention.cu");
const PLAIN_TILE: usize = 32;
const PLAIN_THREADS: u32 = 256;

/// For f16 and bf16 in heads of some widths.
const TENSOR_CORES: &str = concat!(
    include_str!("../kernels/tensor_cores.cu"),
    include_str!("../kernels/attention_tiles.cu"),
    include_str!("../kernels/attention_tensor_cores.cu")
);
const TENSOR_CORES_WIDTHS: [usize; 3] = [32, 64, 128];
const TENSOR_CORES_THREADS: u32 = 128;

/// The gradients for f16 and bf16 in heads of one width, whose queries and keys fill all tiles.
const GROUPED: &str = concat!(
    include_str!("../kernels/tensor_cores.cu"),
    include_str!("../kernels/attention_tiles.cu"),
    include_str!("../kernels/attention_grouped.cu")
);
const GROUPED_WIDTH: usize = 64;
const GROUPED_TILE: usize = 128;
/// Warps of a block, each with 16 rows: two groups of four share what they read from the cache, where
/// registers allow.
const GROUPED_WARPS: u32 = 8;
const GROUPED_WARPS_KEYS: u32 = 4;

/// One of the two sets of kernels, with the sizes of its tiles.
struct Kernels {
    /// Of forward and the gradient of queries, and of the gradients of keys and values, with the threads of
    /// their blocks.
    source: Source,
    threads: u32,
    source_keys: Source,
    threads_keys: u32,
    /// Queries of a block in forward, queries and keys of a block in backward.
    queries: usize,
    queries_grad: usize,
    keys_grad: usize,
    /// The kernels' last arguments: masks and draws.
    hiding: Vec<Argument>,
}

/// The sizes of an attention's operands.
struct Sizes {
    rows: usize,
    queries: usize,
    keys: usize,
    heads: usize,
    key_heads: usize,
    width: usize,
    value_width: usize,
}

impl Sizes {
    fn new(call: &Call<'_>, [q, k, v]: [Operand<'_>; 3]) -> Sizes {
        let (queries, keys) = (q.dims(), k.dims());
        Sizes {
            rows: call.rows,
            queries: queries[0],
            keys: keys[0],
            heads: queries[1],
            key_heads: keys[1],
            width: q.shape().last(),
            value_width: v.shape().last(),
        }
    }

    /// What every kernel takes after its pointers.
    fn arguments(&self, kind: &Attention) -> [Argument; 5] {
        let Sizes { queries, keys, heads, key_heads, .. } = *self;
        [int(queries), int(keys), int(heads), int(key_heads), Argument::Float(kind.scale)]
    }

    /// Masks stand from operand `first_mask` on.
    fn kernels(
        &self,
        call: &Call<'_>,
        kind: &Attention,
        [x, logsumexp]: [Operand<'_>; 2],
        backward: bool,
    ) -> Kernels {
        let Sizes { width, value_width, .. } = *self;
        let types = [x.dtype(), logsumexp.dtype()];
        let causal = i32::from(kind.causal);
        // These kernels take the maximum score of a row before scores are scaled.
        let fits = width == value_width && TENSOR_CORES_WIDTHS.contains(&width) && 0.0 < kind.scale;
        let hides = kind.masks() != 0 || kind.dropout.is_some();
        if fits && !hides && matches!(types, [DType::F16 | DType::BF16, DType::F32]) {
            let defines = format!("typedef {} X;\n#define D {width}\n#define CAUSAL {causal}\n", x.c_type());
            let fills = |count: usize| count.is_multiple_of(GROUPED_TILE);
            if backward && width == GROUPED_WIDTH && fills(self.queries) && fills(self.keys) {
                return grouped(&defines);
            }
            let source = Source { text: TENSOR_CORES, defines };
            return Kernels {
                source: source.clone(),
                threads: TENSOR_CORES_THREADS,
                source_keys: source,
                threads_keys: TENSOR_CORES_THREADS,
                queries: if width == 128 { 64 } else { 128 },
                queries_grad: 64,
                keys_grad: 64,
                hiding: Vec::new(),
            };
        }
        let mut defines = format!(
            "typedef {} X;\ntypedef {} L;\n#define WIDTH {width}\n#define VALUE_WIDTH {value_width}\n",
            x.c_type(),
            logsumexp.c_type(),
        );
        for (name, value) in [
            ("CAUSAL", kind.causal),
            ("QUERY_MASK", kind.query_mask),
            ("KEY_MASK", kind.key_mask),
            ("DROPOUT", kind.dropout.is_some()),
        ] {
            defines += &format!("#define {name} {}\n", u8::from(value));
        }
        let AttentionDropout { rate, seed } = kind.dropout.unwrap_or(AttentionDropout { rate: 0.0, seed: 0 });
        let hiding = vec![
            call.pointer_if_given(QueryMask),
            call.pointer_if_given(KeyMask),
            Argument::Context,
            long(call.row_start),
            sequence(seed),
            Argument::Float(rate),
            Argument::Float(1.0 / (1.0 - rate)),
        ];
        let (source, tile) = (Source { text: PLAIN, defines }, PLAIN_TILE);
        Kernels {
            source: source.clone(),
            threads: PLAIN_THREADS,
            source_keys: source,
            threads_keys: PLAIN_THREADS,
            queries: tile,
            queries_grad: tile,
            keys_grad: tile,
            hiding,
        }
    }
}

/// The gradients' kernels for heads whose queries and keys fill all tiles.
fn grouped(defines: &str) -> Kernels {
    let source = |warps: u32, for_keys: u8| Source {
        text: GROUPED,
        defines: format!("{defines}#define WARPS {warps}\n#define FOR_KEYS {for_keys}\n"),
    };
    let rows = |warps: u32| 16 * warps as usize;
    Kernels {
        source: source(GROUPED_WARPS, 0),
        threads: 32 * GROUPED_WARPS,
        source_keys: source(GROUPED_WARPS_KEYS, 1),
        threads_keys: 32 * GROUPED_WARPS_KEYS,
        queries: rows(GROUPED_WARPS),
        queries_grad: rows(GROUPED_WARPS),
        keys_grad: rows(GROUPED_WARPS_KEYS),
        hiding: Vec::new(),
    }
}

/// Blocks for `heads` heads and the tiles of `positions` positions.
fn blocks(heads: usize, positions: usize, tile: usize) -> [u32; 3] {
    let count = |count: usize| u32::try_from(count).expect("there are fewer tiles than blocks of a grid");
    [count(heads), count(positions.div_ceil(tile)), 1]
}

/// `y = softmax(scale q kᵀ) v`, and the logarithm of each softmax's sum.
pub(super) fn forward(call: &Call<'_>, kind: &Attention) -> Lowered {
    let [q, k, v] = [Q, K, V].map(|operand| call.input(operand));
    let [y, logsumexp] = [Y, LogSumExp].map(|operand| call.output(operand));
    let sizes = Sizes::new(call, [q, k, v]);
    let kernels = sizes.kernels(call, kind, [q, logsumexp], false);
    let mut arguments = [q, k, v, y, logsumexp].map(|operand| operand.pointer()).to_vec();
    arguments.extend(sizes.arguments(kind).into_iter().chain(kernels.hiding));
    Kernel {
        source: kernels.source,
        entry: "attention",
        blocks: blocks(sizes.rows * sizes.heads, sizes.queries, kernels.queries),
        threads: kernels.threads,
        arguments,
    }
    .into()
}

/// Gradients of queries, keys and values. `dq` may stand where `y` stands, `dk` where `k` and `dv` where `v`:
/// so what reads every key and value comes first, and sums up `dy y` of its queries before it writes; then
/// comes what writes keys and values.
pub(super) fn grad(call: &Call<'_>, kind: &Attention) -> Lowered {
    let [dy, q, k, v, y, logsumexp] = [Dy, Q, K, V, Y, LogSumExp].map(|operand| call.input(operand));
    let [dq, dk, dv] = [Dq, Dk, Dv].map(|operand| call.output(operand));
    let sizes = Sizes::new(call, [q, k, v]);
    let kernels = sizes.kernels(call, kind, [q, logsumexp], true);
    let sums = sizes.rows * sizes.heads * sizes.queries;
    let mut lowered = Lowered::default();
    let deltas = Argument::At(lowered.scratch(Bytes::of::<f32>(sums)));
    let read = [dy, q, k, v, logsumexp].map(|operand| operand.pointer());
    let arguments = |last: [Operand<'_>; 2]| -> Vec<Argument> {
        let last = last.map(|operand| operand.pointer());
        let numbers = sizes.arguments(kind).into_iter().chain(kernels.hiding.iter().copied());
        read.into_iter().chain([deltas]).chain(last).chain(numbers).collect()
    };
    lowered.kernel(Kernel {
        source: kernels.source,
        entry: "attention_grad_queries",
        blocks: blocks(sizes.rows * sizes.heads, sizes.queries, kernels.queries_grad),
        threads: kernels.threads,
        arguments: arguments([y, dq]),
    });
    lowered.kernel(Kernel {
        source: kernels.source_keys,
        entry: "attention_grad_keys",
        blocks: blocks(sizes.rows * sizes.key_heads, sizes.keys, kernels.keys_grad),
        threads: kernels.threads_keys,
        arguments: arguments([dk, dv]),
    });
    lowered
}
