// Attention in tiles of 32 queries and 32 keys, on plain floats: for every width and type that tensor cores
// do not take. Type X, the type of sums L, widths WIDTH and VALUE_WIDTH, CAUSAL, QUERY_MASK, KEY_MASK and
// DROPOUT stand before this. A block is 256 threads; eight neighbours of a warp share a query (or a key,
// where gradients of keys are summed) and four of its scores each.

#define TILE 32
#define CHUNK 32
#define SHARE 4
#define PITCH (CHUNK + 1)

// A tile of rows by a chunk of columns, zeros where there are none.
__device__ __forceinline__ void load_chunk(float* to, const X* from, i64 step, int rows, int column, int width) {
    for (int i = threadIdx.x; i < TILE * CHUNK; i += 256) {
        int r = i / CHUNK, c = i % CHUNK;
        to[r * PITCH + c] = (r < rows && column + c < width) ? load(from, r * step + column + c) : 0.0f;
    }
}

// Adds the products of this thread's row of `a` with four rows of `b` over a width.
template <int W>
__device__ __forceinline__ void multiply_rows(float* a, float* b, const X* from_a, i64 step_a, int rows_a, const X* from_b, i64 step_b, int rows_b, float (&sums)[SHARE]) {
    int own = threadIdx.x / 8, part = threadIdx.x % 8;
    for (int column = 0; column < W; column += CHUNK) {
        __syncthreads();
        load_chunk(a, from_a, step_a, rows_a, column, W);
        load_chunk(b, from_b, step_b, rows_b, column, W);
        __syncthreads();
#pragma unroll
        for (int c = 0; c < CHUNK; c++) {
            float x = a[own * PITCH + c];
#pragma unroll
            for (int j = 0; j < SHARE; j++) sums[j] += x * b[(part + 8 * j) * PITCH + c];
        }
    }
}

// Adds a row of weights times a tile of rows; this thread has every eighth column.
template <int W, int N>
__device__ __forceinline__ void add_weighted(const float* weights, float* b, const X* from, i64 step, int rows, float (&sums)[N]) {
    int own = threadIdx.x / 8, part = threadIdx.x % 8;
#pragma unroll
    for (int column = 0; column < W; column += CHUNK) {
        __syncthreads();
        load_chunk(b, from, step, rows, column, W);
        __syncthreads();
#pragma unroll 8
        for (int r = 0; r < TILE; r++) {
            float weight = weights[own * PITCH + r];
#pragma unroll
            for (int j = 0; j < SHARE; j++) sums[column / 8 + j] += weight * b[r * PITCH + part + 8 * j];
        }
    }
}

template <int W, int N>
__device__ __forceinline__ void store_row(X* to, const float (&values)[N], float factor) {
#pragma unroll
    for (int j = 0; j < N; j++) {
        int column = threadIdx.x % 8 + 8 * j;
        if (column < W) store(to, column, values[j] * factor);
    }
}

#define ACROSS(W) (((W) + CHUNK - 1) / CHUNK * SHARE)

#define NONE 0x7fffffff

// What hides keys: masks, 1 at places that count, and draws for every weight of a value.
struct Hiding {
    const float *query_mask, *key_mask;
    int queries, keys, first_key;
    u64 draws, first_draw;
    float rate, factor;

    // A query that does not count or sees no key takes the mean of all values.
    __device__ __forceinline__ bool is_blind(int query) const {
        return (QUERY_MASK && query < queries && query_mask[query] == 0.0f) || (KEY_MASK && (CAUSAL ? query < first_key : first_key == NONE));
    }
    __device__ __forceinline__ bool sees(int query, int key) const {
        return query < queries && key < keys && (!CAUSAL || key <= query) && (!KEY_MASK || key_mask[key] != 0.0f);
    }
    // A weight, or 0 where it is dropped.
    __device__ __forceinline__ float drop(int query, int key, float x) const {
        if (!DROPOUT) return x;
        return rate <= random_unit(draws, first_draw + (u64)query * keys + key) ? x * factor : 0.0f;
    }
};
#define HIDING const float *query_mask, const float *key_mask, const Context *context, i64 row_start, i64 sequence, float rate, float factor

// What one row hides from one head. All threads of the block call this.
__device__ __forceinline__ Hiding hiding_of(i64 row, i64 head, int heads, int queries, int keys, HIDING) {
    __shared__ int first_key;
    Hiding hiding = {query_mask + row * queries, key_mask + row * keys, queries, keys, NONE, 0, 0, rate, factor};
    if (KEY_MASK) {
        __syncthreads();
        if (threadIdx.x == 0) first_key = NONE;
        __syncthreads();
        int key = threadIdx.x;
        while (key < keys && hiding.key_mask[key] == 0.0f) key += 256;
        if (key < keys) atomicMin(&first_key, key);
        __syncthreads();
        hiding.first_key = first_key;
    }
    if (DROPOUT) {
        hiding.draws = random_derive(random_derive(context->seed, (u64)sequence), context->step);
        hiding.first_draw = (((context->row_start + row_start + row) * heads + head) * queries) * keys;
    }
    return hiding;
}
#define MASKED (QUERY_MASK || KEY_MASK)
#define SKIPS (CAUSAL && !MASKED)

// Blocks: heads of all rows, and tiles of queries.
extern "C" __global__ void __launch_bounds__(256) attention(const X* q, const X* k, const X* v, X* y, L* logsumexp, int queries, int keys, int heads, int key_heads, float scale, HIDING) {
    __shared__ float a[TILE * PITCH], b[TILE * PITCH], weights[TILE * PITCH];
    i64 row = blockIdx.x / heads, head = blockIdx.x % heads, key_head = head / (heads / key_heads);
    // Later queries see more keys: they come first.
    int first = ((int)gridDim.y - 1 - (int)blockIdx.y) * TILE, own = threadIdx.x / 8, part = threadIdx.x % 8;
    int count = min(TILE, queries - first), end = SKIPS ? min(keys, first + count) : keys;
    i64 step_q = (i64)heads * WIDTH, step_k = (i64)key_heads * WIDTH, step_v = (i64)key_heads * VALUE_WIDTH;
    const X* q_tile = q + (row * queries + first) * step_q + head * WIDTH;
    const X* k_head = k + row * keys * step_k + key_head * WIDTH;
    const X* v_head = v + row * keys * step_v + key_head * VALUE_WIDTH;
    const Hiding hiding = hiding_of(row, head, heads, queries, keys, query_mask, key_mask, context, row_start, sequence, rate, factor);
    const bool is_blind = MASKED && hiding.is_blind(first + own);
    float values[ACROSS(VALUE_WIDTH)] = {};
    float most = -INFINITE, total = 0.0f;
    for (int key = 0; key < end; key += TILE) {
        float scores[SHARE] = {};
        int here = min(TILE, end - key);
        multiply_rows<WIDTH>(a, b, q_tile, step_q, count, k_head + key * step_k, step_k, here, scores);
        float most_now = most;
#pragma unroll
        for (int j = 0; j < SHARE; j++) {
            int at = key + part + 8 * j;
            scores[j] = is_blind ? (at < keys ? 0.0f : -INFINITE) : hiding.sees(first + own, at) ? scores[j] * scale : -INFINITE;
            most_now = f_maximum(most_now, scores[j]);
        }
#pragma unroll
        for (int step = 4; step > 0; step >>= 1) most_now = f_maximum(most_now, __shfl_xor_sync(0xffffffffu, most_now, step));
        // A query that sees nothing yet keeps its zeros.
        float base = most_now == -INFINITE ? 0.0f : most_now, shrinks = expf(most - base), sum = 0.0f;
#pragma unroll
        for (int j = 0; j < SHARE; j++) {
            float weight = expf(scores[j] - base);
            weights[own * PITCH + part + 8 * j] = hiding.drop(first + own, key + part + 8 * j, weight);
            sum += weight;
        }
#pragma unroll
        for (int step = 4; step > 0; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        total = total * shrinks + sum;
        most = most_now;
#pragma unroll
        for (int j = 0; j < ACROSS(VALUE_WIDTH); j++) values[j] *= shrinks;
        add_weighted<VALUE_WIDTH>(weights, b, v_head + key * step_v, step_v, here, values);
    }
    if (own >= count) return;
    i64 query = row * queries + first + own;
    store_row<VALUE_WIDTH>(y + (query * heads + head) * VALUE_WIDTH, values, 1.0f / total);
    if (part == 0) store(logsumexp, (row * heads + head) * queries + first + own, most + logf(total));
}

// Gradients of queries, and the sum of dy y of every query and head, which the gradients of keys need too.
// `dq` may stand where `y` stands. Blocks: heads of all rows, and tiles of queries.
extern "C" __global__ void __launch_bounds__(256) attention_grad_queries(const X* dy, const X* q, const X* k, const X* v, const L* logsumexp, float* deltas, const X* y, X* dq, int queries, int keys, int heads, int key_heads, float scale, HIDING) {
    __shared__ float a[TILE * PITCH], b[TILE * PITCH], weights[TILE * PITCH];
    i64 row = blockIdx.x / heads, head = blockIdx.x % heads, key_head = head / (heads / key_heads);
    int first = ((int)gridDim.y - 1 - (int)blockIdx.y) * TILE, own = threadIdx.x / 8, part = threadIdx.x % 8;
    int count = min(TILE, queries - first), end = SKIPS ? min(keys, first + count) : keys;
    i64 step_q = (i64)heads * WIDTH, step_y = (i64)heads * VALUE_WIDTH;
    i64 step_k = (i64)key_heads * WIDTH, step_v = (i64)key_heads * VALUE_WIDTH;
    const X* q_tile = q + (row * queries + first) * step_q + head * WIDTH;
    const X* dy_tile = dy + (row * queries + first) * step_y + head * VALUE_WIDTH;
    const X* k_head = k + row * keys * step_k + key_head * WIDTH;
    const X* v_head = v + row * keys * step_v + key_head * VALUE_WIDTH;
    const Hiding hiding = hiding_of(row, head, heads, queries, keys, query_mask, key_mask, context, row_start, sequence, rate, factor);
    const bool is_blind = MASKED && hiding.is_blind(first + own);
    i64 at_sum = (row * heads + head) * queries + first + own;
    float lse = own < count ? load(logsumexp, at_sum) : INFINITE, delta = 0.0f;
    if (own < count) {
        i64 start = ((row * queries + first + own) * heads + head) * VALUE_WIDTH;
        for (int c = part; c < VALUE_WIDTH; c += 8) delta += load(dy, start + c) * load(y, start + c);
    }
#pragma unroll
    for (int step = 4; step > 0; step >>= 1) delta += __shfl_xor_sync(0xffffffffu, delta, step);
    if (own < count && part == 0) deltas[at_sum] = delta;
    float sums[ACROSS(WIDTH)] = {};
    for (int key = 0; key < end; key += TILE) {
        float scores[SHARE] = {}, dscores[SHARE] = {};
        int here = min(TILE, end - key);
        multiply_rows<WIDTH>(a, b, q_tile, step_q, count, k_head + key * step_k, step_k, here, scores);
        multiply_rows<VALUE_WIDTH>(a, b, dy_tile, step_y, count, v_head + key * step_v, step_v, here, dscores);
#pragma unroll
        for (int j = 0; j < SHARE; j++) {
            int at = key + part + 8 * j;
            // Scores of the blind are constant.
            bool seen = !is_blind && hiding.sees(first + own, at);
            weights[own * PITCH + part + 8 * j] = seen ? scale * expf(scores[j] * scale - lse) * (hiding.drop(first + own, at, dscores[j]) - delta) : 0.0f;
        }
        add_weighted<WIDTH>(weights, b, k_head + key * step_k, step_k, here, sums);
    }
    if (own < count) store_row<WIDTH>(dq + ((row * queries + first + own) * heads + head) * WIDTH, sums, 1.0f);
}

// Gradients of keys and values. Blocks: heads of keys of all rows, and tiles of keys. A block reads the keys
// and values that it overwrites, and no others.
extern "C" __global__ void __launch_bounds__(256) attention_grad_keys(const X* dy, const X* q, const X* k, const X* v, const L* logsumexp, const float* deltas, X* dk, X* dv, int queries, int keys, int heads, int key_heads, float scale, HIDING) {
    __shared__ float a[TILE * PITCH], b[TILE * PITCH], weights[TILE * PITCH], dscores_tile[TILE * PITCH];
    i64 row = blockIdx.x / key_heads, key_head = blockIdx.x % key_heads;
    int first = (int)blockIdx.y * TILE, own = threadIdx.x / 8, part = threadIdx.x % 8, group = heads / key_heads;
    int count = min(TILE, keys - first);
    i64 step_q = (i64)heads * WIDTH, step_y = (i64)heads * VALUE_WIDTH;
    i64 step_k = (i64)key_heads * WIDTH, step_v = (i64)key_heads * VALUE_WIDTH;
    const X* k_tile = k + (row * keys + first) * step_k + key_head * WIDTH;
    const X* v_tile = v + (row * keys + first) * step_v + key_head * VALUE_WIDTH;
    float sums_k[ACROSS(WIDTH)] = {}, sums_v[ACROSS(VALUE_WIDTH)] = {};
    for (int member = 0; member < group; member++) {
        i64 head = key_head * group + member;
        const Hiding hiding = hiding_of(row, head, heads, queries, keys, query_mask, key_mask, context, row_start, sequence, rate, factor);
        for (int query = SKIPS ? first : 0; query < queries; query += TILE) {
            float scores[SHARE] = {}, dscores[SHARE] = {};
            int here = min(TILE, queries - query);
            const X* q_tile = q + (row * queries + query) * step_q + head * WIDTH;
            const X* dy_tile = dy + (row * queries + query) * step_y + head * VALUE_WIDTH;
            multiply_rows<WIDTH>(a, b, k_tile, step_k, count, q_tile, step_q, here, scores);
            multiply_rows<VALUE_WIDTH>(a, b, v_tile, step_v, count, dy_tile, step_y, here, dscores);
#pragma unroll
            for (int j = 0; j < SHARE; j++) {
                int at = query + part + 8 * j;
                const bool is_blind = MASKED && at < queries && first + own < keys && hiding.is_blind(at);
                bool seen = !is_blind && hiding.sees(at, first + own);
                i64 at_sum = (row * heads + head) * queries + at;
                float weight = seen || is_blind ? expf((is_blind ? 0.0f : scores[j] * scale) - load(logsumexp, at_sum)) : 0.0f;
                weights[own * PITCH + part + 8 * j] = hiding.drop(at, first + own, weight);
                dscores_tile[own * PITCH + part + 8 * j] = seen ? scale * weight * (hiding.drop(at, first + own, dscores[j]) - deltas[at_sum]) : 0.0f;
            }
            add_weighted<VALUE_WIDTH>(weights, b, dy_tile, step_y, here, sums_v);
            add_weighted<WIDTH>(dscores_tile, b, q_tile, step_q, here, sums_k);
        }
    }
    if (own >= count) return;
    store_row<WIDTH>(dk + ((row * keys + first + own) * key_heads + key_head) * WIDTH, sums_k, 1.0f);
    store_row<VALUE_WIDTH>(dv + ((row * keys + first + own) * key_heads + key_head) * VALUE_WIDTH, sums_v, 1.0f);
}
