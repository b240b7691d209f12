// An optimizer's updates. Generated: STEPS, CLIP, COEFFICIENTS (into k, by one thread), RULE (over g, w and
// the states at i) and AVERAGE.

#ifdef RULE
struct Weight {
    const float *gradient, *norm, *found_inf;
    float *weight, *s1, *s2, *s3, *average;
    i64 count;
};

#define MOST 48
// Elements of a block: four neighbours for each of its threads, so that all of them are in flight at once.
#define CHUNK 1024

// Weights that share a launch; the last of the first blocks is the number of all.
struct Many {
    Weight at[MOST];
    int first_block[MOST + 2];
};

// Up to four neighbours, where there are some.
__device__ __forceinline__ void take(const float* from, i64 first, int count, float (&to)[4]) {
#pragma unroll
    for (int j = 0; j < 4; j++) to[j] = 0.0f;
    if (!from) return;
    if (count == 4) load_pack<4>(from + first, 0, to);
    else
        for (int j = 0; j < 4; j++)
            if (j < count) to[j] = from[first + j];
}
__device__ __forceinline__ void put(float* to, i64 first, int count, const float (&from)[4]) {
    if (!to) return;
    if (count == 4) store_pack<4>(to + first, 0, from);
    else
        for (int j = 0; j < 4; j++)
            if (j < count) to[first + j] = from[j];
}

extern "C" __global__ void update_many(const __grid_constant__ Many many, const Context* context) {
    if (context->stopped) return;
    int which = 0;
    while (many.first_block[which + 1] <= (int)blockIdx.x) which++;
    const Weight& at = many.at[which];
    const float *norm = at.norm, *found_inf = at.found_inf;
    if (found_inf && *found_inf != 0.0f) return;
    // Reads are in flight before the coefficients, which take their time, are there.
    const i64 first = (i64)((int)blockIdx.x - many.first_block[which]) * CHUNK + threadIdx.x * 4;
    const int count = (int)max((i64)0, min((i64)4, at.count - first));
    float weights[4], gradients[4], s1[4], s2[4], s3[4], average[4];
    take(at.weight, first, count, weights);
    take(at.gradient, first, count, gradients);
    take(at.s1, first, count, s1);
    take(at.s2, first, count, s2);
    take(at.s3, first, count, s3);
    take(at.average, first, count, average);
    __shared__ float k[8];
    const u64 iteration = context->iteration / STEPS;
    const bool due = (context->iteration + 1) % STEPS == 0;
    const float rate = context->learning_rate;
    const float scale = STEPS == 1 ? context->loss_scale : (float)STEPS;
    float limit = INFINITE, factor = 1.0f;
    CLIP
    limit *= scale;
    factor /= scale;
    const float decay = rate * WEIGHT_DECAY;
    if (threadIdx.x == 0) {
        const double step = (double)iteration + 1.0;
        COEFFICIENTS
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float w = weights[i];
        if (due) {
            float g = gradients[i];
            g = g > limit ? limit : g;
            g = factor * (g < -limit ? -limit : g);
            w = w - w * decay;
            RULE
        }
        AVERAGE
        weights[i] = w;
    }
    put(at.weight, first, count, weights);
    put(at.s1, first, count, s1);
    put(at.s2, first, count, s2);
    put(at.s3, first, count, s3);
    put(at.average, first, count, average);
}
#endif

extern "C" __global__ void correct_squares(const float* gradient, const float* squares, float* state, const Context* context, i64 count, float factor) {
    if (context->stopped) return;
    for (i64 i = first_item(); i < count; i += item_stride()) {
        float corrected = state[i] + factor * (squares[i] - gradient[i] * gradient[i]);
        if (isfinite(corrected)) state[i] = corrected;
    }
}

extern "C" __global__ void accumulate(const float* gradient, const float* found_inf, float* sum, const Context* context, i64 count, i64 steps, int overwrite) {
    if (context->stopped) return;
    if (found_inf && *found_inf != 0.0f) return;
    bool resets = overwrite || context->iteration % steps == 0;
    float factor = 1.0f / context->loss_scale;
    for (i64 i = first_item(); i < count; i += item_stride()) sum[i] = (resets ? 0.0f : sum[i]) + gradient[i] * factor;
}

extern "C" __global__ void add_accumulated(const float* sum, float* gradient, const Context* context, i64 count, i64 steps, int overwrite) {
    bool first = context->iteration % steps == 0;
    float factor = 1.0f / context->loss_scale;
    for (i64 i = first_item(); i < count; i += item_stride()) gradient[i] = (first ? 0.0f : sum[i]) + (overwrite ? 0.0f : gradient[i]) * factor;
}

extern "C" __global__ void keep_accumulated(const float* gradient, const float* found_inf, float* sum, const Context* context, i64 count) {
    if (context->stopped) return;
    if (*found_inf != 0.0f) return;
    for (i64 i = first_item(); i < count; i += item_stride()) sum[i] = gradient[i];
}
