// Penalties on weights, and putting weights back where they may be. Defined before: PENALTY with L1 and L2, or FACTOR of a line's
// norm.

#ifdef PENALTY
extern "C" __global__ void penalty_parts(const float* weight, double* parts, i64 count) {
    double total = 0.0;
    for (i64 i = first_item(); i < count; i += item_stride()) {
        double w = weight[i];
        total += (double)L1 * fabs(w) + (double)L2 * w * w;
    }
    total = block_sum(total);
    if (threadIdx.x == 0) parts[blockIdx.x] = total;
}

// One block.
extern "C" __global__ void penalty_sum(const double* parts, int count, float* loss, int fresh) {
    double total = 0.0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) total += parts[i];
    total = block_sum(total);
    if (threadIdx.x == 0) *loss = (float)((fresh ? 0.0 : (double)*loss) + total);
}

extern "C" __global__ void penalty_slopes(const float* weight, float* gradient, const Context* context, i64 count, int fresh) {
    const float l1 = context->loss_scale * L1, l2 = context->loss_scale * 2.0f * L2;
    for (i64 i = first_item(); i < count; i += item_stride()) {
        float w = weight[i], sign = (float)((w > 0.0f) - (w < 0.0f));
        gradient[i] = (fresh ? 0.0f : gradient[i]) + l1 * sign + l2 * w;
    }
}
#endif

#ifdef FACTOR
// Lines of `length` elements that stand `inner` apart. A block has `across` neighbouring lines, and its other threads take turns
// along them.
extern "C" __global__ void constrain_norms(const float* verdict, float* weight, const Context* context, i64 inner, i64 length, int across) {
    if (context->stopped || (verdict && *verdict != 0.0f)) return;
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

extern "C" __global__ void constrain_to_positive(const float* verdict, float* weight, const Context* context, i64 count) {
    if (context->stopped || (verdict && *verdict != 0.0f)) return;
    for (i64 i = first_item(); i < count; i += item_stride()) weight[i] = weight[i] < 0.0f ? 0.0f : weight[i];
}
