// Sums over the columns of a matrix, always in the same order: near rows in single precision, everything else
// in double.
//
// How many rows of a thread are added in single precision.
#define ROWS_NEAR 32

// COLUMNS says what is summed: 0 x, 1 the moments of x about its first row, 2 dy and dy (x - mean); SUMS is
// how many sums that are. With MASKED, dy counts only where the output of the normalisation is above 0 and
// below a bound: the gradient of a ReLU after it. With BITS, what is summed counts only where a bit is set,
// and is written so; rows of bits are whole bytes. With SUMMED, it is the sum of two gradients besides. With
// ARGMAX, it counts only where there is an argmax. With MADE, x is what a chain computes from other values,
// and is written: LOADED (packs of a row), LOAD_PACKS, TAKE_PACKED, CHAIN and RESULT; with AGAIN, so is
// another value of theirs.

// What a thread reads of one row.
struct Row {
    Pack<X, WIDTH> first;
#ifdef MADE
    LOADED
#endif
#if COLUMNS == 2
    Pack<X, WIDTH> second;
#endif
#ifdef SUMMED
    Pack<X, WIDTH> other;
#endif
#ifdef BITS
    u32 bits;
#endif
#ifdef ARGMAX
    Pack<u8, WIDTH> argmax;
#endif
};

// What a thread knows of its columns.
struct Centre {
#if COLUMNS != 0
    float at[WIDTH];
#endif
#ifdef MASKED
    float gain[WIDTH], offset[WIDTH], below;
#endif
};

__device__ __forceinline__ void add_terms(const Row& row, const Centre& centre, float (&sums)[SUMS][WIDTH]) {
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        float a = widen(row.first.at[j]);
#ifdef ARGMAX
        a = row.argmax.at[j] != 255 ? a : 0.0f;
#endif
#if COLUMNS == 0
        sums[0][j] += a;
#elif COLUMNS == 1
        float distance = a - centre.at[j];
        sums[0][j] += distance;
        sums[1][j] += distance * distance;
#else
        float distance = widen(row.second.at[j]) - centre.at[j];
#ifdef MASKED
        a = norm_passes(distance, centre.gain[j], centre.offset[j], centre.below) ? a : 0.0f;
#endif
        sums[0][j] += a;
        sums[1][j] += a * distance;
#endif
    }
}

// Every thread has WIDTH columns; a block has at most MOST_PACKS such packs, and its other threads take other
// rows, of which ROWS are in flight at once.
extern "C" __global__ void __launch_bounds__(256, 2) column_parts(const X* first, const X* second, const float* mean, MORE_PARAMETERS double* parts, i64 rows, int packs) {
    const int width = packs < MOST_PACKS ? packs : MOST_PACKS;
    const int lanes = 256 / width, lane = threadIdx.x / width, pack = blockIdx.x * width + threadIdx.x % width;
    const bool works = lane < lanes && pack < packs;
    // Each thread's own sums: they are seldom touched, and registers are for loads.
    __shared__ double totals[SUMS * WIDTH][256];
#pragma unroll
    for (int k = 0; k < SUMS * WIDTH; k++) totals[k][threadIdx.x] = 0.0;
    if (works) {
        Centre centre;
#if COLUMNS == 1
        load_pack<WIDTH>(first, pack, centre.at);
#elif COLUMNS == 2
        load_pack<WIDTH>(mean, pack, centre.at);
#endif
#ifdef MASKED
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            int c = pack * WIDTH + j;
            centre.gain[j] = norm_gain(gamma, variance, epsilon, c);
            centre.offset[j] = beta ? beta[c] : 0.0f;
        }
        centre.below = below;
#endif
        // All blocks sweep over the rows together, from the last to the first: what was written last may
        // still be in the cache, and the kernel that comes next begins at the first row, which is then in the
        // cache.
#ifndef MADE
        const Pack<X, WIDTH>* firsts = (const Pack<X, WIDTH>*)first + (rows - 1) * packs + pack;
#endif
#if COLUMNS == 2
        const Pack<X, WIDTH>* seconds = (const Pack<X, WIDTH>*)second + (rows - 1) * packs + pack;
#endif
        auto load_row = [&](i64 from_last) {
            Row loaded;
#ifdef MADE
            const i64 i = (rows - 1 - from_last) * packs + pack;
            LOAD_PACKS
#else
            loaded.first = firsts[-from_last * packs];
#endif
#if COLUMNS == 2
            loaded.second = seconds[-from_last * packs];
#endif
            [[maybe_unused]] const i64 at = (rows - 1 - from_last) * packs + pack;
#ifdef SUMMED
            loaded.other = pack_at<WIDTH>(other, at);
#endif
#ifdef ARGMAX
            loaded.argmax = pack_at<WIDTH>(argmax, at);
#endif
#ifdef BITS
            loaded.bits = (u32)bits[at * WIDTH >> 3] >> (int)(at * WIDTH & 7);
#endif
            return loaded;
        };
        // The gradients of a row that count.
        auto take_gradients = [&](Row& row, i64 from_last) {
#ifdef BITS
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                float gradient = widen(row.first.at[j]);
#ifdef SUMMED
                gradient += widen(row.other.at[j]);
#endif
                narrow(row.bits >> j & 1 ? gradient : 0.0f, row.first.at[j]);
            }
            ((Pack<X, WIDTH>*)gradients)[(rows - 1 - from_last) * packs + pack] = row.first;
#endif
#ifdef MADE
            const i64 i = (rows - 1 - from_last) * packs + pack;
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                TAKE_PACKED
                CHAIN
                narrow(RESULT, row.first.at[j]);
            }
#ifdef AGAIN
            Pack<X, WIDTH> values;
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                AGAIN
            }
            ((Pack<X, WIDTH>*)again)[i] = values;
#endif
            ((Pack<X, WIDTH>*)made)[i] = row.first;
#endif
        };
        float sums[SUMS][WIDTH];
        auto add_near = [&](bool to_totals) {
#pragma unroll
            for (int k = 0; k < SUMS * WIDTH; k++) {
                if (to_totals) totals[k][threadIdx.x] += sums[k / WIDTH][k % WIDTH];
                sums[k / WIDTH][k % WIDTH] = 0.0f;
            }
        };
        add_near(false);
        int rounds = 0;
        for (i64 start = (i64)blockIdx.y * lanes * ROWS + lane; start < rows; start += (i64)gridDim.y * lanes * ROWS) {
            if (start + (ROWS - 1) * lanes < rows) {
                Row loaded[ROWS];
#pragma unroll
                for (int r = 0; r < ROWS; r++) loaded[r] = load_row(start + r * lanes);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    take_gradients(loaded[r], start + r * lanes);
                    add_terms(loaded[r], centre, sums);
                }
            } else {
#pragma unroll 1
                for (i64 row = start; row < rows; row += lanes) {
                    Row loaded = load_row(row);
                    take_gradients(loaded, row);
                    add_terms(loaded, centre, sums);
                }
            }
            if (++rounds % (ROWS_NEAR / ROWS) == 0) add_near(true);
        }
        add_near(true);
    }
    __syncthreads();
    for (int item = threadIdx.x; item < SUMS * WIDTH * width; item += 256) {
        const int k = item / width, within = item % width, of = blockIdx.x * width + within;
        double total = 0.0;
#pragma unroll 8
        for (int other = 0; other < lanes; other++) total += totals[k][other * width + within];
        if (of < packs) parts[((i64)blockIdx.y * SUMS + k / WIDTH) * packs * WIDTH + of * WIDTH + k % WIDTH] = total;
    }
}

// A block of 32 warps adds the parts of 32 columns, of which every warp then has one: its number, below 0
// where there is none.
__device__ __forceinline__ int column_sums(const double* parts, int chunks, int columns, double (&sums)[SUMS]) {
    __shared__ double shared[SUMS][32][33];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, column = blockIdx.x * 32 + lane;
#pragma unroll
    for (int s = 0; s < SUMS; s++) {
        double sum = 0.0;
        if (column < columns) {
#pragma unroll 8
            for (int chunk = warp; chunk < chunks; chunk += 32) sum += parts[((i64)chunk * SUMS + s) * columns + column];
        }
        shared[s][warp][lane] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int s = 0; s < SUMS; s++) sums[s] = warp_sum(shared[s][lane][warp]);
    const int own = blockIdx.x * 32 + warp;
    return own < columns ? own : -1;
}

#if COLUMNS == 0
extern "C" __global__ void add_columns(const double* parts, int chunks, int columns, float* to, int overwrite) {
    double sums[SUMS];
    const int column = column_sums(parts, chunks, columns, sums);
    if (0 <= column && (threadIdx.x & 31) == 0) to[column] = (float)((overwrite ? 0.0 : (double)to[column]) + sums[0]);
}
#elif COLUMNS == 1
extern "C" __global__ void statistics(const double* parts, int chunks, int columns, const X* x, float* mean, float* variance, i64 count) {
    double sums[SUMS];
    const int column = column_sums(parts, chunks, columns, sums);
    if (0 <= column && (threadIdx.x & 31) == 0) {
        double shift = sums[0] / count, spread = sums[1] / count - shift * shift;
        mean[column] = (float)((double)load(x, column) + shift);
        variance[column] = (float)(spread < 0.0 ? 0.0 : spread);
    }
}
#else
// Gradients of gamma and beta where they are, and three coefficients of every channel.
extern "C" __global__ void norm_sums(const double* parts, int chunks, int columns, const float* variance, const float* gamma, float* dgamma, float* dbeta, float* coefficients, i64 count, float epsilon, int overwrite) {
    double sums[SUMS];
    const int column = column_sums(parts, chunks, columns, sums);
    if (0 <= column && (threadIdx.x & 31) == 0) {
        double inverse = 1.0 / sqrt((double)variance[column] + (double)epsilon);
        if (dgamma) dgamma[column] = (float)((overwrite ? 0.0 : (double)dgamma[column]) + sums[1] * inverse);
        if (dbeta) dbeta[column] = (float)((overwrite ? 0.0 : (double)dbeta[column]) + sums[0]);
        coefficients[column] = norm_gain(gamma, variance, epsilon, column);
        coefficients[columns + column] = (float)(sums[0] / count);
        coefficients[2 * columns + column] = (float)(sums[1] * inverse * inverse / count);
    }
}
#endif
