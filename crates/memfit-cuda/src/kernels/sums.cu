// Sums over everything, always in the same order and in double precision.

// Sums of a term of every float `x`: a part for every block, then `add_sum`.
extern "C" __global__ void sum_parts(const float* values, double* parts, i64 count) {
    double total = 0.0;
    for (i64 i = first_item(); i < count; i += item_stride()) {
        double x = values[i];
        total += TERM;
    }
    total = block_sum(total);
    if (threadIdx.x == 0) parts[blockIdx.x] = total;
}

// One block. WRITE_SUM says what is written, from `total`, `to` and `overwrite`.
extern "C" __global__ void add_sum(const double* parts, int count, float* to, int overwrite, float number) {
    double total = 0.0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) total += parts[i];
    total = block_sum(total);
    if (threadIdx.x == 0) { WRITE_SUM }
}
