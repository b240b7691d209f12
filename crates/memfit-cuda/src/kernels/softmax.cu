// Softmax over the last axis: a warp has a position.

extern "C" __global__ void softmax(const X* x, X* y, i64 positions, int classes) {
    int lane = threadIdx.x & 31;
    for (i64 p = first_item() >> 5; p < positions; p += item_stride() >> 5) {
        const X* from = x + p * classes;
        X* to = y + p * classes;
        float most = -INFINITE;
        for (int c = lane; c < classes; c += 32) most = f_maximum(most, load(from, c));
        most = warp_max(most);
        double sum = 0.0;
        for (int c = lane; c < classes; c += 32) sum += expf(load(from, c) - most);
        float factor = (float)(1.0 / warp_sum(sum));
        for (int c = lane; c < classes; c += 32) store(to, c, factor * expf(load(from, c) - most));
    }
}

extern "C" __global__ void softmax_grad(const X* dy, const X* y, X* dx, i64 positions, int classes) {
    int lane = threadIdx.x & 31;
    for (i64 p = first_item() >> 5; p < positions; p += item_stride() >> 5) {
        i64 start = p * classes;
        double sum = 0.0;
        for (int c = lane; c < classes; c += 32) sum += (double)load(dy, start + c) * load(y, start + c);
        float mean = (float)warp_sum(sum);
        for (int c = lane; c < classes; c += 32) store(dx, start + c, load(y, start + c) * (load(dy, start + c) - mean));
    }
}
