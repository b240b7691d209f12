// Elementwise work with coefficients of every channel. A thread always meets the same WIDTH channels.

// The first pack of this thread, and how far apart its packs are: a multiple of the packs of a row.
__device__ __forceinline__ i64 channel_stride(int packs) { i64 all = item_stride(); return all - all % packs; }

#ifdef FORWARD
// y = (x - mean) scale + beta, and a chain behind it. Generated: OTHERS (parameters), DECLARE_OTHERS, LOAD_OTHERS,
// TAKE_OTHERS, CHAIN, RESULT, and BATCH, how many packs a thread reads before it uses them.
extern "C" __global__ void normalise(const X* x, const float* gamma, const float* beta, const float* mean, const float* variance, OTHERS X* y, i64 packs_all, int packs, float epsilon) {
    i64 stride = channel_stride(packs), i = first_item();
    if (i >= stride) return;
    int pack = (int)(i % packs);
    float centre[WIDTH], scale[WIDTH], offset[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        int c = pack * WIDTH + j;
        centre[j] = mean[c];
        scale[j] = (float)((gamma ? (double)gamma[c] : 1.0) / sqrt((double)variance[c] + (double)epsilon));
        offset[j] = beta ? beta[c] : 0.0f;
    }
    for (; i < packs_all; i += BATCH * stride) {
        float a[BATCH][WIDTH];
        DECLARE_OTHERS
#pragma unroll
        for (int b = 0; b < BATCH; b++)
            if (i + b * stride < packs_all) {
                load_pack<WIDTH>(x, i + b * stride, a[b]);
                LOAD_OTHERS
            }
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            float result[WIDTH];
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                float v0 = (a[b][j] - centre[j]) * scale[j] + offset[j];
                TAKE_OTHERS
                CHAIN
                result[j] = RESULT;
            }
            if (i + b * stride < packs_all) store_pack<WIDTH>(y, i + b * stride, result);
        }
    }
}
#endif

#ifdef BACKWARD
extern "C" __global__ void normalise_grad(const X* dy, const X* x, const float* mean, const float* coefficients, X* dx, i64 packs_all, int packs) {
    i64 stride = channel_stride(packs), i = first_item();
    if (i >= stride) return;
    int pack = (int)(i % packs), columns = packs * WIDTH;
    float centre[WIDTH], scale[WIDTH], sum[WIDTH], product[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        int c = pack * WIDTH + j;
        centre[j] = mean[c];
        scale[j] = coefficients[c];
        sum[j] = coefficients[columns + c];
        product[j] = coefficients[2 * columns + c];
    }
    for (; i < packs_all; i += 2 * stride) {
        float slopes[2][WIDTH], values[2][WIDTH];
#pragma unroll
        for (int b = 0; b < 2; b++)
            if (i + b * stride < packs_all) {
                load_pack<WIDTH>(dy, i + b * stride, slopes[b]);
                load_pack<WIDTH>(x, i + b * stride, values[b]);
            }
#pragma unroll
        for (int b = 0; b < 2; b++) {
#pragma unroll
            for (int j = 0; j < WIDTH; j++) slopes[b][j] = scale[j] * (slopes[b][j] - sum[j] - (values[b][j] - centre[j]) * product[j]);
            if (i + b * stride < packs_all) store_pack<WIDTH>(dx, i + b * stride, slopes[b]);
        }
    }
}

extern "C" __global__ void inference_grad(const X* dy, const float* gamma, const float* variance, X* dx, i64 packs_all, int packs, float epsilon) {
    i64 stride = channel_stride(packs), i = first_item();
    if (i >= stride) return;
    int pack = (int)(i % packs);
    float scale[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        int c = pack * WIDTH + j;
        scale[j] = (float)((gamma ? (double)gamma[c] : 1.0) / sqrt((double)variance[c] + (double)epsilon));
    }
    for (; i < packs_all; i += stride) {
        float a[WIDTH];
        load_pack<WIDTH>(dy, i, a);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) a[j] *= scale[j];
        store_pack<WIDTH>(dx, i, a);
    }
}

extern "C" __global__ void moving(const float* mean, const float* variance, float* moving_mean, float* moving_variance, const Context* context, i64 count, float momentum) {
    if (context->stopped) return;
    for (i64 i = first_item(); i < count; i += item_stride()) {
        moving_mean[i] = moving_mean[i] * momentum + mean[i] * (1.0f - momentum);
        moving_variance[i] = moving_variance[i] * momentum + variance[i] * (1.0f - momentum);
    }
}
#endif
