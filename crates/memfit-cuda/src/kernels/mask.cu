// Masks, 1 at places that count, and weights of samples. X is the type of what is read; COUNTS(x, i) says
// whether an element makes its place count.

#ifdef COUNTS
extern "C" __global__ void mask(const X* x, float* y, i64 places, i64 features) {
    for (i64 place = first_item(); place < places; place += item_stride()) {
        bool counts = false;
        for (i64 i = place * features; !counts && i < (place + 1) * features; i++) counts = COUNTS(x, i);
        y[place] = counts ? 1.0f : 0.0f;
    }
}
#endif

#ifdef BALANCE
extern "C" __global__ void weight_parts(const float* weights, double* parts, i64 count) {
    double total = 0.0;
    for (i64 i = first_item(); i < count; i += item_stride()) total += weights[i];
    total = block_sum(total);
    if (threadIdx.x == 0) parts[blockIdx.x] = total;
}

// Weights times their count over their sum; all 0 where that is. Every block adds the parts up.
extern "C" __global__ void balance(const float* weights, float* y, const double* parts, int parts_count, i64 count) {
    double total = 0.0;
    for (int i = threadIdx.x; i < parts_count; i += blockDim.x) total += parts[i];
    total = block_sum(total);
    const float factor = total == 0.0 ? 0.0f : (float)((double)count / total);
    for (i64 i = first_item(); i < count; i += item_stride()) y[i] = factor * weights[i];
}
#endif
