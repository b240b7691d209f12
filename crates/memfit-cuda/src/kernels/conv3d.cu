// Convolution over volumes as products of matrices: what a product reads is gathered side by side. Types X of
// volumes and W of the kernel stand before this.

// Sizes of the volume that is read (with channels) and of that whose places are counted.
#define GEOMETRY int depth, int height, int width, int channels, int out_depth, int out_height, int out_width, int kernel_depth, int kernel_height, int kernel_width, int stride_depth, int stride_height, int stride_width, int dilation_depth, int dilation_height, int dilation_width, int pad_depth, int pad_height, int pad_width

// Where a tap of a window stands along an axis; below 0 or past the end in the margin.
__device__ __forceinline__ int tap_at(int window, int tap, int stride, int dilation, int pad) { return window * stride + tap * dilation - pad; }
// Which window has this place under a tap; below 0 where none has.
__device__ __forceinline__ int window_of(int place, int tap, int stride, int dilation, int pad) {
    int from = place + pad - tap * dilation;
    return from % stride == 0 ? from / stride : -1;
}

// Writes the values under every tap of every window (BACK: the gradients that every window adds to a place by
// every tap), for some windows of all rows from `first` on: `patches[window][tap][channel]`.
#define GATHER(NAME, PLACE)                                                                                                              \
    extern "C" __global__ void NAME(const X* x, X* patches, i64 first, i64 count, GEOMETRY) {                                            \
        const i64 taps = (i64)kernel_depth * kernel_height * kernel_width, line = taps * channels;                                       \
        const i64 windows = (i64)out_depth * out_height * out_width;                                                                     \
        X zero;                                                                                                                          \
        narrow(0.0f, zero);                                                                                                              \
        for (i64 i = first_item(); i < count * line; i += item_stride()) {                                                               \
            const i64 window = first + i / line, row = window / windows, at = window % windows;                                          \
            const int channel = (int)(i % channels), tap = (int)(i % line / channels);                                                   \
            const int z = PLACE((int)(at / ((i64)out_height * out_width)), tap / (kernel_height * kernel_width), stride_depth, dilation_depth, pad_depth);   \
            const int y = PLACE((int)(at / out_width % out_height), tap / kernel_width % kernel_height, stride_height, dilation_height, pad_height);         \
            const int w = PLACE((int)(at % out_width), tap % kernel_width, stride_width, dilation_width, pad_width);                     \
            const bool inside = 0 <= z && z < depth && 0 <= y && y < height && 0 <= w && w < width;                                      \
            patches[i] = inside ? x[(((row * depth + z) * height + y) * width + w) * channels + channel] : zero;                         \
        }                                                                                                                                \
    }
GATHER(gather_windows, tap_at)
GATHER(gather_places, window_of)

// The kernel as a product takes it: `to[tap][in][out]`, or `to[tap][out][in]` backwards, with zeros between
// groups.
extern "C" __global__ void spread_kernel(const W* kernel, X* to, i64 count, int ins, int outs, int groups, int back) {
    const int in_group = ins / groups, out_group = outs / groups;
    for (i64 i = first_item(); i < count; i += item_stride()) {
        const i64 tap = i / ((i64)ins * outs);
        const int rest = (int)(i % ((i64)ins * outs)), in = back ? rest % ins : rest / outs, out = back ? rest / ins : rest % outs;
        const bool together = in / in_group == out / out_group;
        store(to, i, together ? load(kernel, (tap * in_group + in % in_group) * outs + out) : 0.0f);
    }
}

// Adds the parts of a gradient that lie within groups.
extern "C" __global__ void pick_kernel(const float* from, W* dkernel, i64 count, int ins, int outs, int groups, int overwrite) {
    const int in_group = ins / groups, out_group = outs / groups;
    for (i64 i = first_item(); i < count; i += item_stride()) {
        const int out = (int)(i % outs);
        const i64 line = i / outs, tap = line / in_group;
        const float gradient = from[(tap * ins + out / out_group * in_group + line % in_group) * outs + out];
        store(dkernel, i, overwrite ? gradient : load(dkernel, i) + gradient);
    }
}
