// Values times and plus numbers that repeat along the last axes. Types X, and S of the numbers.

#ifdef SCALES
// Constants of a graph.
__device__ const float scales[] = {SCALES};
__device__ const float offsets[] = {OFFSETS};
extern "C" __global__ void affine_constant(const X* x, X* y, i64 count, i64 period) {
    for (i64 i = first_item(); i < count; i += item_stride()) store(y, i, load(x, i) * scales[i % period] + offsets[i % period]);
}
#endif

// Either may be missing: its period is 0 then.
extern "C" __global__ void affine(const X* x, const S* scale, const S* offset, X* y, i64 count, i64 period_scale, i64 period_offset) {
    for (i64 i = first_item(); i < count; i += item_stride()) {
        float value = load(x, i);
        if (period_scale) value *= load(scale, i % period_scale);
        if (period_offset) value += load(offset, i % period_offset);
        store(y, i, value);
    }
}

// Sums of x dy by columns: blocks are 32 columns by 8 rows, along y every part has its own rows.
extern "C" __global__ void grad_scale_parts(const X* x, const X* dy, double* parts, i64 rows, i64 columns) {
    __shared__ double sums[8][32];
    i64 column = (i64)blockIdx.x * 32 + threadIdx.x % 32;
    int lane = threadIdx.x / 32;
    double sum = 0.0;
    if (column < columns) {
        for (i64 row = (i64)blockIdx.y * 8 + lane; row < rows; row += (i64)gridDim.y * 8) {
            sum += (double)load(x, row * columns + column) * (double)load(dy, row * columns + column);
        }
    }
    sums[lane][threadIdx.x % 32] = sum;
    __syncthreads();
    if (lane == 0 && column < columns) {
        for (int i = 1; i < 8; i++) sum += sums[i][threadIdx.x];
        parts[blockIdx.y * columns + column] = sum;
    }
}
extern "C" __global__ void grad_scale_sum(const double* parts, S* dscale, i64 count, i64 columns, int overwrite) {
    for (i64 column = first_item(); column < columns; column += item_stride()) {
        double sum = 0.0;
        for (i64 part = 0; part < count; part++) sum += parts[part * columns + column];
        store(dscale, column, overwrite ? (float)sum : (float)(load(dscale, column) + sum));
    }
}
