// An optimizer's updates. Generated: STEPS, CLIP, COEFFICIENTS (into k, by one thread), RULE (over g, w and the states at i) and
// AVERAGE.

#ifdef RULE
struct Weight {
    const float *gradient, *norm, *verdict;
    float *weight, *s1, *s2, *s3, *average;
    i64 count;
};

#define MOST 48
#define CHUNK 4096

// Weights that share a launch; the last of the first blocks is the number of all.
struct Many {
    Weight at[MOST];
    int first_block[MOST + 2];
};

extern "C" __global__ void update_many(const __grid_constant__ Many many, const Context* context) {
    if (context->stopped) return;
    int which = 0;
    while (many.first_block[which + 1] <= (int)blockIdx.x) which++;
    const float *gradient = many.at[which].gradient, *norm = many.at[which].norm, *verdict = many.at[which].verdict;
    float *weight = many.at[which].weight, *s1 = many.at[which].s1, *s2 = many.at[which].s2, *s3 = many.at[which].s3, *average = many.at[which].average;
    if (verdict && *verdict != 0.0f) return;
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
    const i64 start = (i64)((int)blockIdx.x - many.first_block[which]) * CHUNK, end = min(start + CHUNK, many.at[which].count);
#pragma unroll 4
    for (i64 i = start + threadIdx.x; i < end; i += blockDim.x) {
        float w = weight[i];
        if (due) {
            float g = gradient[i];
            g = g > limit ? limit : g;
            g = factor * (g < -limit ? -limit : g);
            w = w - w * decay;
            RULE
        }
        AVERAGE
        weight[i] = w;
    }
}
#endif

extern "C" __global__ void accumulate(const float* gradient, const float* verdict, float* sum, const Context* context, i64 count, i64 steps, int fresh) {
    if (context->stopped) return;
    if (verdict && *verdict != 0.0f) return;
    bool anew = fresh || context->iteration % steps == 0;
    float factor = 1.0f / context->loss_scale;
    for (i64 i = first_item(); i < count; i += item_stride()) sum[i] = (anew ? 0.0f : sum[i]) + gradient[i] * factor;
}
