// Elements that move but do not change. A unit E is as many bytes as always stand together.

// Calls a body with indices of 32 bits where they suffice: dividing them is much cheaper.
#define WITH_INDEX(count, body, ...)                              \
    if ((count) < 0x7f000000) body<u32>(__VA_ARGS__);             \
    else body<i64>(__VA_ARGS__)

// Every index of this thread, over the whole grid.
#define FOR_EACH(i, count) for (I i = (I)first_item(); i < (count); i += (I)item_stride())

template <class I> __device__ __forceinline__ void copy_runs_body(const E* x, E* y, I count, I length, i64 x_start, i64 x_stride, i64 y_start, i64 y_stride) {
    FOR_EACH(i, count) {
        I run = i / length, at = i % length;
        y[y_start + run * y_stride + at] = x[x_start + run * x_stride + at];
    }
}
// Runs of `length` units, from strides to strides.
extern "C" __global__ void copy_runs(const E* x, E* y, i64 count, i64 length, i64 x_start, i64 x_stride, i64 y_start, i64 y_stride) {
    WITH_INDEX(count, copy_runs_body, x, y, count, length, x_start, x_stride, y_start, y_stride);
}

template <class I> __device__ __forceinline__ void pad_runs_body(const E* x, E* y, I count, I stride, I start, I length) {
    FOR_EACH(i, count) {
        I run = i / stride, at = i % stride;
        bool inside = start <= at && at < start + length;
        y[i] = inside ? x[(i64)run * length + (at - start)] : E();
    }
}
// Zeros before and after every run.
extern "C" __global__ void pad_runs(const E* x, E* y, i64 count, i64 stride, i64 start, i64 length) {
    WITH_INDEX(count, pad_runs_body, x, y, count, stride, start, length);
}

template <class I> __device__ __forceinline__ void pad_lines_body(const E* x, E* y, I count, I height, I width, I top, I left, I inner_height, I inner_width) {
    FOR_EACH(i, count) {
        I line = i / width, at = i % width, image = line / height, down = line % height;
        bool inside = top <= down && down < top + inner_height && left <= at && at < left + inner_width;
        y[i] = inside ? x[((i64)image * inner_height + (down - top)) * inner_width + (at - left)] : E();
    }
}
// Images among zeros; widths are in units.
extern "C" __global__ void pad_lines(const E* x, E* y, i64 count, i64 height, i64 width, i64 top, i64 left, i64 inner_height, i64 inner_width) {
    WITH_INDEX(count, pad_lines_body, x, y, count, height, width, top, left, inner_height, inner_width);
}

template <class I> __device__ __forceinline__ void crop_lines_body(const E* x, E* y, I count, I height, I width, I top, I left, I inner_height, I inner_width) {
    FOR_EACH(i, count) {
        I line = i / inner_width, at = i % inner_width, image = line / inner_height, down = line % inner_height;
        y[i] = x[((i64)image * height + down + top) * width + at + left];
    }
}
// The middle of images.
extern "C" __global__ void crop_lines(const E* x, E* y, i64 count, i64 height, i64 width, i64 top, i64 left, i64 inner_height, i64 inner_width) {
    WITH_INDEX(count, crop_lines_body, x, y, count, height, width, top, left, inner_height, inner_width);
}

#ifdef PLACE
template <class I> __device__ __forceinline__ void gather_body(const E* x, E* y, I count) {
    FOR_EACH(i, count) {
        I rest = i;
        i64 from = 0;
        PLACE
        y[i] = x[from];
    }
}
// Every unit from the place that generated code finds for it.
extern "C" __global__ void gather(const E* x, E* y, i64 count) { WITH_INDEX(count, gather_body, x, y, count); }
#endif
