// Filters and weights between their own layout and that of libraries. Types F (from) and T (to).

// HWIO (with in per group) to OHWI, and back; `taps` is height times width, and the library's filter has `wide` channels, of which
// those behind `in` are 0.
extern "C" __global__ void filter_to_library(const F* from, T* to, i64 taps, i64 in, i64 out, i64 wide) {
    i64 count = taps * wide * out;
    for (i64 i = first_item(); i < count; i += item_stride()) {
        i64 c = i % wide, t = i / wide % taps, o = i / wide / taps;
        store(to, i, c < in ? load(from, (t * in + c) * out + o) : 0.0f);
    }
}

extern "C" __global__ void filter_from_library(const F* from, T* to, i64 taps, i64 in, i64 out, i64 wide, int fresh) {
    i64 count = taps * in * out;
    for (i64 i = first_item(); i < count; i += item_stride()) {
        i64 o = i % out, c = i / out % in, t = i / out / in;
        float value = load(from, (o * taps + t) * wide + c);
        store(to, i, fresh ? value : load(to, i) + value);
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
// Adds a weight of the last axis to every element; a thread always meets the same WIDTH channels.
extern "C" __global__ void add_bias(T* y, const F* bias, i64 packs_all, int packs) {
    i64 all = item_stride(), stride = all - all % packs, i = first_item();
    if (i >= stride) return;
    float offset[WIDTH];
    load_pack<WIDTH>(bias, i % packs, offset);
    for (; i < packs_all; i += stride) {
        float a[WIDTH];
        load_pack<WIDTH>(y, i, a);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) a[j] += offset[j];
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

// Pixels of fewer than eight channels with zeros behind them.
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
