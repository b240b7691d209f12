// Attention on tensor cores, for heads of D = 32, 64 or 128 values of type X (f16 or bf16), the same for keys
// and values. CAUSAL is defined before. A warp has 16 rows of scores, or 32; scores become the left operand
// of the next product in its registers.

#define WARPS 4
#define THREADS (32 * WARPS)
// Rows of 16 queries that a warp keeps in forward.
#define HEIGHT (D == 128 ? 1 : 2)
// Blocks of a multiprocessor in backward, at least.
#define BLOCKS (D == 128 ? 2 : 3)

// Begins to copy `count` rows, `step` apart; zeros after the `there` rows that exist.
template <int COUNT> __device__ __forceinline__ void copy_rows(X* to, const X* from, i64 step, int there) {
#pragma unroll
    for (int i = 0; i < COUNT * (D / 8) / THREADS; i++) {
        int item = i * THREADS + threadIdx.x, row = item / (D / 8), eight = item % (D / 8);
        bool exists = row < there;
        copy_16(to + place(row, eight), exists ? from + row * step + eight * 8 : from, exists);
    }
}

__device__ __forceinline__ float most_of_four(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

// Blocks: heads of all rows, and tiles of WARPS * HEIGHT * 16 queries.
extern "C" __global__ void __launch_bounds__(THREADS) attention(const X* __restrict__ q, const X* __restrict__ k, const X* __restrict__ v, X* __restrict__ y, float* __restrict__ logsumexp, int queries, int keys, int heads, int key_heads, float scale) {
    // Keys and values of two stripes; the queries stand where the second will.
    const int QUERIES = WARPS * HEIGHT * 16;
    alignas(128) __shared__ X memory[(2 * STRIPE + (2 * STRIPE > QUERIES ? 2 * STRIPE : QUERIES)) * D];
    i64 row = blockIdx.x / heads, head = blockIdx.x % heads, key_head = head / (heads / key_heads);
    // Later queries see more keys: they come first.
    int first = ((int)gridDim.y - 1 - (int)blockIdx.y) * QUERIES, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int end = CAUSAL ? min(keys, first + QUERIES) : keys;
    i64 step = (i64)heads * D, step_k = (i64)key_heads * D;
    const X* k_head = k + row * keys * step_k + key_head * D;
    const X* v_head = v + row * keys * step_k + key_head * D;
    copy_rows<QUERIES>(memory + 2 * STRIPE * D, q + (row * queries + first) * step + head * D, step, queries - first);
    copy_rows<STRIPE>(memory, k_head, step_k, keys);
    copy_rows<STRIPE>(memory + STRIPE * D, v_head, step_k, keys);
    wait_for_copies();
    __syncthreads();
    int own = first + warp * HEIGHT * 16;
    u32 left[HEIGHT][D / 16][4];
#pragma unroll
    for (int h = 0; h < HEIGHT; h++) load_left(left[h], memory + 2 * STRIPE * D, (warp * HEIGHT + h) * 16);

    float values[HEIGHT][D / 8][4] = {}, most[HEIGHT][2], total[HEIGHT][2] = {};
#pragma unroll
    for (int h = 0; h < HEIGHT; h++) most[h][0] = most[h][1] = -INFINITE;
    const float factor = scale * LOG2_E;
    int stage = 0;
    for (int key = 0; key < end; key += STRIPE, stage ^= 1) {
        wait_for_copies();
        __syncthreads();
        if (key + STRIPE < end) {
            X* next = memory + (stage ^ 1) * 2 * STRIPE * D;
            copy_rows<STRIPE>(next, k_head + (key + STRIPE) * step_k, step_k, keys - key - STRIPE);
            copy_rows<STRIPE>(next + STRIPE * D, v_head + (key + STRIPE) * step_k, step_k, keys - key - STRIPE);
        }
        if (CAUSAL && own + HEIGHT * 16 <= key) continue;
        const X* k_tile = memory + stage * 2 * STRIPE * D;
        const X* v_tile = k_tile + STRIPE * D;
        float scores[HEIGHT][STRIPE / 8][4] = {};
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
#pragma unroll
            for (int n = 0; n < STRIPE / 16; n++) {
                u32 right[4];
                load_across(right, k_tile, n * 16, c);
#pragma unroll
                for (int h = 0; h < HEIGHT; h++) {
                    multiply_tiles(scores[h][2 * n], left[h][c], right[0], right[1], X());
                    multiply_tiles(scores[h][2 * n + 1], left[h][c], right[2], right[3], X());
                }
            }
        }
        if (keys < key + STRIPE || (CAUSAL && own < key + STRIPE - 1)) {
#pragma unroll
            for (int h = 0; h < HEIGHT; h++) {
#pragma unroll
                for (int n = 0; n < STRIPE / 8; n++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        int at = key + n * 8 + lane % 4 * 2 + i % 2, query = own + h * 16 + lane / 4 + i / 2 * 8;
                        if (keys <= at || (CAUSAL && query < at)) scores[h][n][i] = -INFINITE;
                    }
                }
            }
        }
        u32 weights[HEIGHT][STRIPE / 16][4];
#pragma unroll
        for (int h = 0; h < HEIGHT; h++) {
            float base[2], shrink[2];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float now = most[h][half];
#pragma unroll
                for (int n = 0; n < STRIPE / 8; n++) now = fmaxf(now, fmaxf(scores[h][n][2 * half], scores[h][n][2 * half + 1]));
                now = most_of_four(now);
                base[half] = now * factor;
                shrink[half] = power_of_2((most[h][half] - now) * factor);
                most[h][half] = now;
            }
            // What was summed up so far is scaled to the new maximum.
#pragma unroll
            for (int half = 0; half < 2; half++) {
                total[h][half] *= shrink[half];
#pragma unroll
                for (int n = 0; n < D / 8; n++) {
                    values[h][n][2 * half] *= shrink[half];
                    values[h][n][2 * half + 1] *= shrink[half];
                }
            }
#pragma unroll
            for (int n = 0; n < STRIPE / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    scores[h][n][i] = power_of_2(scores[h][n][i] * factor - base[i / 2]);
                    total[h][i / 2] += scores[h][n][i];
                }
            }
#pragma unroll
            for (int n = 0; n < STRIPE / 16; n++) as_left(weights[h][n], scores[h][2 * n], scores[h][2 * n + 1]);
        }
#pragma unroll
        for (int n = 0; n < STRIPE / 16; n++) {
#pragma unroll
            for (int c = 0; c < D / 16; c++) {
                u32 right[4];
                load_down(right, v_tile, n * 16, c);
#pragma unroll
                for (int h = 0; h < HEIGHT; h++) {
                    multiply_tiles(values[h][2 * c], weights[h][n], right[0], right[1], X());
                    multiply_tiles(values[h][2 * c + 1], weights[h][n], right[2], right[3], X());
                }
            }
        }
    }
#pragma unroll
    for (int h = 0; h < HEIGHT; h++) {
        int query = own + h * 16;
        float upper = sum_of_four(total[h][0]), lower = sum_of_four(total[h][1]);
        store_rows(y + (row * queries + query) * step + head * D, step, queries - query, values[h], 1.0f / upper, 1.0f / lower);
        float* sums = logsumexp + (row * heads + head) * queries + query;
        if (lane % 4 == 0 && query + lane / 4 < queries) sums[lane / 4] = most[h][0] * scale + logf(upper);
        if (lane % 4 == 0 && query + lane / 4 + 8 < queries) sums[lane / 4 + 8] = most[h][1] * scale + logf(lower);
    }
}

// Rows of scores that backward has in registers at a time, beside sums and left operands.
#define PART 32

// The two packed numbers of each word, multiplied and summed up.
__device__ __forceinline__ float sum_of_products(u32 a, u32 b) {
    X low_a = {(u16)a}, high_a = {(u16)(a >> 16)}, low_b = {(u16)b}, high_b = {(u16)(b >> 16)};
    return widen(low_a) * widen(low_b) + widen(high_a) * widen(high_b);
}

// Gradients of queries, and the sum of dy y of every query and head, which the gradients of keys need too.
// `dq` may stand where `y` stands. Blocks: heads of all rows, and tiles of WARPS * 16 queries.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) attention_grad_queries(const X* __restrict__ dy, const X* __restrict__ q, const X* __restrict__ k, const X* __restrict__ v, const float* __restrict__ logsumexp, float* deltas, const X* y, X* dq, int queries, int keys, int heads, int key_heads, float scale) {
    const int QUERIES = WARPS * 16;
    alignas(128) __shared__ X memory[(4 * STRIPE > 3 * QUERIES ? 4 * STRIPE : 3 * QUERIES) * D];
    i64 row = blockIdx.x / heads, head = blockIdx.x % heads, key_head = head / (heads / key_heads);
    int first = ((int)gridDim.y - 1 - (int)blockIdx.y) * QUERIES, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int end = CAUSAL ? min(keys, first + QUERIES) : keys;
    i64 step = (i64)heads * D, step_k = (i64)key_heads * D, at = (row * queries + first) * step + head * D;
    const X* k_head = k + row * keys * step_k + key_head * D;
    const X* v_head = v + row * keys * step_k + key_head * D;
    copy_rows<QUERIES>(memory, q + at, step, queries - first);
    copy_rows<QUERIES>(memory + QUERIES * D, dy + at, step, queries - first);
    copy_rows<QUERIES>(memory + 2 * QUERIES * D, y + at, step, queries - first);
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
    copy_rows<STRIPE>(memory, k_head, step_k, keys);
    copy_rows<STRIPE>(memory + STRIPE * D, v_head, step_k, keys);

    int own = first + warp * 16;
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
        __syncthreads();
        if (key + STRIPE < end) {
            X* next = memory + (stage ^ 1) * 2 * STRIPE * D;
            copy_rows<STRIPE>(next, k_head + (key + STRIPE) * step_k, step_k, keys - key - STRIPE);
            copy_rows<STRIPE>(next + STRIPE * D, v_head + (key + STRIPE) * step_k, step_k, keys - key - STRIPE);
        }
        const X* k_tile = memory + stage * 2 * STRIPE * D;
        const X* v_tile = k_tile + STRIPE * D;
#pragma unroll
        for (int part = 0; part < STRIPE; part += PART) {
            if (CAUSAL && own + 16 <= key + part) continue;
            float scores[PART / 8][4] = {}, dscores[PART / 8][4] = {};
#pragma unroll
            for (int c = 0; c < D / 16; c++) {
#pragma unroll
                for (int n = 0; n < PART / 16; n++) {
                    u32 right[4];
                    load_across(right, k_tile, part + n * 16, c);
                    multiply_tiles(scores[2 * n], query_left[c], right[0], right[1], X());
                    multiply_tiles(scores[2 * n + 1], query_left[c], right[2], right[3], X());
                    load_across(right, v_tile, part + n * 16, c);
                    multiply_tiles(dscores[2 * n], dy_left[c], right[0], right[1], X());
                    multiply_tiles(dscores[2 * n + 1], dy_left[c], right[2], right[3], X());
                }
            }
            // Keys after the last are zeros, and add nothing to a sum of keys.
            if (CAUSAL && own < key + part + PART - 1) hide<PART>(scores, own - key - part, 1);
#pragma unroll
            for (int n = 0; n < PART / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float weight = power_of_2(scores[n][i] * factor - lse[i / 2]);
                    scores[n][i] = weight * (dscores[n][i] - delta[i / 2]);
                }
            }
#pragma unroll
            for (int n = 0; n < PART / 16; n++) {
                u32 left[4];
                as_left(left, scores[2 * n], scores[2 * n + 1]);
#pragma unroll
                for (int c = 0; c < D / 16; c++) {
                    u32 right[4];
                    load_down(right, k_tile, part + n * 16, c);
                    multiply_tiles(sums[2 * c], left, right[0], right[1], X());
                    multiply_tiles(sums[2 * c + 1], left, right[2], right[3], X());
                }
            }
        }
    }
    store_rows(dq + (row * queries + own) * step + head * D, step, queries - own, sums, scale, scale);
}

// Gradients of keys and values. Blocks: heads of keys of all rows, and tiles of WARPS * 16 keys. Scores are
// transposed here: a warp has 16 keys. A block reads the keys and values that it overwrites, and no others.
#define QUERY_STRIPE (D == 128 ? 16 : 64)
#define QUERY_PART (D == 128 ? 16 : PART)
#define KEEPS_VALUES (D != 128)

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) attention_grad_keys(const X* __restrict__ dy, const X* __restrict__ q, const X* k, const X* v, const float* __restrict__ logsumexp, const float* __restrict__ deltas, X* dk, X* dv, int queries, int keys, int heads, int key_heads, float scale) {
    const int KEYS = WARPS * 16, STAGE = 2 * QUERY_STRIPE * D;
    // Two stripes of queries and dy. Values that are not kept in registers stand after them, and keys pass
    // through the stripes' memory.
    alignas(128) __shared__ X memory[2 * STAGE + (KEEPS_VALUES ? 0 : KEYS * D)];
    __shared__ float sums_of[2][2][QUERY_STRIPE];
    i64 row = blockIdx.x / key_heads, key_head = blockIdx.x % key_heads;
    int first = (int)blockIdx.y * KEYS, warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = heads / key_heads;
    i64 step = (i64)heads * D, step_k = (i64)key_heads * D, at = (row * keys + first) * step_k + key_head * D;
    X* v_tile = KEEPS_VALUES ? memory + KEYS * D : memory + 2 * STAGE;
    copy_rows<KEYS>(memory, k + at, step_k, keys - first);
    copy_rows<KEYS>(v_tile, v + at, step_k, keys - first);
    wait_for_copies();
    __syncthreads();
    u32 key_left[D / 16][4], value_left[D / 16][4];
    load_left(key_left, memory, warp * 16);
    if constexpr (KEEPS_VALUES) load_left(value_left, v_tile, warp * 16);
    __syncthreads();

    int own = first + warp * 16;
    const float factor = scale * LOG2_E;
    float sums_k[D / 8][4] = {}, sums_v[D / 8][4] = {};
    // Stripes of all heads that look at these keys, one after the other.
    int from = CAUSAL ? min(first, queries) / QUERY_STRIPE * QUERY_STRIPE : 0;
    int stripes = (queries - from + QUERY_STRIPE - 1) / QUERY_STRIPE, count = stripes * group;
    auto copy_stripe = [&](int stripe) {
        i64 head = key_head * group + stripe / stripes;
        int query = from + stripe % stripes * QUERY_STRIPE;
        i64 start = (row * queries + query) * step + head * D, place = (row * heads + head) * queries + query;
        X* to = memory + stripe % 2 * STAGE;
        copy_rows<QUERY_STRIPE>(to, q + start, step, queries - query);
        copy_rows<QUERY_STRIPE>(to + QUERY_STRIPE * D, dy + start, step, queries - query);
        int i = threadIdx.x % QUERY_STRIPE;
        bool there = query + i < queries;
        if (threadIdx.x < QUERY_STRIPE) copy_4(&sums_of[stripe % 2][0][i], logsumexp + (there ? place + i : 0), there);
        else if (threadIdx.x < 2 * QUERY_STRIPE) copy_4(&sums_of[stripe % 2][1][i], deltas + (there ? place + i : 0), there);
    };
    if (0 < count) copy_stripe(0);
    for (int stripe = 0; stripe < count; stripe++) {
        wait_for_copies();
        __syncthreads();
        if (stripe + 1 < count) copy_stripe(stripe + 1);
        const X* q_tile = memory + stripe % 2 * STAGE;
        const X* dy_tile = q_tile + QUERY_STRIPE * D;
        int query = from + stripe % stripes * QUERY_STRIPE;
#pragma unroll
        for (int part = 0; part < QUERY_STRIPE; part += QUERY_PART) {
            if (CAUSAL && query + part + QUERY_PART <= own) continue;
            float scores[QUERY_PART / 8][4] = {}, dscores[QUERY_PART / 8][4] = {};
#pragma unroll
            for (int c = 0; c < D / 16; c++) {
                u32 value[4];
                if constexpr (!KEEPS_VALUES) load_tiles(value, v_tile + place(warp * 16 + lane % 16, 2 * c + lane / 16));
#pragma unroll
                for (int n = 0; n < QUERY_PART / 16; n++) {
                    u32 right[4];
                    load_across(right, q_tile, part + n * 16, c);
                    multiply_tiles(scores[2 * n], key_left[c], right[0], right[1], X());
                    multiply_tiles(scores[2 * n + 1], key_left[c], right[2], right[3], X());
                    load_across(right, dy_tile, part + n * 16, c);
                    multiply_tiles(dscores[2 * n], KEEPS_VALUES ? value_left[c] : value, right[0], right[1], X());
                    multiply_tiles(dscores[2 * n + 1], KEEPS_VALUES ? value_left[c] : value, right[2], right[3], X());
                }
            }
            // Queries after the last are zeros with a dy of zero: they add nothing.
            if (CAUSAL && query + part < own + 15) hide<QUERY_PART>(scores, own - query - part, -1);
#pragma unroll
            for (int n = 0; n < QUERY_PART / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int column = part + n * 8 + lane % 4 * 2 + i % 2;
                    scores[n][i] = power_of_2(scores[n][i] * factor - sums_of[stripe % 2][0][column] * LOG2_E);
                    dscores[n][i] = scores[n][i] * (dscores[n][i] - sums_of[stripe % 2][1][column]);
                }
            }
#pragma unroll
            for (int n = 0; n < QUERY_PART / 16; n++) {
                u32 left_v[4], left_k[4];
                as_left(left_v, scores[2 * n], scores[2 * n + 1]);
                as_left(left_k, dscores[2 * n], dscores[2 * n + 1]);
#pragma unroll
                for (int c = 0; c < D / 16; c++) {
                    u32 right[4];
                    load_down(right, dy_tile, part + n * 16, c);
                    multiply_tiles(sums_v[2 * c], left_v, right[0], right[1], X());
                    multiply_tiles(sums_v[2 * c + 1], left_v, right[2], right[3], X());
                    load_down(right, q_tile, part + n * 16, c);
                    multiply_tiles(sums_k[2 * c], left_k, right[0], right[1], X());
                    multiply_tiles(sums_k[2 * c + 1], left_k, right[2], right[3], X());
                }
            }
        }
    }
    i64 start = (row * keys + own) * step_k + key_head * D;
    store_rows(dk + start, step_k, keys - own, sums_k, scale, scale);
    store_rows(dv + start, step_k, keys - own, sums_v, 1.0f, 1.0f);
}
