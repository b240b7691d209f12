// Convolutions of images of few channels in single precision: every thread has four filters and a strip of
// pixels, so that an input is read once for many products. Generated: R, S (the filter), C (channels in),
// ROWS (filter rows at once, backward), DOWN and ACROSS (strides).

#define STRIP 8
#define SPAN ((STRIP - 1) * ACROSS + S)

// The inputs under a strip, of one line of the image; zeros outside.
__device__ __forceinline__ void span(const float* line, int first, int width, float (&to)[SPAN * C]) {
#pragma unroll
    for (int i = 0; i < SPAN; i++) {
        int w = first + i;
        bool inside = 0 <= w && w < width;
#pragma unroll
        for (int c = 0; c < C; c++) to[i * C + c] = inside ? __ldg(line + (i64)w * C + c) : 0.0f;
    }
}

extern "C" __global__ void __launch_bounds__(256) few_forward(const float* x, const float* filter, const float* bias, float* y, i64 strips, int height, int width, int out_height, int out_width, int filters, int top, int left) {
    __shared__ float4 taps[TAPS_SHARED];
    int quads = filters / 4, groups = 256 / quads;
    for (int i = threadIdx.x; i < R * S * C * quads; i += 256) taps[i] = ((const float4*)filter)[i];
    __syncthreads();
    int quad = threadIdx.x % quads, group = threadIdx.x / quads;
    if (group >= groups) return;
    int strips_across = (out_width + STRIP - 1) / STRIP;
    float4 start = bias ? ((const float4*)bias)[quad] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (i64 strip = (i64)blockIdx.x * groups + group; strip < strips; strip += (i64)gridDim.x * groups) {
        i64 line = strip / strips_across;
        int first = (int)(strip - line * strips_across) * STRIP;
        int down = (int)(line % out_height);
        i64 row = line / out_height;
        float4 sums[STRIP];
#pragma unroll
        for (int p = 0; p < STRIP; p++) sums[p] = start;
#pragma unroll
        for (int r = 0; r < R; r++) {
            int h = down * DOWN - top + r;
            if (h < 0 || h >= height) continue;
            float in[SPAN * C];
            span(x + (row * height + h) * width * C, first * ACROSS - left, width, in);
#pragma unroll
            for (int s = 0; s < S; s++)
#pragma unroll
                for (int c = 0; c < C; c++) {
                    float4 f = taps[((r * S + s) * C + c) * quads + quad];
#pragma unroll
                    for (int p = 0; p < STRIP; p++) {
                        float a = in[(p * ACROSS + s) * C + c];
                        sums[p].x += a * f.x;
                        sums[p].y += a * f.y;
                        sums[p].z += a * f.z;
                        sums[p].w += a * f.w;
                    }
                }
        }
        float4* to = (float4*)y + (line * out_width + first) * quads + quad;
#pragma unroll
        for (int p = 0; p < STRIP; p++) {
#ifdef RELU
            sums[p] = make_float4(f_relu(sums[p].x), f_relu(sums[p].y), f_relu(sums[p].z), f_relu(sums[p].w));
#endif
            if (first + p < out_width) to[(i64)p * quads] = sums[p];
        }
    }
}

// Parts of the filter's gradient, one for each block: [block][filter row, column, channel][filters].
extern "C" __global__ void __launch_bounds__(256) few_filter(const float* x, const float* dy, float* parts, i64 strips, int height, int width, int out_height, int out_width, int filters, int top, int left) {
    __shared__ float4 shared[256];
    int quads = filters / 4, groups = 256 / quads;
    int quad = threadIdx.x % quads, group = threadIdx.x / quads, first_tap_row = blockIdx.y * ROWS;
    int strips_across = (out_width + STRIP - 1) / STRIP;
    float4 sums[ROWS * S * C];
#pragma unroll
    for (int t = 0; t < ROWS * S * C; t++) sums[t] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (group < groups)
        for (i64 strip = (i64)blockIdx.x * groups + group; strip < strips; strip += (i64)gridDim.x * groups) {
            i64 line = strip / strips_across;
            int first = (int)(strip - line * strips_across) * STRIP;
            int down = (int)(line % out_height);
            i64 row = line / out_height;
            float4 dy_strip[STRIP];
            const float4* from = (const float4*)dy + (line * out_width + first) * quads + quad;
#pragma unroll
            for (int p = 0; p < STRIP; p++) dy_strip[p] = first + p < out_width ? from[(i64)p * quads] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                int h = down * DOWN - top + first_tap_row + r;
                if (h < 0 || h >= height) continue;
                float in[SPAN * C];
                span(x + (row * height + h) * width * C, first * ACROSS - left, width, in);
#pragma unroll
                for (int s = 0; s < S; s++)
#pragma unroll
                    for (int c = 0; c < C; c++) {
                        float4& sum = sums[(r * S + s) * C + c];
#pragma unroll
                        for (int p = 0; p < STRIP; p++) {
                            float a = in[(p * ACROSS + s) * C + c];
                            sum.x += a * dy_strip[p].x;
                            sum.y += a * dy_strip[p].y;
                            sum.z += a * dy_strip[p].z;
                            sum.w += a * dy_strip[p].w;
                        }
                    }
            }
        }
#pragma unroll
    for (int t = 0; t < ROWS * S * C; t++) {
        __syncthreads();
        shared[threadIdx.x] = sums[t];
        __syncthreads();
        if (threadIdx.x < quads) {
            float4 total = shared[threadIdx.x];
            for (int other = 1; other < groups; other++) {
                float4 more = shared[other * quads + threadIdx.x];
                total.x += more.x;
                total.y += more.y;
                total.z += more.z;
                total.w += more.w;
            }
            ((float4*)parts)[((i64)blockIdx.x * (R * S * C) + first_tap_row * S * C + t) * quads + threadIdx.x] = total;
        }
    }
}

extern "C" __global__ void few_filter_sum(const float* parts, float* dfilter, int blocks, i64 count, int overwrite) {
    for (i64 i = first_item(); i < count; i += item_stride()) {
        double total = overwrite ? 0.0 : (double)dfilter[i];
        for (int block = 0; block < blocks; block++) total += parts[block * count + i];
        dfilter[i] = (float)total;
    }
}
