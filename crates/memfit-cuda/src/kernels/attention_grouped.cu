// The gradients of attention on tensor cores, for heads of D = 64 values of type X (f16 or bf16), the same
// for keys and values, where queries and keys fill all tiles. CAUSAL, the WARPS of a block and FOR_KEYS,
// which selects the kernels, are defined before. A warp has 16 rows of scores, which become the left operand
// of the next product in its registers.
//
// Where the device multiplies by groups of four warps the rows of four warps go together; what a warp holds
// of them is the same. A row of 64 values is one line of the pattern in which those products read shared
// memory.

#define GROUPED (WARPGROUPS && D == 64)
#define THREADS (32 * WARPS)
// Blocks of a multiprocessor for queries and for keys, at least.
#define BLOCKS_QUERIES (D == 32 ? 3 : 2)
#define BLOCKS_KEYS (D == 128 ? 2 : 3)

// Which head of all rows a block has, and which tile. Heads come in groups, so that what the tiles of a head
// read in turn is still in the cache; within a group the first tiles of all heads come first.
#define HEADS_AT_ONCE 32
struct Part { int head, tile; };
__device__ __forceinline__ Part own_part() {
    int heads = gridDim.x, tiles = gridDim.y, id = blockIdx.y * heads + blockIdx.x;
    int first = id / (HEADS_AT_ONCE * tiles) * HEADS_AT_ONCE, count = min(HEADS_AT_ONCE, heads - first), within = id - first * tiles;
    return {first + within % count, within / count};
}

// Rows that all threads copy at once: a multiple of eight, so that the swizzle is the same for all rows of a
// thread.
#define ROWS_AT_ONCE (THREADS / (D / 8))

// Where a thread's first 8 values stand, of rows that are `step` apart.
__device__ __forceinline__ const X* own_values(const X* rows, i64 step) { return rows + threadIdx.x / (D / 8) * step + threadIdx.x % (D / 8) * 8; }

// Begins to copy COUNT rows, `step` apart, from this thread's values on; zeros after the `there` rows that
// exist.
template <int COUNT> __device__ __forceinline__ void copy_rows(X* to, const X* from, i64 step, int there) {
    int row = threadIdx.x / (D / 8);
    to += place(row, threadIdx.x % (D / 8));
#pragma unroll
    for (int i = 0; i < COUNT / ROWS_AT_ONCE; i++) copy_16(to + i * ROWS_AT_ONCE * D, from + i * ROWS_AT_ONCE * step, row + i * ROWS_AT_ONCE < there);
}

// Rows that skip work together: those of a warp, or of the four that multiply together.
#define TOGETHER (GROUPED ? 4 : 1)

// `sums` = 16 rows of D, times ROWS rows of a tile from `row` on, transposed. Grouped, it has only begun when
// this returns.
template <int ROWS> __device__ __forceinline__ void multiply_across(float (&sums)[ROWS / 8][4], const u32 (&left)[D / 16][4], const X* tile, int row) {
#if GROUPED
    u64 right = describe_tile(tile + row * D);
#pragma unroll
    for (int c = 0; c < D / 16; c++) multiply_grouped<0>(sums, left[c], right + 2 * c, c != 0, X());
#else
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) sums[n][i] = 0.0f;
    }
#pragma unroll
    for (int c = 0; c < D / 16; c++) {
#pragma unroll
        for (int n = 0; n < ROWS / 16; n++) {
            u32 right[4];
            load_across(right, tile, row + n * 16, c);
            multiply_tiles(sums[2 * n], left[c], right[0], right[1], X());
            multiply_tiles(sums[2 * n + 1], left[c], right[2], right[3], X());
        }
    }
#endif
}

// `sums` += 16 rows of ROWS, times as many rows of a tile from `row` on.
template <int ROWS> __device__ __forceinline__ void multiply_down(float (&sums)[D / 8][4], const u32 (&left)[ROWS / 16][4], const X* tile, int row) {
#if GROUPED
    u64 right = describe_tile(tile + row * D);
#pragma unroll
    for (int n = 0; n < ROWS / 16; n++) multiply_grouped<1>(sums, left[n], right + 128 * n, 1, X());
#else
#pragma unroll
    for (int n = 0; n < ROWS / 16; n++) {
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            u32 right[4];
            load_down(right, tile, row + n * 16, c);
            multiply_tiles(sums[2 * c], left[n], right[0], right[1], X());
            multiply_tiles(sums[2 * c + 1], left[n], right[2], right[3], X());
        }
    }
#endif
}

// Rows of scores that backward has in registers at a time, beside sums and left operands.
#define PART 32

#if !FOR_KEYS
// The two packed numbers of each word, multiplied and summed up.
__device__ __forceinline__ float sum_of_products(u32 a, u32 b) {
    X low_a = {(u16)a}, high_a = {(u16)(a >> 16)}, low_b = {(u16)b}, high_b = {(u16)(b >> 16)};
    return widen(low_a) * widen(low_b) + widen(high_a) * widen(high_b);
}

// Gradients of queries, and the sum of dy y of every query and head, which the gradients of keys need too.
// `dq` may stand where `y` stands. Blocks: heads of all rows, and tiles of WARPS * 16 queries.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_QUERIES) attention_grad_queries(const X* __restrict__ dy, const X* __restrict__ q, const X* __restrict__ k, const X* __restrict__ v, const float* __restrict__ logsumexp, float* deltas, const X* y, X* dq, int queries, int keys, int heads, int key_heads, float scale) {
    const int QUERIES = WARPS * 16;
    alignas(1024) __shared__ X memory[(4 * STRIPE > 3 * QUERIES ? 4 * STRIPE : 3 * QUERIES) * D];
    Part part = own_part();
    i64 row = part.head / heads, head = part.head % heads, key_head = head / (heads / key_heads);
    int first = ((int)gridDim.y - 1 - part.tile) * QUERIES, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int end = CAUSAL ? min(keys, first + QUERIES) : keys;
    i64 step = (i64)heads * D, step_k = (i64)key_heads * D, at = (row * queries + first) * step + head * D;
    const X* k_own = own_values(k + row * keys * step_k + key_head * D, step_k);
    const X* v_own = own_values(v + row * keys * step_k + key_head * D, step_k);
    copy_rows<QUERIES>(memory, own_values(q + at, step), step, queries - first);
    copy_rows<QUERIES>(memory + QUERIES * D, own_values(dy + at, step), step, queries - first);
    copy_rows<QUERIES>(memory + 2 * QUERIES * D, own_values(y + at, step), step, queries - first);
    wait_for_copies();
    __syncthreads();
    u32 query_left[D / 16][4], dy_left[D / 16][4];
    load_left(query_left, memory, warp * 16);
    load_left(dy_left, memory + QUERIES * D, warp * 16);
    float delta[2] = {};
    {
        u32 value_left[D / 16][4];
        load_left(value_left, memory + 2 * QUERIES * D, warp * 16);
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
#pragma unroll
            for (int i = 0; i < 4; i++) delta[i % 2] += sum_of_products(dy_left[c][i], value_left[c][i]);
        }
    }
    __syncthreads();
    copy_rows<STRIPE>(memory, k_own, step_k, keys);
    copy_rows<STRIPE>(memory + STRIPE * D, v_own, step_k, keys);

    int own = first + warp * 16, together = first + warp / TOGETHER * TOGETHER * 16;
    const float factor = scale * LOG2_E;
    float lse[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int query = own + lane / 4 + 8 * half;
        i64 place = (row * heads + head) * queries + query;
        lse[half] = query < queries ? logsumexp[place] * LOG2_E : 0.0f;
        delta[half] = sum_of_four(delta[half]);
        if (lane % 4 == 0 && query < queries) deltas[place] = delta[half];
    }
    float sums[D / 8][4] = {};
    int stage = 0;
    for (int key = 0; key < end; key += STRIPE, stage ^= 1) {
        wait_for_copies();
        show_to_products();
        __syncthreads();
        if (key + STRIPE < end) {
            X* next = memory + (stage ^ 1) * 2 * STRIPE * D;
            k_own += STRIPE * step_k;
            v_own += STRIPE * step_k;
            copy_rows<STRIPE>(next, k_own, step_k, keys - key - STRIPE);
            copy_rows<STRIPE>(next + STRIPE * D, v_own, step_k, keys - key - STRIPE);
        }
        const X* k_tile = memory + stage * 2 * STRIPE * D;
        const X* v_tile = k_tile + STRIPE * D;
#pragma unroll
        for (int start = 0; start < STRIPE; start += PART) {
            if (CAUSAL && together + TOGETHER * 16 <= key + start) continue;
            float scores[PART / 8][4], dscores[PART / 8][4];
            begin_products();
            multiply_across<PART>(scores, query_left, k_tile, start);
            end_products();
            multiply_across<PART>(dscores, dy_left, v_tile, start);
            end_products();
            wait_for_products<1>();
            fence_sums(scores);
            // Keys after the last are zeros, and add nothing to a sum of keys.
            if (CAUSAL && own < key + start + PART - 1) hide<PART>(scores, own - key - start, 1);
#pragma unroll
            for (int n = 0; n < PART / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) scores[n][i] = power_of_2(scores[n][i] * factor - lse[i / 2]);
            }
            wait_for_products<0>();
            fence_sums(dscores);
            u32 left[PART / 16][4];
#pragma unroll
            for (int n = 0; n < PART / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) scores[n][i] *= dscores[n][i] - delta[i / 2];
            }
#pragma unroll
            for (int n = 0; n < PART / 16; n++) as_left(left[n], scores[2 * n], scores[2 * n + 1]);
            fence_sums(sums);
            begin_products();
            multiply_down<PART>(sums, left, k_tile, start);
            end_products();
            wait_for_products<0>();
            fence_sums(sums);
        }
    }
    store_rows(dq + (row * queries + own) * step + head * D, step, queries - own, sums, scale, scale);
}

#else
// Gradients of keys and values. Blocks: heads of keys of all rows, and tiles of WARPS * 16 keys. Scores are
// transposed here: a warp has 16 keys. A block reads the keys and values that it overwrites, and no others.
#define QUERY_STRIPE (D == 128 ? 16 : 64)
#define QUERY_PART (D == 128 ? 16 : PART)
#define KEEPS_VALUES (D != 128)

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_KEYS) attention_grad_keys(const X* __restrict__ dy, const X* __restrict__ q, const X* k, const X* v, const float* __restrict__ logsumexp, const float* __restrict__ deltas, X* dk, X* dv, int queries, int keys, int heads, int key_heads, float scale) {
    const int KEYS = WARPS * 16, STAGE = 2 * QUERY_STRIPE * D;
    // Two stripes of queries and dy. Values that are not kept in registers stand after them, and keys pass
    // through the stripes' memory.
    alignas(1024) __shared__ X memory[2 * STAGE + (KEEPS_VALUES ? 0 : KEYS * D)];
    __shared__ float sums_of[2][2][QUERY_STRIPE];
    Part part = own_part();
    i64 row = part.head / key_heads, key_head = part.head % key_heads;
    int first = part.tile * KEYS, warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = heads / key_heads;
    i64 step = (i64)heads * D, step_k = (i64)key_heads * D, at = (row * keys + first) * step_k + key_head * D;
    X* v_tile = KEEPS_VALUES ? memory + KEYS * D : memory + 2 * STAGE;
    copy_rows<KEYS>(memory, own_values(k + at, step_k), step_k, keys - first);
    copy_rows<KEYS>(v_tile, own_values(v + at, step_k), step_k, keys - first);
    wait_for_copies();
    __syncthreads();
    u32 key_left[D / 16][4], value_left[D / 16][4];
    load_left(key_left, memory, warp * 16);
    if constexpr (KEEPS_VALUES) load_left(value_left, v_tile, warp * 16);
    __syncthreads();

    int own = first + warp * 16, together = first + warp / TOGETHER * TOGETHER * 16;
    const float factor = scale * LOG2_E;
    float sums_k[D / 8][4] = {}, sums_v[D / 8][4] = {};
    // Stripes of all heads that look at these keys, one after the other; `next` is the first query of the one
    // that is copied next.
    int from = CAUSAL ? min(first, queries) / QUERY_STRIPE * QUERY_STRIPE : 0, next = from;
    int count = (queries - from + QUERY_STRIPE - 1) / QUERY_STRIPE * group;
    i64 start = (row * queries + from) * step + key_head * group * D, place = (row * heads + key_head * group) * queries + from;
    const X* q_own = own_values(q + start, step);
    const X* dy_own = own_values(dy + start, step);
    const int column = threadIdx.x % QUERY_STRIPE;
    const float* sums_own = (threadIdx.x < QUERY_STRIPE ? logsumexp : deltas) + place + column;
    auto copy_next = [&](int stage) {
        X* to = memory + stage * STAGE;
        copy_rows<QUERY_STRIPE>(to, q_own, step, queries - next);
        copy_rows<QUERY_STRIPE>(to + QUERY_STRIPE * D, dy_own, step, queries - next);
        if (threadIdx.x < 2 * QUERY_STRIPE) copy_4(&sums_of[stage][threadIdx.x / QUERY_STRIPE][column], sums_own, next + column < queries);
        // After the last stripe of a head comes the first of the next head.
        bool ends = queries <= next + QUERY_STRIPE;
        int rows = ends ? from - next : QUERY_STRIPE;
        q_own += rows * step + (ends ? D : 0);
        dy_own += rows * step + (ends ? D : 0);
        sums_own += rows + (ends ? queries : 0);
        next += rows;
    };
    if (0 < count) copy_next(0);
    int query = from;
    for (int stripe = 0; stripe < count; stripe++, query = query + QUERY_STRIPE < queries ? query + QUERY_STRIPE : from) {
        wait_for_copies();
        show_to_products();
        __syncthreads();
        if (stripe + 1 < count) copy_next((stripe + 1) % 2);
        const X* q_tile = memory + stripe % 2 * STAGE;
        const X* dy_tile = q_tile + QUERY_STRIPE * D;
#pragma unroll
        for (int begin = 0; begin < QUERY_STRIPE; begin += QUERY_PART) {
            if (CAUSAL && query + begin + QUERY_PART <= together) continue;
            float scores[QUERY_PART / 8][4], dscores[QUERY_PART / 8][4];
            begin_products();
            multiply_across<QUERY_PART>(scores, key_left, q_tile, begin);
            end_products();
            if constexpr (!KEEPS_VALUES) load_left(value_left, v_tile, warp * 16);
            multiply_across<QUERY_PART>(dscores, value_left, dy_tile, begin);
            end_products();
            wait_for_products<1>();
            fence_sums(scores);
            // Queries after the last are zeros with a dy of zero: they add nothing.
            if (CAUSAL && query + begin < own + 15) hide<QUERY_PART>(scores, own - query - begin, -1);
            const float* lse = sums_of[stripe % 2][0] + begin + lane % 4 * 2;
            const float* delta = sums_of[stripe % 2][1] + begin + lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < QUERY_PART / 8; n++) {
                float even = lse[n * 8] * LOG2_E, odd = lse[n * 8 + 1] * LOG2_E;
#pragma unroll
                for (int i = 0; i < 4; i++) scores[n][i] = power_of_2(scores[n][i] * factor - (i % 2 ? odd : even));
            }
            u32 left_v[QUERY_PART / 16][4], left_k[QUERY_PART / 16][4];
#pragma unroll
            for (int n = 0; n < QUERY_PART / 16; n++) as_left(left_v[n], scores[2 * n], scores[2 * n + 1]);
            // The sums of values go on while gradients of probabilities become gradients of scores.
            fence_sums(sums_v);
            begin_products();
            multiply_down<QUERY_PART>(sums_v, left_v, dy_tile, begin);
            end_products();
            wait_for_products<1>();
            fence_sums(dscores);
#pragma unroll
            for (int n = 0; n < QUERY_PART / 8; n++) {
                float even = delta[n * 8], odd = delta[n * 8 + 1];
#pragma unroll
                for (int i = 0; i < 4; i++) scores[n][i] *= dscores[n][i] - (i % 2 ? odd : even);
            }
#pragma unroll
            for (int n = 0; n < QUERY_PART / 16; n++) as_left(left_k[n], scores[2 * n], scores[2 * n + 1]);
            fence_sums(sums_k);
            begin_products();
            multiply_down<QUERY_PART>(sums_k, left_k, q_tile, begin);
            end_products();
            wait_for_products<0>();
            fence_sums(sums_v);
            fence_sums(sums_k);
        }
    }
    i64 to = (row * keys + own) * step_k + key_head * D;
    store_rows(dk + to, step_k, keys - own, sums_k, scale, scale);
    store_rows(dv + to, step_k, keys - own, sums_v, 1.0f, 1.0f);
}
#endif
