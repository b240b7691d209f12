// An optimizer's update of one weight. Generated: PARAMETERS, GUARD, STEPS, CLIP, COEFFICIENTS (into k, by one thread), RULE (over
// g, w and the states at i) and AVERAGE.

#ifdef RULE
extern "C" __global__ void update(const float* gradient, const float* norm, const float* verdict, float* weight, float* s1, float* s2, float* s3, float* average, const Context* context, i64 count) {
    if (context->stopped) return;
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
    for (i64 i = first_item(); i < count; i += item_stride()) {
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
