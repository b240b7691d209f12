// Filters and weights between their own layout and that of libraries. Types F (from) and T (to).

// HWIO (with in per group) to OHWI, and back, a tile of 32 x 32 channels at a time, so that both sides are
// read and written by lines; `taps` is height times width, and the library's filter has `wide` channels, of
// which those after `in` are 0.
extern "C" __global__ void filter_to_library(const F* from, T* to, i64 taps, i64 in, i64 out, i64 wide) {
    __shared__ float tile[32][33];
    const int across = threadIdx.x & 31, first = threadIdx.x >> 5;
    const u32 tiles_in = (u32)((wide + 31) / 32), tiles_out = (u32)((out + 31) / 32), tiles = (u32)taps * tiles_in * tiles_out;
    for (u32 index = blockIdx.x; index < tiles; index += gridDim.x) {
        const i64 o = index % tiles_out * 32, c = index / tiles_out % tiles_in * 32, tap = index / tiles_out / tiles_in;
        for (int line = first; line < 32; line += 8)
            tile[line][across] = c + line < in && o + across < out ? load(from, (tap * in + c + line) * out + o + across) : 0.0f;
        __syncthreads();
        for (int line = first; line < 32; line += 8)
            if (o + line < out && c + across < wide) store(to, ((o + line) * taps + tap) * wide + c + across, tile[across][line]);
        __syncthreads();
    }
}

extern "C" __global__ void filter_from_library(const F* from, T* to, i64 taps, i64 in, i64 out, i64 wide, int overwrite) {
    __shared__ float tile[32][33];
    const int across = threadIdx.x & 31, first = threadIdx.x >> 5;
    const u32 tiles_in = (u32)((in + 31) / 32), tiles_out = (u32)((out + 31) / 32), tiles = (u32)taps * tiles_in * tiles_out;
    for (u32 index = blockIdx.x; index < tiles; index += gridDim.x) {
        const i64 o = index % tiles_out * 32, c = index / tiles_out % tiles_in * 32, tap = index / tiles_out / tiles_in;
        for (int line = first; line < 32; line += 8)
            tile[line][across] = o + line < out && c + across < in ? load(from, ((o + line) * taps + tap) * wide + c + across) : 0.0f;
        __syncthreads();
        for (int line = first; line < 32; line += 8)
            if (c + line < in && o + across < out) {
                const i64 at = (tap * in + c + line) * out + o + across;
                store(to, at, overwrite ? tile[across][line] : load(to, at) + tile[across][line]);
            }
        __syncthreads();
    }
}

// The same numbers as another type.
extern "C" __global__ void convert(const F* from, T* to, i64 count) {
    i64 packs = count / 4;
    for (i64 i = first_item(); i < packs; i += item_stride()) {
        float values[4];
        load_pack<4>(from, i, values);
        store_pack<4>(to, i, values);
    }
    for (i64 i = packs * 4 + first_item(); i < count; i += item_stride()) store(to, i, load(from, i));
}

// Two at once: the second is short.
extern "C" __global__ void convert_both(const F* from, T* to, i64 count, const F* short_from, T* short_to, i64 short_count) {
    i64 packs = count / 4;
    for (i64 i = first_item(); i < packs; i += item_stride()) {
        float values[4];
        load_pack<4>(from, i, values);
        store_pack<4>(to, i, values);
    }
    for (i64 i = packs * 4 + first_item(); i < count; i += item_stride()) store(to, i, load(from, i));
    for (i64 i = first_item(); i < short_count; i += item_stride()) store(short_to, i, load(short_from, i));
}

#ifdef WIDTH
// Adds a weight of the last axis to every element, where there is one, and takes a function of the sum, where
// there is one; a thread always meets the same WIDTH channels.
extern "C" __global__ void finish_pixels(T* y, const F* bias, i64 packs_all, int packs) {
    i64 all = item_stride(), stride = all - all % packs, i = first_item();
    if (i >= stride) return;
    float offset[WIDTH] = {};
    if (bias) load_pack<WIDTH>(bias, i % packs, offset);
    for (; i < packs_all; i += stride) {
        float a[WIDTH];
        load_pack<WIDTH>(y, i, a);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) a[j] = FUNCTION(a[j] + offset[j]);
        store_pack<WIDTH>(y, i, a);
    }
}
#endif

// An image with margins of zeros around it, and its inner part.
extern "C" __global__ void pad_image(const F* x, T* y, i64 count, int height, int width, int channels, int top, int left, int inner_height, int inner_width, int inner_channels) {
    for (i64 i = first_item(); i < count; i += item_stride()) {
        i64 c = i % channels, w = i / channels % width - left, h = i / channels / width % height - top, n = i / channels / width / height;
        bool inside = 0 <= h && h < inner_height && 0 <= w && w < inner_width && c < inner_channels;
        store(y, i, inside ? load(x, ((n * inner_height + h) * inner_width + w) * inner_channels + c) : 0.0f);
    }
}

// Pixels of fewer than eight channels, padded with zeros.
extern "C" __global__ void eight_channels(const F* x, T* y, i64 pixels, int channels) {
    for (i64 i = first_item(); i < pixels; i += item_stride()) {
        float values[8];
#pragma unroll
        for (int c = 0; c < 8; c++) values[c] = c < channels ? load(x, i * channels + c) : 0.0f;
        store_pack<8>(y, i, values);
    }
}

extern "C" __global__ void crop_image(const F* x, T* y, i64 count, int height, int width, int channels, int top, int left, int inner_height, int inner_width, int inner_channels) {
    for (i64 i = first_item(); i < count; i += item_stride()) {
        i64 c = i % channels, w = i / channels % inner_width, h = i / channels / inner_width % inner_height, n = i / channels / inner_width / inner_height;
        store(y, i, load(x, ((n * height + h + top) * width + w + left) * channels + c));
    }
}
