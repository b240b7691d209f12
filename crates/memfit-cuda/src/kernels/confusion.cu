// Metrics of many sums. Types X of predictions and T of targets are defined before, and COUNTS, IOU or FBETA.
//
// Sums are whole numbers while they grow, so that the order in which threads come does not matter: a weight
// is counted in units of 2^-32 of about the largest. STORED sums fit the memory of a block, and go from there
// to all.

typedef unsigned long long Sum;

#ifndef HAS_FACTORS
#define HAS_FACTORS 0
#endif

// How many units are in 1. One block.
extern "C" __global__ void count_unit(const float* weights, const T* target, double* unit, i64 count, i64 elements) {
    float most = weights ? 0.0f : 1.0f, factor = 1.0f;
    if (weights)
        for (i64 i = threadIdx.x; i < count; i += blockDim.x) most = f_maximum(most, fabsf(weights[i]));
#if HAS_FACTORS
    for (i64 i = threadIdx.x; i < elements; i += blockDim.x) factor = f_maximum(factor, fabsf(load(target, i)));
#endif
    const double all = (double)block_max(most) * block_max(factor);
    if (threadIdx.x == 0) *unit = !isfinite(all) ? (double)NOT_A_NUMBER : all == 0.0 ? 1.0 : ldexp(1.0, 32 - ilogb(all));
}

extern "C" __global__ void write_counts(const Sum* sums, const double* unit, float* to, i64 count, int overwrite) {
    for (i64 i = first_item(); i < count; i += item_stride())
        to[i] = (float)((overwrite ? 0.0 : (double)to[i]) + (double)(i64)sums[i] / *unit);
}

__device__ __forceinline__ void add(Sum* sums, i64 place, double value, double unit) { atomicAdd(&sums[place], (Sum)llrint(value * unit)); }

// The index of the first maximum.
template <class V> __device__ __forceinline__ int argmax(const V* values, int count) {
    int place = 0;
    float most = -INFINITE;
    for (int i = 0; i < count; i++) {
        float value = load(values, i);
        if (value > most) { most = value; place = i; }
    }
    return place;
}
__device__ __forceinline__ i64 whole(float x) { return x == x ? (i64)x : 0; }

#ifdef COUNTS
// How many thresholds a prediction is above: EVEN of them from 0 to 1, or THRESHOLDS.
__device__ __forceinline__ int bucket_of(float p) {
    if (p != p) return OPEN;
#ifdef EVEN
    int steps = (int)ceilf(f_clip(p, 0.0f, 1.0f) * (float)(EVEN - 1));
    return OPEN && steps < 1 ? 1 : steps;
#else
    const float thresholds[] = {THRESHOLDS};
    int low = 0, high = BUCKETS - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (thresholds[middle] < p) low = middle + 1; else high = middle;
    }
    return low;
#endif
}
// Whether an element is one of the TOP_K largest; of equal ones the first.
__device__ __forceinline__ bool is_in_top_k(const X* x, int classes, int place) {
    float value = load(x, place);
    int before = 0;
    for (int i = 0; i < classes; i++) {
        float other = load(x, i);
        before += other > value || (other == value && i < place);
    }
    return before < TOP_K;
}
// An item is an element: of all classes, or of one.
#define ITEMS(classes) (CLASS < 0 ? (classes) : 1)
__device__ __forceinline__ void count(const X* prediction, const T* target, i64 item, int classes, double weight, double unit, Sum* sums) {
    const i64 sample = item / ITEMS(classes);
    const int place = CLASS < 0 ? (int)(item % classes) : CLASS;
    const X* x = prediction + sample * classes;
    const float value = FROM_LOGITS ? f_sigmoid(load(x, place)) : load(x, place);
    const int bucket = TOP_K && !is_in_top_k(x, classes, place) ? 0 : bucket_of(value);
    const int side = 2 * (LABELS ? place : 0) + (load(target, sample * classes + place) != 0.0f ? 0 : 1);
    add(sums, (i64)side * BUCKETS + bucket, weight, unit);
}
#endif

#ifdef IOU
// An item is a sample, whose maximum names the class (BY_ARGMAX), or an element that does so by itself.
#define ITEMS(classes) (BY_ARGMAX ? 1 : (classes))
__device__ __forceinline__ void meet(i64 of, i64 predicted, double weight, double unit, Sum* sums) {
    if (of < 0 || IOU <= of || predicted < 0 || IOU <= predicted || IGNORED(of)) return;
    weight = trunc(weight);
    if (of == predicted) add(sums, of, weight, unit);
    add(sums, IOU + of, weight, unit);
    add(sums, 2 * IOU + predicted, weight, unit);
}
__device__ __forceinline__ void count(const X* prediction, const T* target, i64 item, int classes, double weight, double unit, Sum* sums) {
#if BY_ARGMAX && NUMBERED
    meet((i64)target[item], argmax(prediction + item * classes, classes), weight, unit, sums);
#elif BY_ARGMAX
    meet(argmax(target + item * classes, classes), argmax(prediction + item * classes, classes), weight, unit, sums);
#else
    meet(whole(load(target, item)), PREDICTED(load(prediction, item)), weight, unit, sums);
#endif
}
#endif

#ifdef FBETA
// An item is a sample. PREDICTED says whether `p` is, where `most` is the maximum of its sample.
#define ITEMS(classes) 1
__device__ __forceinline__ void count(const X* prediction, const T* target, i64 item, int classes, double weight, double unit, Sum* sums) {
    const X* x = prediction + item * classes;
    float most = -INFINITE;
    for (int i = 0; i < classes; i++) most = fmaxf(most, load(x, i));
    for (int i = 0; i < classes; i++) {
        const float p = load(x, i);
        const double share = weight * load(target, item * classes + i), predicted = PREDICTED ? 1.0 : 0.0;
        add(sums, i, share * predicted, unit);
        add(sums, classes + i, share, unit);
        add(sums, 2 * classes + i, weight * predicted, unit);
    }
}
#endif

// `samples` neighbouring samples have one weight.
extern "C" __global__ void count_items(const X* prediction, const T* target, const float* weights, Sum* sums, const double* unit, i64 items, i64 samples, int classes) {
#if STORED
    __shared__ Sum own[STORED];
    for (int i = threadIdx.x; i < STORED; i += blockDim.x) own[i] = 0;
    __syncthreads();
#else
    Sum* own = sums;
#endif
    const double units = *unit;
    for (i64 i = first_item(); i < items; i += item_stride())
        count(prediction, target, i, classes, weights ? (double)weights[i / ((i64)ITEMS(classes) * samples)] : 1.0, units, own);
#if STORED
    __syncthreads();
    for (int i = threadIdx.x; i < STORED; i += blockDim.x)
        if (own[i]) atomicAdd(&sums[i], own[i]);
#endif
}
