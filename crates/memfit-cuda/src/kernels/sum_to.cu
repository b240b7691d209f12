// Sums over dimensions that were broadcast: REPEATS elements of X to one. KEPT and REPEATED find their
// places.

__device__ __forceinline__ i64 kept_place(i64 rest) {
    i64 from = 0;
    KEPT
    return from;
}
__device__ __forceinline__ i64 repeated_place(i64 rest) {
    i64 from = 0;
    REPEATED
    return from;
}

// A thread for every sum: neighbours read neighbours.
extern "C" __global__ void sum_by_threads(const X* dy, X* dx, i64 count) {
    for (i64 i = first_item(); i < count; i += item_stride()) {
        i64 start = kept_place(i);
        double sum = 0.0;
        for (i64 repeat = 0; repeat < REPEATS; repeat++) sum += load(dy, start + repeated_place(repeat));
        store(dx, i, (float)sum);
    }
}

// A block for every sum.
extern "C" __global__ void sum_by_blocks(const X* dy, X* dx, i64 count) {
    for (i64 i = blockIdx.x; i < count; i += gridDim.x) {
        i64 start = kept_place(i);
        double sum = 0.0;
        for (i64 repeat = threadIdx.x; repeat < REPEATS; repeat += blockDim.x) sum += load(dy, start + repeated_place(repeat));
        sum = block_sum(sum);
        if (threadIdx.x == 0) store(dx, i, (float)sum);
    }
}
