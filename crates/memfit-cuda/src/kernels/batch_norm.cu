// Elementwise work with coefficients of every channel. A thread always meets the same WIDTH channels, and
// reads BATCH packs before it uses them.

// Calls `work` with the first of several packs and how many they are: BATCH at a time, then the rest one by
// one.
template <class Work> __device__ __forceinline__ void over_packs(i64 i, i64 stride, i64 packs_all, const Work& work) {
    for (; i + (BATCH - 1) * stride < packs_all; i += BATCH * stride) work(i, Count<BATCH>());
    for (; i < packs_all; i += stride) work(i, Count<1>());
}

// How far apart the packs of a thread are: a multiple of the packs of a row.
__device__ __forceinline__ i64 channel_stride(int packs) { i64 all = item_stride(); return all - all % packs; }

#ifdef FORWARD
// y = (x - mean) gain + beta, and a chain after it. Generated: OTHERS (parameters), DECLARE_OTHERS,
// LOAD_OTHERS, TAKE_OTHERS, CHAIN and RESULT.
extern "C" __global__ void __launch_bounds__(256, BLOCKS_AT_ONCE) normalise(const X* x, const float* gamma, const float* beta, const float* mean, const float* variance, OTHERS X* y, i64 packs_all, int packs, float epsilon) {
    const i64 stride = channel_stride(packs);
    if (first_item() >= stride) return;
    const int pack = (int)(first_item() % packs);
    float centre[WIDTH], gain[WIDTH], offset[WIDTH];
    load_pack<WIDTH>(mean, pack, centre);
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        gain[j] = norm_gain(gamma, variance, epsilon, pack * WIDTH + j);
        offset[j] = beta ? beta[pack * WIDTH + j] : 0.0f;
    }
    over_packs(first_item(), stride, packs_all, [&](i64 i, auto count) {
        constexpr int COUNT = decltype(count)::value;
        Pack<X, WIDTH> values[COUNT];
        DECLARE_OTHERS
#pragma unroll
        for (int b = 0; b < COUNT; b++) {
            values[b] = pack_at<WIDTH>(x, i + b * stride);
            LOAD_OTHERS
        }
#pragma unroll
        for (int b = 0; b < COUNT; b++) {
            float result[WIDTH];
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                float v0 = normalised(widen(values[b].at[j]) - centre[j], gain[j], offset[j]);
                TAKE_OTHERS
                CHAIN
                result[j] = RESULT;
            }
            store_pack<WIDTH>(y, i + b * stride, result);
        }
    });
}
#endif

#ifdef BACKWARD
// Coefficients of every channel: the gain, the mean of dy, and that of dy (x - mean) over the variance. With
// MASKED, dy counts only where a ReLU after the normalisation let its value pass.
extern "C" __global__ void __launch_bounds__(256, BLOCKS_AT_ONCE) normalise_grad(const X* dy, const X* x, const float* mean, const float* coefficients, MASK_PARAMETERS X* dx, i64 packs_all, int packs) {
    const i64 stride = channel_stride(packs);
    if (first_item() >= stride) return;
    const int pack = (int)(first_item() % packs);
    float centre[WIDTH], gain[WIDTH], sum[WIDTH], product[WIDTH];
    load_pack<WIDTH>(mean, pack, centre);
    load_pack<WIDTH>(coefficients, pack, gain);
    load_pack<WIDTH>(coefficients, packs + pack, sum);
    load_pack<WIDTH>(coefficients, 2 * packs + pack, product);
#ifdef MASKED
    float offset[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; j++) offset[j] = beta ? beta[pack * WIDTH + j] : 0.0f;
#endif
    over_packs(first_item(), stride, packs_all, [&](i64 i, auto count) {
        constexpr int COUNT = decltype(count)::value;
        Pack<X, WIDTH> gradients[COUNT], values[COUNT];
#pragma unroll
        for (int b = 0; b < COUNT; b++) {
            gradients[b] = pack_at<WIDTH>(dy, i + b * stride);
            values[b] = pack_at<WIDTH>(x, i + b * stride);
        }
#pragma unroll
        for (int b = 0; b < COUNT; b++) {
            float result[WIDTH];
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                float gradient = widen(gradients[b].at[j]), distance = widen(values[b].at[j]) - centre[j];
#ifdef MASKED
                gradient = norm_passes(distance, gain[j], offset[j], below) ? gradient : 0.0f;
#endif
                result[j] = gain[j] * (gradient - sum[j] - distance * product[j]);
            }
            store_pack<WIDTH>(dx, i + b * stride, result);
        }
    });
}

extern "C" __global__ void inference_grad(const X* dy, const float* gamma, const float* variance, X* dx, i64 packs_all, int packs, float epsilon) {
    const i64 stride = channel_stride(packs);
    if (first_item() >= stride) return;
    const int pack = (int)(first_item() % packs);
    float gain[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; j++) gain[j] = norm_gain(gamma, variance, epsilon, pack * WIDTH + j);
    over_packs(first_item(), stride, packs_all, [&](i64 i, auto count) {
        constexpr int COUNT = decltype(count)::value;
        float gradients[COUNT][WIDTH];
#pragma unroll
        for (int b = 0; b < COUNT; b++) load_pack<WIDTH>(dy, i + b * stride, gradients[b]);
#pragma unroll
        for (int b = 0; b < COUNT; b++) {
#pragma unroll
            for (int j = 0; j < WIDTH; j++) gradients[b][j] *= gain[j];
            store_pack<WIDTH>(dx, i + b * stride, gradients[b]);
        }
    });
}

extern "C" __global__ void moving(const float* mean, const float* variance, float* moving_mean, float* moving_variance, const Context* context, i64 count, float momentum, const float* found_inf) {
    if (context->stopped) return;
    if (found_inf && *found_inf != 0.0f) return;
    for (i64 i = first_item(); i < count; i += item_stride()) {
        moving_mean[i] = moving_mean[i] * momentum + mean[i] * (1.0f - momentum);
        moving_variance[i] = moving_variance[i] * momentum + variance[i] * (1.0f - momentum);
    }
}
#endif
