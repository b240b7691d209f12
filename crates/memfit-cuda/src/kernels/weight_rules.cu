// Penalties on weights and values, and putting weights back where they may be. Defined before: PENALTY with
// L1, L2 and the type X of what it is on, or FACTOR of a line's norm.

#ifdef PENALTY
extern "C" __global__ void penalty_parts(const X* weight, double* parts, i64 count) {
    double total = 0.0;
    for (i64 i = first_item(); i < count; i += item_stride()) {
        double w = load(weight, i);
        total += (double)L1 * fabs(w) + (double)L2 * w * w;
    }
    total = block_sum(total);
    if (threadIdx.x == 0) parts[blockIdx.x] = total;
}

// One block.
extern "C" __global__ void penalty_sum(const double* parts, int count, float* loss, int overwrite) {
    double total = 0.0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) total += parts[i];
    total = block_sum(total);
    if (threadIdx.x == 0) *loss = (float)((overwrite ? 0.0 : (double)*loss) + total);
}

extern "C" __global__ void penalty_gradient(const float* weight, float* gradient, const Context* context, i64 count, int overwrite) {
    const float l1 = context->loss_scale * L1, l2 = context->loss_scale * 2.0f * L2;
    for (i64 i = first_item(); i < count; i += item_stride()) {
        float w = weight[i], sign = (float)((w > 0.0f) - (w < 0.0f));
        gradient[i] = (overwrite ? 0.0f : gradient[i]) + l1 * sign + l2 * w;
    }
}

// The penalty on values: rows of the whole batch share it. One block, then all.
extern "C" __global__ void activity_sum(const double* parts, int count, float* loss, Context* context, int overwrite) {
    double total = 0.0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) total += parts[i];
    total = block_sum(total);
    if (threadIdx.x == 0) {
        *loss = (float)((overwrite ? 0.0 : (double)*loss) + total / (double)context->rows_total);
        if (!isfinite(*loss)) context->stopped = 1;
    }
}
extern "C" __global__ void activity_gradients(const X* x, X* gradients, const Context* context, i64 count) {
    const float factor = (float)((1.0 / (double)context->rows_total) * (double)context->loss_scale), l1 = L1 * factor, l2 = 2.0f * L2 * factor;
    for (i64 i = first_item(); i < count; i += item_stride()) {
        const float value = load(x, i), sign = value > 0.0f ? 1.0f : value < 0.0f ? -1.0f : value;
        store(gradients, i, l1 * sign + l2 * value);
    }
}

// The penalty on angles between `lines` of a matrix, which are `next` apart, and their elements `step`. First
// one over the length of each, by a warp; then a block has a line, with the signs of its cosines in
// workspace, and adds its gradient where there is one.
extern "C" __global__ void line_inverses(const float* weight, double* inverses, int lines, int length, i64 next, i64 step) {
    for (i64 line = first_item() >> 5; line < lines; line += item_stride() >> 5) {
        double squares = 0.0;
        for (int i = threadIdx.x & 31; i < length; i += 32) squares += (double)weight[line * next + i * step] * (double)weight[line * next + i * step];
        squares = warp_sum(squares);
        if ((threadIdx.x & 31) == 0) inverses[line] = fmin(1.0 / sqrt(squares), 1.0 / 1e-7);
    }
}
extern "C" __global__ void line_angles(const float* weight, const double* inverses, double* signs, float* gradient, double* parts, const Context* context, int lines, int length, i64 next, i64 step, float angle) {
    signs += (i64)blockIdx.x * lines;
    const double share = (double)angle / ((double)lines * (lines - 1.0) / 2.0), factor = (double)context->loss_scale * share;
    double all = 0.0;
    for (int line = blockIdx.x; line < lines; line += gridDim.x) {
        const float* own = weight + line * next;
        double total = 0.0;
        for (int other = threadIdx.x >> 5; other < lines; other += blockDim.x >> 5) {
            double product = 0.0;
            for (int i = threadIdx.x & 31; i < length; i += 32) product += (double)own[i * step] * (double)weight[other * next + i * step];
            product = warp_sum(product);
            if ((threadIdx.x & 31) == 0) {
                const double cosine = other == line ? 0.0 : product * inverses[line] * inverses[other];
                total += fabs(cosine);
                signs[other] = (cosine > 0.0 ? 1.0 : cosine < 0.0 ? -1.0 : cosine) * inverses[other];
            }
        }
        total = block_sum(total);
        all += total;
        for (int i = threadIdx.x; gradient && i < length; i += blockDim.x) {
            double derivative = 0.0;
            for (int other = 0; other < lines; other++) derivative += signs[other] * (double)weight[other * next + i * step];
            derivative = factor * inverses[line] * (derivative - inverses[line] * total * (double)own[i * step]);
            gradient[line * next + i * step] += (float)derivative;
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) parts[blockIdx.x] = 0.5 * share * all;
}
#endif

#ifdef FACTOR
// Lines of `length` elements that stand `inner` apart. A block has `across` neighbouring lines, and its other
// threads take turns along them.
extern "C" __global__ void constrain_norms(const float* found_inf, float* weight, const Context* context, i64 inner, i64 length, int across) {
    if (context->stopped || (found_inf && *found_inf != 0.0f)) return;
    const int turns = blockDim.x / across, turn = threadIdx.x / across, line_here = threadIdx.x % across;
    const i64 groups = (inner + across - 1) / across, line = blockIdx.x % groups * across + line_here;
    float* first = weight + blockIdx.x / groups * length * inner + line;
    double squares = 0.0;
    if (line < inner)
        for (i64 i = turn; i < length; i += turns) squares += (double)first[i * inner] * (double)first[i * inner];
    __shared__ double sums[256];
    sums[threadIdx.x] = squares;
    __syncthreads();
    squares = 0.0;
    for (int i = 0; i < turns; i++) squares += sums[i * across + line_here];
    const float norm = (float)sqrt(squares);
    const float factor = FACTOR;
    if (line < inner)
        for (i64 i = turn; i < length; i += turns) first[i * inner] *= factor;
}
#endif

extern "C" __global__ void constrain_to_positive(const float* found_inf, float* weight, const Context* context, i64 count) {
    if (context->stopped || (found_inf && *found_inf != 0.0f)) return;
    for (i64 i = first_item(); i < count; i += item_stride()) weight[i] = weight[i] < 0.0f ? 0.0f : weight[i];
}
