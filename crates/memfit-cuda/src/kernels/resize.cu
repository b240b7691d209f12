// Images of another height and width by half-pixel centres, and the exact transpose of that. Type X, and
// BILINEAR.

// The pixels that a new pixel is made of, along an axis, with their shares.
struct Sources {
    int first, second;
    float share_first, share_second;
};
__device__ __forceinline__ Sources sources_of(i64 from, i64 to, i64 pixel) {
    Sources sources;
    if (BILINEAR) {
        // (pixel + 1/2) from / to - 1/2, one pixel more so that it is not negative, in parts of 2 to.
        i64 place = (2 * pixel + 1) * from + to, above = place / (2 * to), part = place % (2 * to);
        sources.share_second = (float)part / (float)(2 * to);
        sources.share_first = 1.0f - sources.share_second;
        sources.first = (int)min(max(above - 1, 0ll), from - 1);
        sources.second = (int)min(above, from - 1);
    } else {
        sources.first = sources.second = (int)min((2 * pixel + 1) * from / (2 * to), from - 1);
        sources.share_first = 1.0f;
        sources.share_second = 0.0f;
    }
    return sources;
}
__device__ __forceinline__ float share_of(i64 from, i64 to, i64 old, i64 pixel) {
    Sources sources = sources_of(from, to, pixel);
    return (sources.first == old ? sources.share_first : 0.0f) + (sources.second == old ? sources.share_second : 0.0f);
}

extern "C" __global__ void resize(const X* x, X* y, i64 count, int height, int width, int channels, int out_height, int out_width) {
    for (i64 i = first_item(); i < count; i += item_stride()) {
        i64 channel = i % channels, across = i / channels % out_width, down = i / channels / out_width % out_height, row = i / channels / out_width / out_height;
        Sources high = sources_of(height, out_height, down), wide = sources_of(width, out_width, across);
        const X* image = x + row * height * width * channels + channel;
        float sum = 0.0f;
#pragma unroll
        for (int part = 0; part < 4; part++) {
            i64 h = part / 2 ? high.second : high.first, w = part % 2 ? wide.second : wide.first;
            float share = (part / 2 ? high.share_second : high.share_first) * (part % 2 ? wide.share_second : wide.share_first);
            if (share != 0.0f) sum += share * load(image, (h * width + w) * channels);
        }
        store(y, i, sum);
    }
}

// The new pixels that may be made of an old one.
__device__ __forceinline__ i64 reached_start(i64 from, i64 to, i64 pixel) { return max(max(pixel - 1, 0ll) * to / from - 1, 0ll); }
__device__ __forceinline__ i64 reached_end(i64 from, i64 to, i64 pixel) { return min(((pixel + 2) * to + from - 1) / from, to); }

extern "C" __global__ void resize_grad(const X* dy, X* dx, i64 count, int height, int width, int channels, int out_height, int out_width) {
    for (i64 i = first_item(); i < count; i += item_stride()) {
        i64 channel = i % channels, w = i / channels % width, h = i / channels / width % height, row = i / channels / width / height;
        const X* dy_image = dy + row * out_height * out_width * channels + channel;
        i64 down_end = reached_end(height, out_height, h), across_start = reached_start(width, out_width, w), across_end = reached_end(width, out_width, w);
        float sum = 0.0f;
        for (i64 down = reached_start(height, out_height, h); down < down_end; down++) {
            float high = share_of(height, out_height, h, down);
            if (high == 0.0f) continue;
            for (i64 across = across_start; across < across_end; across++) {
                float share = high * share_of(width, out_width, w, across);
                if (share != 0.0f) sum += share * load(dy_image, (down * out_width + across) * channels);
            }
        }
        store(dx, i, sum);
    }
}
