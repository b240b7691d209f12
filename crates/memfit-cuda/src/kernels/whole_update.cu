// Updates that need sums over the whole weight before they change it: Lamb and Adafactor. Generated: STEPS,
// CLIP, WEIGHT_DECAY and AVERAGE as in update.cu; RULE is 0 for Lamb, 1 for Adafactor of a vector, 2 for
// Adafactor of matrices, with their numbers.

// What happens to gradient and weight before a rule sees them.
struct Before {
    bool due;
    u64 iteration;
    double step;
    float rate, limit, factor, decay;
    __device__ __forceinline__ float gradient(float g) const {
        g = g > limit ? limit : g;
        return factor * (g < -limit ? -limit : g);
    }
    __device__ __forceinline__ float weight(float w) const { return w - w * decay; }
};

__device__ __forceinline__ Before before_rule(const float* norm, const Context* context) {
    const float scale = STEPS == 1 ? context->loss_scale : (float)STEPS;
    float limit = INFINITE, factor = 1.0f;
    CLIP
    Before before;
    before.due = (context->iteration + 1) % STEPS == 0;
    before.iteration = context->iteration / STEPS;
    before.step = (double)before.iteration + 1.0;
    before.rate = context->learning_rate;
    before.limit = limit * scale;
    before.factor = factor / scale;
    before.decay = before.rate * WEIGHT_DECAY;
    return before;
}

__device__ __forceinline__ double parts_sum(const double* parts, int count) {
    double total = 0.0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) total += parts[i];
    return block_sum(total);
}

#define OPERANDS const float* gradient, const float* norm, const float* found_inf, float* weight, float* s1, float* s2, float* s3, float* average, const Context* context, i64 count
#define BEGIN                                                   \
    if (context->stopped || (found_inf && *found_inf != 0.0f)) return; \
    const Before before = before_rule(norm, context);
#define BEGIN_DUE BEGIN if (!before.due) return;

#if RULE == 0
__device__ __forceinline__ float step_of(float m, float v, float of_mean, float of_squares) { return m * of_mean / (sqrtf(v * of_squares) + EPSILON); }
#define CORRECTIONS                                                       \
    const float of_mean = (float)(1.0 / (1.0 - pow((double)BETA_1, before.step))); \
    const float of_squares = (float)(1.0 / (1.0 - pow((double)BETA_2, before.step)));

// Moves the means, and leaves the squares of weights and of steps.
extern "C" __global__ void means(OPERANDS, double* parts) {
    BEGIN_DUE
    CORRECTIONS
    double squares = 0.0, steps = 0.0;
    for (i64 i = first_item(); i < count; i += item_stride()) {
        float g = before.gradient(gradient[i]), w = before.weight(weight[i]), m = s1[i], v = s2[i];
        m += (g - m) * (1.0f - BETA_1);
        v += (g * g - v) * (1.0f - BETA_2);
        s1[i] = m;
        s2[i] = v;
        double step = step_of(m, v, of_mean, of_squares);
        squares += (double)w * (double)w;
        steps += step * step;
    }
    squares = block_sum(squares);
    steps = block_sum(steps);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = squares;
        parts[gridDim.x + blockIdx.x] = steps;
    }
}

extern "C" __global__ void apply(OPERANDS, const double* parts, int blocks) {
    BEGIN
    CORRECTIONS
    const u64 iteration = before.iteration;
    float factor = before.rate;
    if (before.due) {
        double squares = parts_sum(parts, blocks), steps = parts_sum(parts + blocks, blocks);
        factor *= 0.0 < squares && 0.0 < steps ? (float)(sqrt(squares) / sqrt(steps)) : 1.0f;
    }
    for (i64 i = first_item(); i < count; i += item_stride()) {
        float w = weight[i];
        if (before.due) w = before.weight(w) - factor * step_of(s1[i], s2[i], of_mean, of_squares);
        AVERAGE
        weight[i] = w;
    }
}
#else
__device__ __forceinline__ float share_new(const Before& before) { return (float)pow(before.step, (double)BETA_2_DECAY); }
__device__ __forceinline__ float moved(float mean, float value, float overwrite) { return (1.0f - overwrite) * mean + overwrite * value; }
__device__ __forceinline__ float square_of(const Before& before, float g) {
    g = before.gradient(g);
    return g * g + EPSILON_1;
}

extern "C" __global__ void weight_squares(OPERANDS, double* parts) {
    BEGIN_DUE
    double squares = 0.0;
    for (i64 i = first_item(); i < count; i += item_stride()) {
        double w = before.weight(weight[i]);
        squares += w * w;
    }
    squares = block_sum(squares);
    if (threadIdx.x == 0) parts[blockIdx.x] = squares;
}

// A gradient over its size. No gradient is no step, whatever its size.
__device__ __forceinline__ float size_step(float g, float size) { return g == 0.0f ? 0.0f : g / size; }

#if RULE == 2
// A warp for every row.
extern "C" __global__ void row_means(OPERANDS, i64 lines, i64 columns) {
    BEGIN_DUE
    const float overwrite = share_new(before);
    const int lane = threadIdx.x & 31;
    i64 warps = item_stride() >> 5;
    for (i64 row = first_item() >> 5; row < lines; row += warps) {
        double total = 0.0;
        for (i64 i = lane; i < columns; i += 32) total += square_of(before, gradient[row * columns + i]);
        total = warp_sum(total);
        if (lane == 0) s1[row] = moved(s1[row], (float)(total / columns), overwrite);
    }
}

// 32 columns of a matrix for every block; its warps take turns at the rows.
extern "C" __global__ void column_means(OPERANDS, i64 rows, i64 columns) {
    BEGIN_DUE
    const float overwrite = share_new(before);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    const i64 groups = (columns + 31) / 32, matrix = blockIdx.x / groups, column = blockIdx.x % groups * 32 + lane;
    double total = 0.0;
    if (column < columns) {
#pragma unroll 4
        for (i64 row = warp; row < rows; row += warps) total += square_of(before, gradient[(matrix * rows + row) * columns + column]);
    }
    __shared__ double totals[32][33];
    totals[warp][lane] = total;
    __syncthreads();
    if (warp == 0 && column < columns) {
        total = 0.0;
        for (int i = 0; i < warps; i++) total += totals[i][lane];
        float* mean = s2 + matrix * columns + column;
        *mean = moved(*mean, (float)(total / rows), overwrite);
    }
}

// The mean over the rows' means of every matrix, one a block.
extern "C" __global__ void matrix_means(OPERANDS, double* means, i64 rows) {
    BEGIN_DUE
    double total = 0.0;
    for (i64 i = threadIdx.x; i < rows; i += blockDim.x) total += s1[blockIdx.x * rows + i];
    total = block_sum(total);
    if (threadIdx.x == 0) means[blockIdx.x] = total / rows;
}

__device__ __forceinline__ float step_at(const Before& before, const float* gradient, const float* s1, const float* s2, const double* means, i64 rows, i64 columns, i64 i) {
    i64 row = i / columns, matrix = row / rows;
    // Roots first: where a row and a column have next to no gradient, the product of their squares has no
    // place among floats.
    float share = (float)sqrt((double)s1[row] / means[matrix]);
    return size_step(before.gradient(gradient[i]), share * sqrtf(s2[matrix * columns + i % columns]));
}
#else
__device__ __forceinline__ float step_at(const Before& before, const float* gradient, const float* s1, const float* s2, const double* means, i64 rows, i64 columns, i64 i) {
    return size_step(before.gradient(gradient[i]), sqrtf(s1[i]));
}
#endif

// The squares of steps before they are cut to size.
extern "C" __global__ void step_squares(OPERANDS, double* parts, const double* means, i64 rows, i64 columns) {
    BEGIN_DUE
#if RULE == 1
    const float overwrite = share_new(before);
#endif
    double squares = 0.0;
    for (i64 i = first_item(); i < count; i += item_stride()) {
#if RULE == 1
        s1[i] = moved(s1[i], square_of(before, gradient[i]), overwrite);
#endif
        double step = step_at(before, gradient, s1, s2, means, rows, columns, i);
        squares += step * step;
    }
    squares = block_sum(squares);
    if (threadIdx.x == 0) parts[gridDim.x + blockIdx.x] = squares;
}

extern "C" __global__ void apply(OPERANDS, const double* parts, int blocks, const double* means, i64 rows, i64 columns) {
    BEGIN
    const u64 iteration = before.iteration;
    float factor = 0.0f;
    if (before.due) {
        double size = sqrt(parts_sum(parts, blocks) / count), steps = sqrt(parts_sum(parts + blocks, blocks) / count);
        double rate = fmin((double)before.rate, 1.0 / sqrt(before.step));
        factor = (float)(fmax(size, (double)EPSILON_2) * rate / fmax(1.0, steps / (double)CLIP_THRESHOLD));
    }
    for (i64 i = first_item(); i < count; i += item_stride()) {
        float w = weight[i];
        if (before.due) w = before.weight(w) - factor * step_at(before, gradient, s1, s2, means, rows, columns, i);
        AVERAGE
        weight[i] = w;
    }
}
#endif
