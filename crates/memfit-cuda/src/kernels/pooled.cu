// What all kernels of a convolution with a max pool after it share. Generated: X (the images' type), R, S
// (the filter), C (channels in), DOWN and ACROSS (strides), RELU; for gradients and tensor cores also the
// tile of an image that a block has in shared memory: TILE_DOWN and TILE_ACROSS (windows), CHANNELS (of C at
// once).

#define TAPS (R * S * C)
#define NONE 255

// The maximum of a window's four values, and its place: the first of equals, and a NaN is kept once it is
// seen. With a ReLU, what is not positive has no argmax.
__device__ __forceinline__ float max_of_window(const float (&values)[4], u8& argmax) {
    float most = values[0];
    u32 place = 0;
#pragma unroll
    for (int i = 1; i < 4; i++) {
        bool replaces = values[i] > most || values[i] != values[i];
        most = replaces ? values[i] : most;
        place = replaces ? i : place;
    }
#ifdef RELU
    place = most > 0.0f && most < INFINITE ? place : NONE;
    most = most < 0.0f ? 0.0f : most;
#endif
    argmax = (u8)place;
    return most;
}

#ifdef TILE_DOWN
// Lines of the image under a tile, and floats of a line. Lines that stand below each other begin half of all
// banks apart.
#define LINES ((2 * TILE_DOWN - 1) * DOWN + R)
#define SEEN (((2 * TILE_ACROSS - 1) * ACROSS + S) * CHANNELS)
#define STRIDE ((SEEN + 15) / 32 * 32 + 16)
#define WINDOWS (TILE_DOWN * TILE_ACROSS)

#ifndef ROUNDED
#define ROUNDED(value) value
#endif

// Copies what a tile's windows see, with zeros around the image: a line a warp. No read hangs on a condition.
__device__ __forceinline__ void stage(float* seen, const X* x, Tile tile, int height, int width, int top, int left, int first_channel) {
    int first_line = 2 * tile.down * DOWN - top, first_pixel = 2 * tile.across * ACROSS - left;
    const X* image = x + tile.row * height * width * C + first_channel;
    for (int line = threadIdx.x >> 5; line < LINES; line += 8) {
        int h = first_line + line;
        bool exists = 0 <= h && h < height;
        const X* from = image + (exists ? (i64)h * width * C : 0);
        float values[OF_LANE];
#pragma unroll
        for (int j = 0; j < OF_LANE; j++) {
            int at = (threadIdx.x & 31) + j * 32, pixel = at / CHANNELS, w = first_pixel + pixel;
            bool inside = exists && 0 <= w && w < width;
            float value = load(from, inside ? w * C + (at - pixel * CHANNELS) : 0);
            values[j] = inside ? value : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < OF_LANE; j++) {
            int at = (threadIdx.x & 31) + j * 32;
            if (at < SEEN) seen[line * STRIDE + at] = ROUNDED(values[j]);
        }
    }
}

// The sums of an element over all blocks, by a warp, added to the gradients of the filter and of the bias
// where there is one.
extern "C" __global__ void pooled_sum(const float* parts, float* dfilter, float* dbias, int blocks, int of_filter, int of_part, int overwrite) {
    int i = blockIdx.x * 8 + (threadIdx.x >> 5);
    if (i >= (dbias ? of_part : of_filter)) return;
    double total = 0.0;
    for (int block = threadIdx.x & 31; block < blocks; block += 32) total += parts[(i64)block * of_part + i];
    total = warp_sum(total);
    float* to = i < of_filter ? dfilter + i : dbias + (i - of_filter);
    if ((threadIdx.x & 31) == 0) *to = (float)((overwrite ? 0.0 : (double)*to) + total);
}
#endif
