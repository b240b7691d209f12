// Layer normalisation: a row for every TEAM of threads. Defined before: X, WIDTH (elements of a pack), TEAM,
// ITEMS (packs that a thread holds of a row) or 0 where a row is too long to be held, and then it is read
// again; WEIGHTS where there are sums for gamma and beta.

// Sums over the threads of a row.
__device__ __forceinline__ float team_sum(float x) {
#if TEAM == 32
    return warp_sum(x);
#else
    return block_sum(x);
#endif
}

// Two sums at once.
__device__ __forceinline__ void team_sums(float& a, float& b) {
    a = warp_sum(a);
    b = warp_sum(b);
#if TEAM != 32
    __shared__ float parts[2][TEAM / 32];
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        parts[0][threadIdx.x / 32] = a;
        parts[1][threadIdx.x / 32] = b;
    }
    __syncthreads();
    a = b = 0.0f;
#pragma unroll
    for (int i = 0; i < TEAM / 32; i++) {
        a += parts[0][i];
        b += parts[1][i];
    }
#endif
}

__device__ __forceinline__ int member() { return threadIdx.x % TEAM; }
__device__ __forceinline__ i64 first_row() { return (i64)blockIdx.x * (blockDim.x / TEAM) + threadIdx.x / TEAM; }
__device__ __forceinline__ i64 row_stride() { return (i64)gridDim.x * (blockDim.x / TEAM); }

#define EACH for (int j = 0; j < WIDTH; j++)

__device__ __forceinline__ void weights_at(const float* weight, int pack, float otherwise, float (&to)[WIDTH]) {
#pragma unroll
    EACH to[j] = otherwise;
    if (weight) load_pack<WIDTH>(weight, pack, to);
}

#if ITEMS
extern "C" __global__ void layer_norm(const X* x, const float* gamma, const float* beta, X* y, float* mean, float* rstd, i64 rows, int packs, float epsilon) {
    const float share = 1.0f / (float)(packs * WIDTH);
    for (i64 row = first_row(); row < rows; row += row_stride()) {
        float values[ITEMS][WIDTH];
        float sum = 0.0f;
#pragma unroll
        for (int item = 0; item < ITEMS; item++) {
            int pack = item * TEAM + member();
#pragma unroll
            EACH values[item][j] = 0.0f;
            if (pack < packs) load_pack<WIDTH>(x, row * packs + pack, values[item]);
        }
#pragma unroll
        for (int item = 0; item < ITEMS; item++)
#pragma unroll
            EACH sum += values[item][j];
        const float centre = team_sum(sum) * share;
        float squares = 0.0f;
#pragma unroll
        for (int item = 0; item < ITEMS; item++) {
            bool inside = item * TEAM + member() < packs;
#pragma unroll
            EACH {
                float d = inside ? values[item][j] - centre : 0.0f;
                squares += d * d;
            }
        }
        const float scale = (float)(1.0 / sqrt((double)(team_sum(squares) * share) + (double)epsilon));
        if (member() == 0) {
            mean[row] = centre;
            rstd[row] = scale;
        }
#pragma unroll
        for (int item = 0; item < ITEMS; item++) {
            int pack = item * TEAM + member();
            if (pack < packs) {
                float factors[WIDTH], terms[WIDTH];
                weights_at(gamma, pack, 1.0f, factors);
                weights_at(beta, pack, 0.0f, terms);
#pragma unroll
                EACH values[item][j] = (values[item][j] - centre) * scale * factors[j] + terms[j];
                store_pack<WIDTH>(y, row * packs + pack, values[item]);
            }
        }
    }
}

// The sums for gamma and beta of a block's rows go to `parts`: two lines of all columns.
extern "C" __global__ void __launch_bounds__(256) layer_norm_grad(const X* dy, const X* x, const float* mean, const float* rstd, const float* gamma, const X* other, X* dx, float* parts, i64 rows, int packs) {
    const float share = 1.0f / (float)(packs * WIDTH);
#if WEIGHTS
    float sums[2][ITEMS][WIDTH];
#pragma unroll
    for (int item = 0; item < ITEMS; item++)
#pragma unroll
        EACH sums[0][item][j] = sums[1][item][j] = 0.0f;
#endif
    for (i64 row = first_row(); row < rows; row += row_stride()) {
        const float centre = mean[row], scale = rstd[row];
        float gradients[ITEMS][WIDTH], normal[ITEMS][WIDTH];
        Pack<X, WIDTH> others[ITEMS];
#pragma unroll
        for (int item = 0; item < ITEMS; item++) {
            int pack = item * TEAM + member();
#pragma unroll
            EACH gradients[item][j] = normal[item][j] = 0.0f;
            if (pack < packs) {
                load_pack<WIDTH>(dy, row * packs + pack, gradients[item]);
                load_pack<WIDTH>(x, row * packs + pack, normal[item]);
                if (other) others[item] = ((const Pack<X, WIDTH>*)other)[row * packs + pack];
            }
        }
        float total = 0.0f, product = 0.0f;
#pragma unroll
        for (int item = 0; item < ITEMS; item++) {
            int pack = item * TEAM + member();
            float factors[WIDTH];
#pragma unroll
            EACH factors[j] = 0.0f;
            if (pack < packs) weights_at(gamma, pack, 1.0f, factors);
#pragma unroll
            EACH {
                normal[item][j] = (normal[item][j] - centre) * scale;
#if WEIGHTS
                sums[0][item][j] += gradients[item][j] * normal[item][j];
                sums[1][item][j] += gradients[item][j];
#endif
                gradients[item][j] *= factors[j];
                total += gradients[item][j];
                product += gradients[item][j] * normal[item][j];
            }
        }
        team_sums(total, product);
        total *= share;
        product *= share;
#pragma unroll
        for (int item = 0; item < ITEMS; item++) {
            int pack = item * TEAM + member();
            if (pack < packs) {
#pragma unroll
                EACH gradients[item][j] = scale * (gradients[item][j] - total - normal[item][j] * product);
                if (other)
#pragma unroll
                    EACH gradients[item][j] += widen(others[item].at[j]);
                store_pack<WIDTH>(dx, row * packs + pack, gradients[item]);
            }
        }
    }
#if WEIGHTS
    // Teams of a block add up one after the other.
    __shared__ float lines[ITEMS * TEAM * WIDTH];
#pragma unroll
    for (int s = 0; s < 2; s++) {
        for (int team = 0; team < (int)blockDim.x / TEAM; team++) {
            __syncthreads();
            if ((int)threadIdx.x / TEAM == team) {
#pragma unroll
                for (int item = 0; item < ITEMS; item++)
#pragma unroll
                    EACH {
                        float* line = lines + (j * ITEMS + item) * TEAM + member();
                        *line = (team == 0 ? 0.0f : *line) + sums[s][item][j];
                    }
            }
        }
        __syncthreads();
        if ((int)threadIdx.x < TEAM) {
#pragma unroll
            for (int item = 0; item < ITEMS; item++) {
                int pack = item * TEAM + member();
                float pack_sums[WIDTH];
#pragma unroll
                EACH pack_sums[j] = lines[(j * ITEMS + item) * TEAM + member()];
                if (pack < packs) store_pack<WIDTH>(parts, ((i64)blockIdx.x * 2 + s) * packs + pack, pack_sums);
            }
        }
    }
#endif
}
#else
// Adds what stands beside a gradient, where something does.
__device__ __forceinline__ void add_other(const X* other, i64 pack, float (&to)[WIDTH]) {
    if (!other) return;
    float terms[WIDTH];
    load_pack<WIDTH>(other, pack, terms);
#pragma unroll
    EACH to[j] += terms[j];
}

// Rows that are too long to be held: a block for each, in several passes.
extern "C" __global__ void layer_norm(const X* x, const float* gamma, const float* beta, X* y, float* mean, float* rstd, i64 rows, int packs, float epsilon) {
    const double share = 1.0 / ((double)packs * WIDTH);
    for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
        double sum = 0.0, squares = 0.0;
        for (int pack = threadIdx.x; pack < packs; pack += blockDim.x) {
            float values[WIDTH], short_sum = 0.0f;
            load_pack<WIDTH>(x, row * packs + pack, values);
#pragma unroll
            EACH short_sum += values[j];
            sum += short_sum;
        }
        const float centre = (float)(block_sum(sum) * share);
        for (int pack = threadIdx.x; pack < packs; pack += blockDim.x) {
            float values[WIDTH], short_sum = 0.0f;
            load_pack<WIDTH>(x, row * packs + pack, values);
#pragma unroll
            EACH short_sum += (values[j] - centre) * (values[j] - centre);
            squares += short_sum;
        }
        const float scale = (float)(1.0 / sqrt(block_sum(squares) * share + (double)epsilon));
        if (threadIdx.x == 0) {
            mean[row] = centre;
            rstd[row] = scale;
        }
        for (int pack = threadIdx.x; pack < packs; pack += blockDim.x) {
            float values[WIDTH], factors[WIDTH], terms[WIDTH];
            load_pack<WIDTH>(x, row * packs + pack, values);
            weights_at(gamma, pack, 1.0f, factors);
            weights_at(beta, pack, 0.0f, terms);
#pragma unroll
            EACH values[j] = (values[j] - centre) * scale * factors[j] + terms[j];
            store_pack<WIDTH>(y, row * packs + pack, values);
        }
    }
}

extern "C" __global__ void layer_norm_grad(const X* dy, const X* x, const float* mean, const float* rstd, const float* gamma, const X* other, X* dx, float* parts, i64 rows, int packs) {
    const double share = 1.0 / ((double)packs * WIDTH);
    for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const float centre = mean[row], scale = rstd[row];
        double total = 0.0, product = 0.0;
        for (int pack = threadIdx.x; pack < packs; pack += blockDim.x) {
            float gradients[WIDTH], values[WIDTH], factors[WIDTH], short_total = 0.0f, short_product = 0.0f;
            load_pack<WIDTH>(dy, row * packs + pack, gradients);
            load_pack<WIDTH>(x, row * packs + pack, values);
            weights_at(gamma, pack, 1.0f, factors);
#pragma unroll
            EACH {
                short_total += gradients[j] * factors[j];
                short_product += gradients[j] * factors[j] * ((values[j] - centre) * scale);
            }
            total += short_total;
            product += short_product;
        }
        const float mean_gradient = (float)(block_sum(total) * share), mean_product = (float)(block_sum(product) * share);
        for (int pack = threadIdx.x; pack < packs; pack += blockDim.x) {
            float gradients[WIDTH], values[WIDTH], factors[WIDTH];
            load_pack<WIDTH>(dy, row * packs + pack, gradients);
            load_pack<WIDTH>(x, row * packs + pack, values);
            weights_at(gamma, pack, 1.0f, factors);
#pragma unroll
            EACH gradients[j] = scale * (gradients[j] * factors[j] - mean_gradient - (values[j] - centre) * scale * mean_product);
            add_other(other, row * packs + pack, gradients);
            store_pack<WIDTH>(dx, row * packs + pack, gradients);
        }
    }
}

// Sums for gamma and beta over a range of rows for every `blockIdx.y`, before `dx` may be written over what
// they read.
extern "C" __global__ void weight_parts(const X* dy, const X* x, const float* mean, const float* rstd, float* parts, i64 rows, int packs) {
    int pack = blockIdx.x * blockDim.x + threadIdx.x;
    if (pack >= packs) return;
    float sums[2][WIDTH];
#pragma unroll
    EACH sums[0][j] = sums[1][j] = 0.0f;
    for (i64 row = blockIdx.y; row < rows; row += gridDim.y) {
        float gradients[WIDTH], values[WIDTH];
        load_pack<WIDTH>(dy, row * packs + pack, gradients);
        load_pack<WIDTH>(x, row * packs + pack, values);
#pragma unroll
        EACH {
            sums[0][j] += gradients[j] * ((values[j] - mean[row]) * rstd[row]);
            sums[1][j] += gradients[j];
        }
    }
#pragma unroll
    for (int s = 0; s < 2; s++) store_pack<WIDTH>(parts, ((i64)blockIdx.y * 2 + s) * packs + pack, sums[s]);
}
#endif

// Adds the parts of all blocks: `blockIdx.y` is 0 for gamma and 1 for beta. A block has eight neighbouring
// columns, which lie in one sector of memory, and 128 threads for each.
extern "C" __global__ void weight_sums(const float* parts, int count, int columns, float* dgamma, float* dbeta, int overwrite) {
    float* to = blockIdx.y == 0 ? dgamma : dbeta;
    if (!to) return;
    const int lane = threadIdx.x & 7, first = threadIdx.x >> 3, column = blockIdx.x * 8 + lane;
    double total = 0.0;
    if (column < columns) {
#pragma unroll 8
        for (int part = first; part < count; part += 128) total += parts[((i64)part * 2 + blockIdx.y) * columns + column];
    }
    __shared__ double totals[8][128];
    totals[lane][first] = total;
    __syncthreads();
    // A warp for each of the columns.
    const int own = threadIdx.x >> 5, at = threadIdx.x & 31;
    if (8 <= own) return;
    total = warp_sum(totals[own][at] + totals[own][at + 32] + totals[own][at + 64] + totals[own][at + 96]);
    const int to_column = blockIdx.x * 8 + own;
    if (at == 0 && to_column < columns) to[to_column] = (float)((overwrite ? 0.0 : (double)to[to_column]) + total);
}
