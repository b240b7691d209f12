// Losses with their gradients, and metrics. X is the type of predictions and gradients, T that of targets.
// Gradients are written where the pointer is not null: a loss that is a metric has none.

#define EPSILON 1e-7f
__device__ __forceinline__ float clipped(float p) { p = p < EPSILON ? EPSILON : p; return p > 1.0f - EPSILON ? 1.0f - EPSILON : p; }
__device__ __forceinline__ float unless_clipped(float p, float gradient) { gradient = p < EPSILON ? 0.0f : gradient; return p > 1.0f - EPSILON ? 0.0f : gradient; }
__device__ __forceinline__ float sign_of(float x) { float s = x < 0.0f ? -1.0f : x; return x > 0.0f ? 1.0f : s; }
__device__ __forceinline__ float smoothed(float t, float smoothing) { return t * (1.0f - smoothing) + 0.5f * smoothing; }

// How samples are added up: by their mean over the batch, by their sum, or for a metric by the mean of a
// row's.
#define MEAN 0
#define SUM 1
#define OF_METRIC 2
// The weight of a sample of weight 1; gradients are written scaled.
__device__ __forceinline__ double share_of(const Context* context, float weight, i64 in_row, int reduction) {
    if (reduction == OF_METRIC) return 1.0 / in_row;
    double scaled = (double)weight * context->loss_scale;
    return reduction == SUM ? scaled : scaled / ((double)context->rows_total * in_row);
}

#ifdef ELEMENT
// Losses of single elements: ELEMENT gives `value` and `gradient` from `p` and `t`. `weighed` neighbours
// share one weight.
extern "C" __global__ void elements(const X* prediction, const T* target, const float* weights, X* gradients, double* parts, const Context* context, i64 count, i64 weighed, i64 in_row, i64 classes, float weight, int reduction) {
    double share = share_of(context, weight, in_row, reduction) / classes;
    double total = 0.0;
    for (i64 i = first_item(); i < count; i += item_stride()) {
        float p = load(prediction, i), t = load(target, i), value, gradient;
        double mine = weights ? share * weights[i / weighed] : share;
        ELEMENT
        total += mine * value;
        if (gradients) store(gradients, i, gradient * (float)mine);
    }
    total = block_sum(total);
    if (threadIdx.x == 0) parts[blockIdx.x] = total;
}
#endif

#ifdef FOCAL
// `-alpha (1 - q)^gamma ln q` of a probability, and its derivative.
__device__ __forceinline__ float focal(float q, float& gradient) {
    const float o = clipped(q), doubt = 1.0f - o, entropy = -logf(o), factor = ALPHA * powf(doubt, GAMMA);
    gradient = unless_clipped(q, -ALPHA * GAMMA * powf(doubt, GAMMA - 1.0f) * entropy - factor / o);
    return factor * entropy;
}
#endif

#ifdef RATIO
// RATIO are a, b, c and d of `1 - a both / (b both + c targets + d predictions)`; its gradient is `by_target
// t + always`.
struct Ratio { double value, by_target, always; };
__device__ __forceinline__ Ratio overlap(double both, double of_targets, double of_predictions) {
    const double r[4] = {RATIO}, below = r[1] * both + r[2] * of_targets + r[3] * of_predictions + (double)EPSILON, above = r[0] * both;
    return {1.0 - above / below, (above * r[1] - r[0] * below) / (below * below), above * r[3] / (below * below)};
}

// The overlap of the whole batch: three sums of every block, and then gradients, for which each block adds
// them up.
extern "C" __global__ void overlap_parts(const X* prediction, const T* target, double* parts, i64 count) {
    double both = 0.0, of_targets = 0.0, of_predictions = 0.0;
    for (i64 i = first_item(); i < count; i += item_stride()) {
        double p = load(prediction, i), t = load(target, i);
        both += p * t;
        of_targets += t;
        of_predictions += p;
    }
    both = block_sum(both);
    of_targets = block_sum(of_targets);
    of_predictions = block_sum(of_predictions);
    if (threadIdx.x == 0) {
        parts[3 * blockIdx.x] = both;
        parts[3 * blockIdx.x + 1] = of_targets;
        parts[3 * blockIdx.x + 2] = of_predictions;
    }
}
extern "C" __global__ void overlap_gradients(const T* target, X* gradients, const double* parts, int parts_count, double* total, const Context* context, i64 count, i64 in_row, float weight, int reduction) {
    double sums[3] = {};
    for (int i = threadIdx.x; i < parts_count; i += blockDim.x)
        for (int j = 0; j < 3; j++) sums[j] += parts[3 * i + j];
    for (int j = 0; j < 3; j++) sums[j] = block_sum(sums[j]);
    const Ratio ratio = overlap(sums[0], sums[1], sums[2]);
    const double share = share_of(context, weight, in_row, reduction);
    const float by_target = (float)(share * ratio.by_target), always = (float)(share * ratio.always);
    for (i64 i = first_item(); gradients && i < count; i += item_stride()) store(gradients, i, by_target * load(target, i) + always);
    if (first_item() == 0) *total = share * ratio.value;
}
#endif

#ifdef SAMPLE
// Losses of whole samples: a block has a sample. SAMPLE is 0 soft logits, 2 soft probabilities, 3 numbered
// probabilities, 4 the cosine, 5 the categorical hinge, 6 the focal loss by FOCAL, 7 the overlap by RATIO.
extern "C" __global__ void samples(const X* prediction, const T* target, const float* weights, X* gradients, double* parts, const Context* context, i64 count, i64 weighed, i64 in_row, int classes, float weight, int reduction, float smoothing) {
    double base = share_of(context, weight, in_row, reduction), all = 0.0;
    float kept = 1.0f - smoothing, added = smoothing / classes;
    for (i64 sample = blockIdx.x; sample < count; sample += gridDim.x) {
        const X* x = prediction + sample * classes;
        X* d = gradients + sample * classes;
        // Classes whose gradients are written.
        const int written = gradients ? classes : 0;
        double share = weights ? base * weights[sample / weighed] : base;
        double value;
#if SAMPLE == 0
        float most = -INFINITE;
        for (int c = threadIdx.x; c < classes; c += blockDim.x) most = f_maximum(most, load(x, c));
        most = block_max(most);
        double powers = 0.0, total = 0.0, weighed = 0.0;
        for (int c = threadIdx.x; c < classes; c += blockDim.x) {
            float a = load(x, c);
            powers += expf(a - most);
            float t = load(target, sample * classes + c) * kept + added;
            total += t;
            weighed += t == 0.0f ? 0.0 : (double)t * ((double)a - most);
        }
        powers = block_sum(powers);
        total = block_sum(total);
        weighed = block_sum(weighed);
        value = total * log(powers) - weighed;
#ifdef UNIT_TARGETS
        total = 1.0;
#endif
        float factor = (float)(share * total / powers), mine = (float)share;
        for (int c = threadIdx.x; c < written; c += blockDim.x) {
            float gradient = factor * expf(load(x, c) - most);
            store(d, c, gradient - mine * (load(target, sample * classes + c) * kept + added));
        }
#elif SAMPLE == 2
        double sum = 0.0;
        for (int c = threadIdx.x; c < classes; c += blockDim.x) sum += load(x, c);
        float inverse = (float)(1.0 / block_sum(sum));
        double entropy = 0.0, middle = 0.0;
        for (int c = threadIdx.x; c < classes; c += blockDim.x) {
            float q = load(x, c) * inverse, t = load(target, sample * classes + c) * kept + added;
            entropy += -t * logf(clipped(q));
            middle += unless_clipped(q, -t);
        }
        value = block_sum(entropy);
        float mean = (float)block_sum(middle), scale = (float)share * inverse;
        for (int c = threadIdx.x; c < written; c += blockDim.x) {
            float q = load(x, c) * inverse, t = load(target, sample * classes + c) * kept + added;
            store(d, c, scale * (unless_clipped(q, -t / q) - mean));
        }
#elif SAMPLE == 3
        int wanted = target[sample];
        bool known = 0 <= wanted && wanted < classes;
        // A sample that does not count needs no class.
        const float none = share == 0.0 ? 0.0f : NOT_A_NUMBER;
        double sum = 0.0;
        for (int c = threadIdx.x; c < classes; c += blockDim.x) sum += clipped(load(x, c));
        sum = block_sum(sum);
        double likely = clipped(load(x, known ? wanted : 0));
        __syncthreads();
        float scale = (float)(share / sum), best = (float)(share / likely);
        for (int c = threadIdx.x; c < written; c += blockDim.x) {
            float p = load(x, c);
            float gradient = unless_clipped(p, c == wanted ? scale - best : scale);
            store(d, c, known ? gradient : none);
        }
        value = known ? log(sum) - log(likely) : (double)none;
#elif SAMPLE == 4
        double squares = 0.0, of_targets = 0.0, along = 0.0;
        for (int c = threadIdx.x; c < classes; c += blockDim.x) {
            double p = load(x, c), t = load(target, sample * classes + c);
            squares += p * p;
            of_targets += t * t;
            along += p * t;
        }
        double least = (double)EPSILON * (double)EPSILON;
        double of_p = sqrt(fmax(block_sum(squares), least)), of_t = sqrt(fmax(block_sum(of_targets), least));
        double cosine = block_sum(along) / (of_p * of_t);
        double bend = (double)EPSILON < of_p ? cosine / (of_p * of_p) : 0.0;
        float of_target = (float)(share / (of_p * of_t)), of_self = (float)(share * bend);
        for (int c = threadIdx.x; c < written; c += blockDim.x)
            store(d, c, of_self * load(x, c) - of_target * load(target, sample * classes + c));
        value = -cosine;
#elif SAMPLE == 5
        double right = 0.0;
        float wrong = -INFINITE;
        for (int c = threadIdx.x; c < classes; c += blockDim.x) {
            float p = load(x, c), t = load(target, sample * classes + c);
            right += (double)p * t;
            wrong = f_maximum(wrong, (1.0f - t) * p);
        }
        right = block_sum(right);
        wrong = block_max(wrong);
        // The index of the first maximum.
        float place = INFINITE;
        for (int c = threadIdx.x; c < classes; c += blockDim.x)
            if ((1.0f - load(target, sample * classes + c)) * load(x, c) == wrong) place = fminf(place, (float)c);
        place = -block_max(-place);
        value = (double)wrong - right + 1.0;
        float scale = value < 0.0 ? 0.0f : (float)share;
        for (int c = threadIdx.x; c < written; c += blockDim.x) {
            float t = load(target, sample * classes + c);
            store(d, c, scale * (((float)c == place ? 1.0f - t : 0.0f) - t));
        }
        value = value < 0.0 ? 0.0 : value;
#elif SAMPLE == 6
        float most = 0.0f;
        if (FROM_LOGITS) {
            most = -INFINITE;
            for (int c = threadIdx.x; c < classes; c += blockDim.x) most = f_maximum(most, load(x, c));
            most = block_max(most);
        }
        double sum = 0.0, entropy = 0.0, middle = 0.0;
        for (int c = threadIdx.x; c < classes; c += blockDim.x) sum += FROM_LOGITS ? expf(load(x, c) - most) : load(x, c);
        const float inverse = (float)(1.0 / block_sum(sum));
        auto likely = [&](int c) { return (FROM_LOGITS ? expf(load(x, c) - most) : load(x, c)) * inverse; };
        auto wanted = [&](int c) { return load(target, sample * classes + c) * kept + added; };
        for (int c = threadIdx.x; c < classes; c += blockDim.x) {
            float q = likely(c), t = wanted(c), gradient;
            entropy += t * focal(q, gradient);
            middle += t * gradient * q;
        }
        value = block_sum(entropy);
        // What all classes have in common, since probabilities add up to 1.
        const float mean = (float)block_sum(middle);
        for (int c = threadIdx.x; c < written; c += blockDim.x) {
            float q = likely(c), gradient;
            focal(q, gradient);
            store(d, c, (float)share * (FROM_LOGITS ? q : inverse) * (wanted(c) * gradient - mean));
        }
#else
        double both = 0.0, of_targets = 0.0, of_predictions = 0.0;
        for (int c = threadIdx.x; c < classes; c += blockDim.x) {
            double p = load(x, c), t = load(target, sample * classes + c);
            both += p * t;
            of_targets += t;
            of_predictions += p;
        }
        const Ratio ratio = overlap(block_sum(both), block_sum(of_targets), block_sum(of_predictions));
        value = ratio.value;
        const float by_target = (float)(share * ratio.by_target), always = (float)(share * ratio.always);
        for (int c = threadIdx.x; c < written; c += blockDim.x) store(d, c, by_target * load(target, sample * classes + c) + always);
#endif
        all += share * value;
        __syncthreads();
    }
    if (threadIdx.x == 0) parts[blockIdx.x] = all;
}
#endif

#ifdef TEAM
// Cross-entropy of logits with class numbers: TEAM threads have a sample. One pass takes the maximum logit
// and the sum of powers, a second one writes the gradients; elements between the first and the last pack of
// WIDTH go in packs.

// e to the power of x, for sums of powers whose maximum is 1: accurate where it counts.
__device__ __forceinline__ float power(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
    return y;
}

#if TEAM == 32
#define TEAM_MAX(x) warp_max(x)
#define TEAM_SUM(x) warp_sum(x)
#else
#define TEAM_MAX(x) block_max(x)
#define TEAM_SUM(x) block_sum(x)
#endif
#define BATCH 4

extern "C" __global__ void __launch_bounds__(512, 2) numbered_logits(const X* prediction, const T* target, const float* weights, X* gradients, double* parts, const Context* context, i64 count, i64 weighed, i64 in_row, int classes, float weight, int reduction, float) {
    const double base = share_of(context, weight, in_row, reduction);
    const int member = threadIdx.x % TEAM, teams = blockDim.x / TEAM;
    double all = 0.0;
    for (i64 sample = (i64)blockIdx.x * teams + threadIdx.x / TEAM; sample < count; sample += (i64)gridDim.x * teams) {
        const i64 start = sample * classes;
        const X* x = prediction + start;
        X* d = gradients + start;
        const int head = min(classes, (int)((WIDTH - start % WIDTH) % WIDTH)), packs = (classes - head) / WIDTH, tail = head + packs * WIDTH;
        const int wanted = target[sample];
        const bool known = 0 <= wanted && wanted < classes;
        const float aim = load(x, known ? wanted : 0);
        // A finite start, so that logits of minus infinity count nothing.
        float most = -3.402823466e38f, sum = 0.0f;
        auto take = [&](float a) {
            if (a > most) {
                sum *= power(most - a);
                most = a;
            }
            sum += power(a - most);
        };
        const int singles[2] = {member < head ? member : classes, tail + member};
#pragma unroll
        for (int s = 0; s < 2; s++)
            if (singles[s] < classes) take(load(x, singles[s]));
        for (int first = member; first < packs; first += BATCH * TEAM) {
            Pack<X, WIDTH> a[BATCH];
#pragma unroll
            for (int b = 0; b < BATCH; b++)
                if (first + b * TEAM < packs) a[b] = ((const Pack<X, WIDTH>*)(x + head))[first + b * TEAM];
#pragma unroll
            for (int b = 0; b < BATCH; b++)
                if (first + b * TEAM < packs) {
                    float highest = most;
#pragma unroll
                    for (int j = 0; j < WIDTH; j++) highest = fmaxf(highest, widen(a[b].at[j]));
                    if (highest > most) sum *= power(most - highest);
                    most = highest;
#pragma unroll
                    for (int j = 0; j < WIDTH; j++) sum += power(widen(a[b].at[j]) - most);
                }
        }
        const float own = most;
        most = TEAM_MAX(most);
        const double powers = TEAM_SUM((double)(sum * power(own - most)));
        const double share = weights ? base * weights[sample / weighed] : base;
        // A sample that does not count needs no class.
        const float none = share == 0.0 ? 0.0f : NOT_A_NUMBER, factor = known ? (float)(share / powers) : none, mine = (float)share;
        if (member == 0) all += known ? share * (log(powers) - (double)(aim - most)) : (double)none;
        if (!gradients) continue;
#pragma unroll
        for (int s = 0; s < 2; s++)
            if (singles[s] < classes) {
                const int c = singles[s];
                store(d, c, factor * power(load(x, c) - most) - (c == wanted ? mine : 0.0f));
            }
        for (int first = member; first < packs; first += BATCH * TEAM) {
            Pack<X, WIDTH> a[BATCH];
#pragma unroll
            for (int b = 0; b < BATCH; b++)
                if (first + b * TEAM < packs) a[b] = ((const Pack<X, WIDTH>*)(x + head))[first + b * TEAM];
#pragma unroll
            for (int b = 0; b < BATCH; b++)
                if (first + b * TEAM < packs) {
                    const int place = wanted - head - (first + b * TEAM) * WIDTH;
                    float gradient[WIDTH];
#pragma unroll
                    for (int j = 0; j < WIDTH; j++) gradient[j] = factor * power(widen(a[b].at[j]) - most) - (j == place ? mine : 0.0f);
                    store_pack<WIDTH>(d + head, first + b * TEAM, gradient);
                }
        }
    }
    all = block_sum(all);
    if (threadIdx.x == 0) parts[blockIdx.x] = all;
}
#endif

// One block. A loss that is not finite stops whatever would outlive the step.
extern "C" __global__ void add_loss(const double* parts, int count, float* loss, Context* context, int overwrite) {
    double total = 0.0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) total += parts[i];
    total = block_sum(total);
    if (threadIdx.x == 0) {
        float sum = (float)((overwrite ? 0.0 : (double)*loss) + total / context->loss_scale);
        *loss = sum;
        if (!isfinite(sum)) context->stopped = 1;
    }
}

#ifdef METRIC
// A warp has a sample. METRIC is 0 binary accuracy above a number, 1 categorical, 2 class numbers, 3
// equality, 5 categorical and 6 class numbers among the top `number`.
extern "C" __global__ void metric(const X* prediction, const T* target, const float* weights, double* parts, i64 count, i64 weighed, int classes, float number) {
    int lane = threadIdx.x & 31;
    double all = 0.0;
    for (i64 sample = first_item() >> 5; sample < count; sample += item_stride() >> 5) {
        const X* x = prediction + sample * classes;
        double weight = weights ? (double)weights[sample / weighed] : 1.0;
#if METRIC == 1 || METRIC == 2 || METRIC == 5 || METRIC == 6
        int place = 0, wanted = 0;
        float most = -INFINITE, most_target = -INFINITE;
        for (int c = lane; c < classes; c += 32) {
            float a = load(x, c);
            if (a > most) { most = a; place = c; }
#if METRIC == 1 || METRIC == 5
            float t = load(target, sample * classes + c);
            if (t > most_target) { most_target = t; wanted = c; }
#endif
        }
        for (int step = 16; step > 0; step >>= 1) {
            float a = __shfl_xor_sync(0xffffffffu, most, step);
            int at = __shfl_xor_sync(0xffffffffu, place, step);
            if (a > most || (a == most && a != -INFINITE && at < place)) { most = a; place = at; }
#if METRIC == 1 || METRIC == 5
            float t = __shfl_xor_sync(0xffffffffu, most_target, step);
            int t_at = __shfl_xor_sync(0xffffffffu, wanted, step);
            if (t > most_target || (t == most_target && t != -INFINITE && t_at < wanted)) { most_target = t; wanted = t_at; }
#endif
        }
#if METRIC == 2 || METRIC == 6
        wanted = target[sample];
#endif
        bool known = 0 <= wanted && wanted < classes;
#if METRIC == 1 || METRIC == 2
        if (lane == 0 && known && place == wanted) all += weight;
#else
        float border = known ? load(x, wanted) : NOT_A_NUMBER;
        int above = 0;
        for (int c = lane; c < classes; c += 32) above += load(x, c) > border;
        above = warp_sum(above);
        if (lane == 0 && isfinite(border) && above < number) all += weight;
#endif
#else
        for (int c = lane; c < classes; c += 32) {
            double p = load(x, c), t = load(target, sample * classes + c);
#if METRIC == 0
            all += weight * (t == (p > (double)number ? 1.0 : 0.0) ? 1.0 : 0.0) / classes;
#else
            all += weight * (p == t ? 1.0 : 0.0) / classes;
#endif
        }
#endif
    }
    all = block_sum(all);
    if (threadIdx.x == 0) parts[blockIdx.x] = all;
}
#endif

// Two sums of a metric: of weighted values, and of weights, of which a row that has several weighs the mean.
// One block.
extern "C" __global__ void add_metric(const double* parts, int count, float* sums, int overwrite, i64 divisor, const float* weights, i64 weights_count, i64 of_row) {
    double total = 0.0, weight = 0.0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) total += parts[i];
    if (weights)
        for (i64 i = threadIdx.x; i < weights_count; i += blockDim.x) weight += weights[i];
    total = block_sum(total);
    weight = block_sum(weight);
    if (threadIdx.x == 0) {
        sums[0] = (float)((overwrite ? 0.0 : (double)sums[0]) + total / divisor);
        sums[1] = (float)((overwrite ? 0.0 : (double)sums[1]) + (weights ? weight : (double)weights_count) / of_row);
    }
}
