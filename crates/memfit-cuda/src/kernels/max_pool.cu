// Pools over windows of WINDOW_HEIGHT and WINDOW_WIDTH, which move by STRIDE_HEIGHT and STRIDE_WIDTH. A
// thread has WIDTH neighbouring channels of one pixel.

// Which pack, column and line of which row an item is. Divisions of 32 bits are several times faster than
// those of 64.
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
extern "C" __global__ void max_pool(const X* x, X* y, u8* argmax, i64 count, int height, int width, int packs, int out_height, int out_width, int top, int left) {
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
            int h = down * STRIDE_HEIGHT - top + r;
            if (h < 0 || h >= height) continue;
#pragma unroll 3
            for (int s = 0; s < WINDOW_WIDTH; s++) {
                int w = across * STRIDE_WIDTH - left + s;
                if (w < 0 || w >= width) continue;
                float a[WIDTH];
                load_pack<WIDTH>(x, ((at.row * height + h) * width + w) * packs + pack, a);
#pragma unroll
                for (int j = 0; j < WIDTH; j++) {
                    bool replaces = first || a[j] > most[j] || a[j] != a[j];
                    most[j] = replaces ? a[j] : most[j];
                    place[j] = replaces ? (u8)(r * WINDOW_WIDTH + s) : place[j];
                }
                first = false;
            }
        }
#ifdef RELU
        // What is not positive has no argmax; a NaN stays.
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
        ((Pack<u8, WIDTH>*)argmax)[i] = bytes;
    }
}

#ifdef TILED
// A thread has a tile of as many pixels as a window moves by. The same windows reach all of it: each is read
// once, and every pixel gathers from those whose argmax it is. Tiles begin where windows begin, so the first
// may lie in the margin in part.
extern "C" __global__ void max_pool_grad(const X* dy, const u8* argmax, X* dx, i64 count, int height, int width, int packs, int out_height, int out_width, int top, int left, int tiles_down, int tiles_across) {
    constexpr int DOWN = (WINDOW_HEIGHT + STRIDE_HEIGHT - 1) / STRIDE_HEIGHT, ACROSS = (WINDOW_WIDTH + STRIDE_WIDTH - 1) / STRIDE_WIDTH;
    for (i64 i = first_item(); i < count; i += item_stride()) {
        const Place to = place_of(i, count, packs, tiles_across, tiles_down);
        Pack<X, WIDTH> gradients[DOWN][ACROSS];
        Pack<u8, WIDTH> places[DOWN][ACROSS];
#pragma unroll
        for (int r = 0; r < DOWN; r++)
#pragma unroll
            for (int s = 0; s < ACROSS; s++) {
                const int down = to.down - r, across = to.across - s;
                if (0 <= down && down < out_height && 0 <= across && across < out_width) {
                    const i64 at = ((to.row * out_height + down) * out_width + across) * packs + to.pack;
                    gradients[r][s] = pack_at<WIDTH>(dy, at);
                    places[r][s] = pack_at<WIDTH>(argmax, at);
                } else {
#pragma unroll
                    for (int j = 0; j < WIDTH; j++) { narrow(0.0f, gradients[r][s].at[j]); places[r][s].at[j] = 255; }
                }
            }
#pragma unroll 2
        for (int a = 0; a < STRIDE_HEIGHT; a++)
#pragma unroll 2
            for (int b = 0; b < STRIDE_WIDTH; b++) {
                const int h = to.down * STRIDE_HEIGHT - top + a, w = to.across * STRIDE_WIDTH - left + b;
                if (h < 0 || h >= height || w < 0 || w >= width) continue;
                float sum[WIDTH];
#pragma unroll
                for (int j = 0; j < WIDTH; j++) sum[j] = 0.0f;
                // From the window that is first in the image to the last, as they are added elsewhere.
#pragma unroll
                for (int r = DOWN - 1; 0 <= r; r--)
#pragma unroll
                    for (int s = ACROSS - 1; 0 <= s; s--) {
                        const int line = r * STRIDE_HEIGHT + a, column = s * STRIDE_WIDTH + b;
                        if (line >= WINDOW_HEIGHT || column >= WINDOW_WIDTH) continue;
#pragma unroll
                        for (int j = 0; j < WIDTH; j++) sum[j] += places[r][s].at[j] == line * WINDOW_WIDTH + column ? widen(gradients[r][s].at[j]) : 0.0f;
                    }
                store_pack<WIDTH>(dx, ((to.row * height + h) * width + w) * packs + to.pack, sum);
            }
    }
}
#else
// Where many windows reach a pixel, a thread has one pixel and gathers from all of them.
extern "C" __global__ void max_pool_grad_pixels(const X* dy, const u8* argmax, X* dx, i64 count, int height, int width, int packs, int out_height, int out_width, int top, int left) {
    for (i64 i = first_item(); i < count; i += item_stride()) {
        const Place to = place_of(i, count, packs, width, height);
        const int pack = to.pack, w = to.across, h = to.down;
        const i64 row = to.row;
        int down_last = min((h + top) / STRIDE_HEIGHT, out_height - 1), across_last = min((w + left) / STRIDE_WIDTH, out_width - 1);
        int down_first = max(0, (h + top - WINDOW_HEIGHT + STRIDE_HEIGHT) / STRIDE_HEIGHT), across_first = max(0, (w + left - WINDOW_WIDTH + STRIDE_WIDTH) / STRIDE_WIDTH);
        float sum[WIDTH];
#pragma unroll
        for (int j = 0; j < WIDTH; j++) sum[j] = 0.0f;
        for (int down = down_first; down <= down_last; down++)
            for (int across = across_first; across <= across_last; across++) {
                int place = (h + top - down * STRIDE_HEIGHT) * WINDOW_WIDTH + (w + left - across * STRIDE_WIDTH);
                i64 at = ((row * out_height + down) * out_width + across) * packs + pack;
                float gradient[WIDTH];
                load_pack<WIDTH>(dy, at, gradient);
                Pack<u8, WIDTH> bytes = ((const Pack<u8, WIDTH>*)argmax)[at];
#pragma unroll
                for (int j = 0; j < WIDTH; j++) sum[j] += bytes.at[j] == place ? gradient[j] : 0.0f;
            }
        store_pack<WIDTH>(dx, i, sum);
    }
}
#endif
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
