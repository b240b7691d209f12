// Sums over everything, and over the columns of a matrix; always in the same order, in double precision between short stretches.

#ifdef TERM
// Sums of a term of every float `x`: a part for every block, then `settle`.
extern "C" __global__ void sum_parts(const float* values, double* parts, i64 count) {
    double total = 0.0;
    for (i64 i = first_item(); i < count; i += item_stride()) {
        double x = values[i];
        total += TERM;
    }
    total = block_sum(total);
    if (threadIdx.x == 0) parts[blockIdx.x] = total;
}

// One block. What becomes of the sum is SETTLE, over `total`, `to` and `fresh`.
extern "C" __global__ void settle(const double* parts, int count, float* to, int fresh, float number) {
    double total = 0.0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) total += parts[i];
    total = block_sum(total);
    if (threadIdx.x == 0) { SETTLE }
}
#endif

#ifdef COLUMNS
// Terms of every element: SUMS of them, of COLUMNS (0 the sum of x, 1 the moments about the first row, 2 dy and dy (x - mean)).
// Every thread has WIDTH columns; a block has at most MOST_PACKS of them, and its other threads take other rows.
extern "C" __global__ void column_parts(const X* x, const X* other, const float* mean, double* parts, i64 rows, int packs) {
    int width = packs < MOST_PACKS ? packs : MOST_PACKS;
    int lanes = blockDim.x / width;
    int lane = threadIdx.x / width;
    int pack = blockIdx.x * width + threadIdx.x % width;
    bool works = lane < lanes && pack < packs;
    float centre[WIDTH];
    double sums[SUMS][WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        centre[j] = 0.0f;
#pragma unroll
        for (int s = 0; s < SUMS; s++) sums[s][j] = 0.0;
    }
    if (works) {
#if COLUMNS == 1
        load_pack<WIDTH>(x, pack, centre);
#elif COLUMNS == 2
        load_pack<WIDTH>(mean, pack, centre);
#endif
        // All blocks sweep over the rows together, from the last to the first: what was written last may still be in the cache, and
        // what comes behind begins at the first row, which is then in the cache.
        for (i64 start = (i64)blockIdx.y * lanes * 8 + lane; start < rows; start += (i64)gridDim.y * lanes * 8) {
            float short_sums[SUMS][WIDTH];
#pragma unroll
            for (int s = 0; s < SUMS; s++)
#pragma unroll
                for (int j = 0; j < WIDTH; j++) short_sums[s][j] = 0.0f;
#pragma unroll
            for (int step = 0; step < 8; step++) {
                i64 row = rows - 1 - start - (i64)step * lanes;
                if (0 <= row) {
                    float a[WIDTH];
                    load_pack<WIDTH>(x, row * packs + pack, a);
#if COLUMNS == 2
                    float b[WIDTH];
                    load_pack<WIDTH>(other, row * packs + pack, b);
#endif
#pragma unroll
                    for (int j = 0; j < WIDTH; j++) {
#if COLUMNS == 0
                        short_sums[0][j] += a[j];
#elif COLUMNS == 1
                        float d = a[j] - centre[j];
                        short_sums[0][j] += d;
                        short_sums[1][j] += d * d;
#else
                        short_sums[0][j] += a[j];
                        short_sums[1][j] += a[j] * (b[j] - centre[j]);
#endif
                    }
                }
            }
#pragma unroll
            for (int s = 0; s < SUMS; s++)
#pragma unroll
                for (int j = 0; j < WIDTH; j++) sums[s][j] += short_sums[s][j];
        }
    }
    __shared__ double shared[256 * WIDTH];
#pragma unroll
    for (int s = 0; s < SUMS; s++) {
        __syncthreads();
#pragma unroll
        for (int j = 0; j < WIDTH; j++) shared[threadIdx.x * WIDTH + j] = sums[s][j];
        __syncthreads();
        if (works && lane == 0) {
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                double total = 0.0;
                for (int other_lane = 0; other_lane < lanes; other_lane++) total += shared[(other_lane * width + threadIdx.x) * WIDTH + j];
                parts[((i64)blockIdx.y * SUMS + s) * packs * WIDTH + (i64)pack * WIDTH + j] = total;
            }
        }
    }
}

// The sum of a column's parts, by a warp.
__device__ __forceinline__ double column_sum(const double* parts, int chunks, int columns, int column, int s) {
    double total = 0.0;
#pragma unroll 4
    for (int chunk = threadIdx.x & 31; chunk < chunks; chunk += 32) total += parts[((i64)chunk * SUMS + s) * columns + column];
    return warp_sum(total);
}
__device__ __forceinline__ int warp_column() { return blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5); }

#if COLUMNS == 0
extern "C" __global__ void add_columns(const double* parts, int chunks, int columns, float* to, int fresh) {
    int column = warp_column();
    if (column >= columns) return;
    double total = column_sum(parts, chunks, columns, column, 0);
    if ((threadIdx.x & 31) == 0) to[column] = (float)((fresh ? 0.0 : (double)to[column]) + total);
}
#elif COLUMNS == 1
extern "C" __global__ void statistics(const double* parts, int chunks, int columns, const X* x, float* mean, float* variance, i64 count) {
    int column = warp_column();
    if (column >= columns) return;
    double sum = column_sum(parts, chunks, columns, column, 0), squares = column_sum(parts, chunks, columns, column, 1);
    if ((threadIdx.x & 31) == 0) {
        double shift = sum / count, spread = squares / count - shift * shift;
        mean[column] = (float)((double)load(x, column) + shift);
        variance[column] = (float)(spread < 0.0 ? 0.0 : spread);
    }
}
#else
// Gradients of gamma and beta where they are, and three coefficients of every channel.
extern "C" __global__ void norm_sums(const double* parts, int chunks, int columns, const float* variance, const float* gamma, float* dgamma, float* dbeta, float* coefficients, i64 count, float epsilon, int fresh) {
    int column = warp_column();
    if (column >= columns) return;
    double sum = column_sum(parts, chunks, columns, column, 0), product = column_sum(parts, chunks, columns, column, 1);
    if ((threadIdx.x & 31) == 0) {
        double inverse = 1.0 / sqrt((double)variance[column] + (double)epsilon);
        if (dgamma) dgamma[column] = (float)((fresh ? 0.0 : (double)dgamma[column]) + product * inverse);
        if (dbeta) dbeta[column] = (float)((fresh ? 0.0 : (double)dbeta[column]) + sum);
        coefficients[column] = (float)((gamma ? (double)gamma[column] : 1.0) * inverse);
        coefficients[columns + column] = (float)(sum / count);
        coefficients[2 * columns + column] = (float)(product * inverse * inverse / count);
    }
}
#endif
#endif
