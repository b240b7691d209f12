// Values changed at random. What is drawn is a function of seed, step and place in the batch. Type X.

__device__ __forceinline__ u64 seed_of(const Context* context, u64 seed) { return random_derive(random_derive(context->seed, seed), context->step); }

// A normal deviate, as memfit_ir::random has it.
__device__ __forceinline__ float random_normal(u64 seed, u64 index) {
    double radius = 1.0 - (double)random_unit(seed, 2 * index), angle = (double)random_unit(seed, 2 * index + 1);
    return (float)(sqrt(-2.0 * log(radius)) * cos(6.283185307179586476925 * angle));
}

// Zero for a share of elements, a factor for the others. `row_start` is the first row of a slice in its
// micro-batch.
template <int N> __device__ __forceinline__ void drop(const X* x, X* y, i64 first, i64 packs, u64 seed, u64 before, float rate, float scale) {
    for (i64 i = first_item(); i < packs; i += item_stride()) {
        float values[N];
        load_pack<N>(x + first, i, values);
#pragma unroll
        for (int j = 0; j < N; j++) values[j] = random_unit(seed, before + (u64)(first + i * N + j)) >= rate ? values[j] * scale : 0.0f;
        store_pack<N>(y + first, i, values);
    }
}
extern "C" __global__ void dropout(const X* x, X* y, const Context* context, i64 count, i64 row_start, i64 per_row, i64 seed, float rate, float scale) {
    const int N = 16 / sizeof(X);
    u64 own = seed_of(context, (u64)seed), before = (context->row_start + (u64)row_start) * (u64)per_row;
    drop<N>(x, y, 0, count / N, own, before, rate, scale);
    drop<1>(x, y, count / N * N, count % N, own, before, rate, scale);
}

#ifdef PLACE
#define KIND_DROPOUT 0
#define KIND_ADD 1
#define KIND_MULTIPLY 2
#define KIND_CHOOSE 3
// The same draw for all that shares a place; generated code finds it, with the row left in `rest`.
// KIND_CHOOSE: `x a + b` where it stays, else `c`.
extern "C" __global__ void noise(const X* x, X* y, const Context* context, i64 count, i64 row_start, i64 per_row, i64 seed, float rate, float a, float b, float c) {
    u64 own = seed_of(context, (u64)seed);
    for (i64 i = first_item(); i < count; i += item_stride()) {
        i64 rest = i, from = 0;
        PLACE
        u64 index = (u64)from + (context->row_start + (u64)row_start + (u64)rest) * (u64)per_row;
        float value = load(x, i), factor, term = 0.0f;
        if (KIND == KIND_ADD) { factor = 1.0f; term = rate * random_normal(own, index); }
        else if (KIND == KIND_MULTIPLY) factor = 1.0f + rate * random_normal(own, index);
        else {
            bool stays = rate <= random_unit(own, index);
            factor = stays ? a : 0.0f;
            term = stays ? b : c;
        }
        store(y, i, factor == 0.0f ? term : value * factor + term);
    }
}
#endif
