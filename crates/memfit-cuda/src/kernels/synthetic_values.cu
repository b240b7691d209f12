// Synthetic rows that are drawn where they are needed. T is the type of an element; `row` elements make a
// row, `classes` a one-hot vector.

__device__ __forceinline__ u64 first_row(const Context* context, i64 row_start) {
    return context->source_row + context->row_start + row_start;
}
__device__ __forceinline__ void put(float* to, i64 i, double x) { to[i] = (float)x; }
__device__ __forceinline__ void put(int* to, i64 i, double x) { to[i] = (int)(float)x; }

extern "C" __global__ void uniform(T* to, const Context* context, i64 count, i64 row, i64 row_start, i64 seed, i64 low_bits, i64 high_bits) {
    double low = __longlong_as_double(low_bits), high = __longlong_as_double(high_bits);
    u64 first = first_row(context, row_start) * row;
    for (i64 i = first_item(); i < count; i += item_stride())
        put(to, i, (double)(float)(low + (high - low) * (double)random_unit(seed, first + i)));
}

extern "C" __global__ void integers(T* to, const Context* context, i64 count, i64 row, i64 row_start, i64 seed, i64 low, i64 high) {
    u64 first = first_row(context, row_start) * row;
    for (i64 i = first_item(); i < count; i += item_stride())
        to[i] = (T)(low + (i64)((random_bits(seed, first + i) >> 33) % (u64)(high - low)));
}

extern "C" __global__ void one_hot(T* to, const Context* context, i64 count, i64 row, i64 row_start, i64 seed, i64 classes, i64 unused) {
    u64 first = first_row(context, row_start) * (row / classes);
    for (i64 i = first_item(); i < count; i += item_stride()) {
        i64 vector = i / classes;
        i64 place = (i64)((random_bits(seed, first + vector) >> 33) % (u64)classes);
        to[i] = (T)(i - vector * classes == place);
    }
}
