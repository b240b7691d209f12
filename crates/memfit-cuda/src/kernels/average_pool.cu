// Means of windows, and the maximum of whole images. Type X; WIDTH channels are handled at once.

// The pixels under a window along an axis; margins are not counted.
__device__ __forceinline__ int window_start(int out, int stride, int pad) { return max(out * stride - pad, 0); }
__device__ __forceinline__ int window_end(int out, int stride, int pad, int window, int size) { return min(out * stride - pad + window, size); }
__device__ __forceinline__ float share_of(int rows, int columns) { return 1.0f / (float)max(max(rows, 0) * max(columns, 0), 1); }

// A thread for every window and pack of channels; `packs` are those of a pixel.
extern "C" __global__ void mean_pool(const X* x, X* y, i64 count, int height, int width, int packs, int out_height, int out_width, int window_height, int window_width, int stride_height, int stride_width, int top, int left) {
    for (i64 i = first_item(); i < count; i += item_stride()) {
        int pack = (int)(i % packs), across = (int)(i / packs % out_width), down = (int)(i / packs / out_width % out_height);
        i64 row = i / packs / out_width / out_height;
        int y0 = window_start(down, stride_height, top), y1 = window_end(down, stride_height, top, window_height, height);
        int x0 = window_start(across, stride_width, left), x1 = window_end(across, stride_width, left, window_width, width);
        float sums[WIDTH] = {}, values[WIDTH];
        for (int h = y0; h < y1; h++) {
            for (int w = x0; w < x1; w++) {
                load_pack<WIDTH>(x, ((row * height + h) * width + w) * packs + pack, values);
#pragma unroll
                for (int j = 0; j < WIDTH; j++) sums[j] += values[j];
            }
        }
        float share = share_of(y1 - y0, x1 - x0);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) sums[j] *= share;
        store_pack<WIDTH>(y, i, sums);
    }
}

// The first window that reaches a pixel along an axis.
__device__ __forceinline__ int first_window(int at, int stride, int window, int pad) {
    int before = at + pad - window + 1;
    return before <= 0 ? 0 : (before + stride - 1) / stride;
}

// A thread for every pixel and pack of channels: the shares of all windows over it.
extern "C" __global__ void mean_pool_grad(const X* dy, X* dx, i64 count, int height, int width, int packs, int out_height, int out_width, int window_height, int window_width, int stride_height, int stride_width, int top, int left) {
    for (i64 i = first_item(); i < count; i += item_stride()) {
        int pack = (int)(i % packs), w = (int)(i / packs % width), h = (int)(i / packs / width % height);
        i64 row = i / packs / width / height;
        int down_end = min((h + top) / stride_height, out_height - 1), across_end = min((w + left) / stride_width, out_width - 1);
        float sums[WIDTH] = {}, values[WIDTH];
        for (int down = first_window(h, stride_height, window_height, top); down <= down_end; down++) {
            int rows = window_end(down, stride_height, top, window_height, height) - window_start(down, stride_height, top);
            for (int across = first_window(w, stride_width, window_width, left); across <= across_end; across++) {
                int columns = window_end(across, stride_width, left, window_width, width) - window_start(across, stride_width, left);
                float share = share_of(rows, columns);
                load_pack<WIDTH>(dy, ((row * out_height + down) * out_width + across) * packs + pack, values);
#pragma unroll
                for (int j = 0; j < WIDTH; j++) sums[j] += share * values[j];
            }
        }
        store_pack<WIDTH>(dx, i, sums);
    }
}

// The maximum of every channel and its pixel: the first of equals, and a NaN is kept once it is seen.
extern "C" __global__ void global_max(const X* x, X* y, int* argmax, i64 count, i64 pixels, i64 channels) {
    for (i64 i = first_item(); i < count; i += item_stride()) {
        const X* from = x + i / channels * pixels * channels + i % channels;
        float most = -INFINITE;
        int place = 0;
        for (i64 pixel = 0; pixel < pixels; pixel++) {
            float value = load(from, pixel * channels);
            if (value > most || value != value) {
                most = value;
                place = (int)pixel;
            }
        }
        store(y, i, most);
        argmax[i] = place;
    }
}

extern "C" __global__ void global_max_grad(const X* dy, const int* argmax, X* dx, i64 count, i64 pixels, i64 channels) {
    for (i64 i = first_item(); i < count; i += item_stride()) {
        i64 channel = i % channels, pixel = i / channels % pixels, at = i / channels / pixels * channels + channel;
        store(dx, i, argmax[at] == (int)pixel ? load(dy, at) : 0.0f);
    }
}
