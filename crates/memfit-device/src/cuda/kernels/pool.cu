// Pools over windows of WINDOW_HEIGHT and WINDOW_WIDTH. A thread has WIDTH neighbouring channels of one pixel.

// Which pack, column and line of which row an item is. Divisions of 32 bits are several times faster than those of 64.
struct Place { i64 row; int down, across, pack; };
__device__ __forceinline__ Place place_of(i64 item, i64 count, int packs, int width, int height) {
    if (count <= 0x7fffffff) {
        u32 pixel = (u32)item / (u32)packs, line = pixel / (u32)width, row = line / (u32)height;
        return {row, (int)(line - row * height), (int)(pixel - line * width), (int)((u32)item - pixel * packs)};
    }
    i64 pixel = item / packs, line = pixel / width, row = line / height;
    return {row, (int)(line - row * height), (int)(pixel - line * width), (int)(item - pixel * packs)};
}

#ifdef WINDOW_HEIGHT
extern "C" __global__ void max_pool(const X* x, X* y, u8* winners, i64 count, int height, int width, int packs, int out_height, int out_width, int stride_height, int stride_width, int top, int left) {
    for (i64 i = first_item(); i < count; i += item_stride()) {
        const Place at = place_of(i, count, packs, out_width, out_height);
        const int pack = at.pack, across = at.across, down = at.down;
        float most[WIDTH];
        u8 place[WIDTH];
#pragma unroll
        for (int j = 0; j < WIDTH; j++) { most[j] = -INFINITE; place[j] = 0; }
        bool first = true;
#pragma unroll 3
        for (int r = 0; r < WINDOW_HEIGHT; r++) {
            int h = down * stride_height - top + r;
            if (h < 0 || h >= height) continue;
#pragma unroll 3
            for (int s = 0; s < WINDOW_WIDTH; s++) {
                int w = across * stride_width - left + s;
                if (w < 0 || w >= width) continue;
                float a[WIDTH];
                load_pack<WIDTH>(x, ((at.row * height + h) * width + w) * packs + pack, a);
#pragma unroll
                for (int j = 0; j < WIDTH; j++) {
                    bool wins = first || a[j] > most[j] || a[j] != a[j];
                    most[j] = wins ? a[j] : most[j];
                    place[j] = wins ? (u8)(r * WINDOW_WIDTH + s) : place[j];
                }
                first = false;
            }
        }
#ifdef RELU
        // What is not positive has no winner; what is not a number stays.
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            place[j] = most[j] > 0.0f && most[j] < INFINITE ? place[j] : (u8)255;
            most[j] = most[j] < 0.0f ? 0.0f : most[j];
        }
#endif
        store_pack<WIDTH>(y, i, most);
        Pack<u8, WIDTH> bytes;
#pragma unroll
        for (int j = 0; j < WIDTH; j++) bytes.at[j] = place[j];
        ((Pack<u8, WIDTH>*)winners)[i] = bytes;
    }
}

// Every pixel gathers from the windows that reach it.
extern "C" __global__ void max_pool_grad(const X* dy, const u8* winners, X* dx, i64 count, int height, int width, int packs, int out_height, int out_width, int stride_height, int stride_width, int top, int left) {
    for (i64 i = first_item(); i < count; i += item_stride()) {
        const Place to = place_of(i, count, packs, width, height);
        const int pack = to.pack, w = to.across, h = to.down;
        const i64 row = to.row;
        int down_last = min((h + top) / stride_height, out_height - 1), across_last = min((w + left) / stride_width, out_width - 1);
        int down_first = max(0, (h + top - WINDOW_HEIGHT + stride_height) / stride_height), across_first = max(0, (w + left - WINDOW_WIDTH + stride_width) / stride_width);
        float sum[WIDTH];
#pragma unroll
        for (int j = 0; j < WIDTH; j++) sum[j] = 0.0f;
        for (int down = down_first; down <= down_last; down++)
            for (int across = across_first; across <= across_last; across++) {
                int place = (h + top - down * stride_height) * WINDOW_WIDTH + (w + left - across * stride_width);
                i64 at = ((row * out_height + down) * out_width + across) * packs + pack;
                float slope[WIDTH];
                load_pack<WIDTH>(dy, at, slope);
                Pack<u8, WIDTH> bytes = ((const Pack<u8, WIDTH>*)winners)[at];
#pragma unroll
                for (int j = 0; j < WIDTH; j++) sum[j] += bytes.at[j] == place ? slope[j] : 0.0f;
            }
        store_pack<WIDTH>(dx, i, sum);
    }
}

// The same where windows lie side by side: every window writes its own pixels. Lines and columns behind the last window are parts of
// windows that have no slope.
extern "C" __global__ void max_pool_grad_apart(const X* dy, const u8* winners, X* dx, i64 count, int height, int width, int packs, int out_height, int out_width) {
    const int down_all = (height + WINDOW_HEIGHT - 1) / WINDOW_HEIGHT, across_all = (width + WINDOW_WIDTH - 1) / WINDOW_WIDTH;
    for (i64 i = first_item(); i < count; i += item_stride()) {
        const Place at = place_of(i, count, packs, across_all, down_all);
        float slope[WIDTH];
        Pack<u8, WIDTH> bytes;
        const bool whole = at.down < out_height && at.across < out_width;
        if (whole) {
            const i64 from = ((at.row * out_height + at.down) * out_width + at.across) * packs + at.pack;
            load_pack<WIDTH>(dy, from, slope);
            bytes = ((const Pack<u8, WIDTH>*)winners)[from];
        }
#pragma unroll
        for (int r = 0; r < WINDOW_HEIGHT; r++) {
            const int h = at.down * WINDOW_HEIGHT + r;
            if (h >= height) break;
#pragma unroll
            for (int s = 0; s < WINDOW_WIDTH; s++) {
                const int w = at.across * WINDOW_WIDTH + s;
                if (w >= width) break;
                float part[WIDTH];
#pragma unroll
                for (int j = 0; j < WIDTH; j++) part[j] = whole && bytes.at[j] == r * WINDOW_WIDTH + s ? slope[j] : 0.0f;
                store_pack<WIDTH>(dx, ((at.row * height + h) * width + w) * packs + at.pack, part);
            }
        }
    }
}
#endif

// The mean over all pixels: 32 channels and 8 lanes of pixels a block.
extern "C" __global__ void global_average(const X* x, X* y, int pixels, int channels) {
    __shared__ double shared[8][33];
    int channel = blockIdx.x * 32 + (threadIdx.x & 31), lane = threadIdx.x >> 5;
    const X* image = x + (i64)blockIdx.y * pixels * channels;
    double sum = 0.0;
    if (channel < channels)
        for (int p = lane; p < pixels; p += 8) sum += load(image, (i64)p * channels + channel);
    shared[lane][threadIdx.x & 31] = sum;
    __syncthreads();
    if (lane == 0 && channel < channels) {
        for (int other = 1; other < 8; other++) sum += shared[other][threadIdx.x & 31];
        store(y, (i64)blockIdx.y * channels + channel, (float)(sum / pixels));
    }
}

extern "C" __global__ void global_average_grad(const X* dy, X* dx, i64 count, int pixels, int packs, float share) {
    for (i64 i = first_item(); i < count; i += item_stride()) {
        const Place at = place_of(i, count, packs, pixels, 1);
        float a[WIDTH];
        load_pack<WIDTH>(dy, at.row * packs + at.pack, a);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) a[j] *= share;
        store_pack<WIDTH>(dx, i, a);
    }
}
