// What every kernel can use. Values are f16, bf16 or floats in memory and floats in registers.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct f16 { u16 bits; };
struct bf16 { u16 bits; };

// What is set again for every step and micro-batch.
struct Context {
    u64 step;
    u64 iteration;
    u64 row_start;
    u64 rows;
    u64 rows_total;
    u64 seed;
    float learning_rate;
    float loss_scale;
    u64 source_row;
    // Set on the device when a loss was not finite: from then on nothing that outlives the step may be
    // written.
    int stopped;
};

// Compute capability 8.0 brought bf16, copies to shared memory that run beside the thread, and larger products: 7.5 does without.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define BEFORE_8_0 1
#else
#define BEFORE_8_0 0
#endif

#define INFINITE __int_as_float(0x7f800000)
#define NOT_A_NUMBER __int_as_float(0x7fffffff)

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
__device__ __forceinline__ float widen(bf16 x) { return __int_as_float((int)x.bits << 16); }

__device__ __forceinline__ void narrow(float x, float& y) { y = x; }
__device__ __forceinline__ void narrow(float x, f16& y) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }
#if BEFORE_8_0
// To the nearest, ties to even, as the instruction does it; what is not a number has one form.
__device__ __forceinline__ void narrow(float x, bf16& y) {
    u32 bits = (u32)__float_as_int(x);
    y.bits = x != x ? 0x7fff : (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#else
__device__ __forceinline__ void narrow(float x, bf16& y) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }
#endif

// One element as a float, from memory and back.
template <class T> __device__ __forceinline__ float load(const T* p, i64 i) { return widen(p[i]); }
template <class T> __device__ __forceinline__ void store(T* p, i64 i, float x) { T y; narrow(x, y); p[i] = y; }

// N neighbours at once. `i` counts packs; slots begin at multiples of 64 bytes.
template <class T, int N> struct alignas(sizeof(T) * N) Pack { T at[N]; };
template <int N, class T> __device__ __forceinline__ Pack<T, N> pack_at(const T* p, i64 i) { return ((const Pack<T, N>*)p)[i]; }
template <int N, class T> __device__ __forceinline__ void load_pack(const T* p, i64 i, float (&to)[N]) {
    Pack<T, N> pack = pack_at<N>(p, i);
#pragma unroll
    for (int j = 0; j < N; j++) to[j] = widen(pack.at[j]);
}
template <int N, class T> __device__ __forceinline__ void store_pack(T* p, i64 i, const float (&from)[N]) {
    Pack<T, N> pack;
#pragma unroll
    for (int j = 0; j < N; j++) narrow(from[j], pack.at[j]);
    ((Pack<T, N>*)p)[i] = pack;
}

// A number as a type, for code that is written once and compiled for several.
template <int N> struct Count { static constexpr int value = N; };

// The first item of this thread, and how far apart its items are, over the whole grid.
__device__ __forceinline__ i64 first_item() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ i64 item_stride() { return (i64)gridDim.x * blockDim.x; }

// Sums over a warp and over a block of at most 1024 threads, always in the same order; every thread gets the
// sum.
template <class T> __device__ __forceinline__ T warp_sum(T x) {
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}
template <class T> __device__ __forceinline__ T block_sum(T x) {
    __shared__ T parts[32];
    x = warp_sum(x);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = x;
    __syncthreads();
    T sum = T(0);
    int warps = (blockDim.x + 31) >> 5;
    for (int i = 0; i < warps; i++) sum += parts[i];
    return sum;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) {
        float y = __shfl_xor_sync(0xffffffffu, x, step);
        x = (x > y || x != x) ? x : y;
    }
    return x;
}
__device__ __forceinline__ float block_max(float x) {
    __shared__ float parts[32];
    x = warp_max(x);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = x;
    __syncthreads();
    float most = parts[0];
    int warps = (blockDim.x + 31) >> 5;
    for (int i = 1; i < warps; i++) most = (most > parts[i] || most != most) ? most : parts[i];
    return most;
}

// Counter-based random numbers: the same as memfit_ir::random, bit for bit.
__device__ __forceinline__ u64 random_bits(u64 seed, u64 index) {
    u64 z = seed * 0xD1342543DE82EF95ull + (index + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}
__device__ __forceinline__ float random_unit(u64 seed, u64 index) { return (float)(random_bits(seed, index) >> 40) * (1.0f / 16777216.0f); }
__device__ __forceinline__ u64 random_derive(u64 seed, u64 purpose) { return random_bits(seed ^ 0x6D656D666974ull, purpose); }

// Functions of a chain, as the CPU has them: what is not a number stays so.
__device__ __forceinline__ float f_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float f_relu(float x) { return x <= 0.0f ? 0.0f : x; }
__device__ __forceinline__ float f_relu_general(float x, float negative_slope, float most, float threshold) {
    float below = (negative_slope == 0.0f && x < threshold) ? 0.0f : negative_slope * (x - threshold);
    float inside = x > threshold ? x : below;
    return x >= most ? most : inside;
}
// exp(-x x / 2). The distribution's smaller side is that times a polynomial of t, fitted to 2e-7 of itself: a
// library's function for it takes longer than the memory around it.
__device__ __forceinline__ float f_normal_power(float x) { return exp2f(-0.72134752044448170f * x * x); }
__device__ __forceinline__ float f_normal_distribution(float x) {
    const float coefficients[9] = {0.024720544f, -0.0935951024f, 0.0924308747f, -0.00645114854f, 0.0727757737f, 0.0836306363f, 0.103084683f, 0.111699805f, 0.111703858f};
    float t = __fdividef(1.0f, 1.0f + 0.28f * fabsf(x)), sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 9; i++) sum = sum * t + coefficients[i];
    float smaller = f_normal_power(x) * t * sum;
    return x < 0.0f ? smaller : 1.0f - smaller;
}
__device__ __forceinline__ float f_normal_density(float x) { return 0.39894228040143268f * f_normal_power(x); }
__device__ __forceinline__ float f_softplus(float x) { return (x < 0.0f ? 0.0f : x) + log1pf(expf(-fabsf(x))); }
__device__ __forceinline__ float f_clip(float x, float low, float high) { x = x < low ? low : x; return x > high ? high : x; }
__device__ __forceinline__ float f_maximum(float a, float b) { return (a > b || a != a) ? a : b; }
__device__ __forceinline__ float f_minimum(float a, float b) { return (a < b || a != a) ? a : b; }

// The factor of a channel of a batch normalisation, and whether a ReLU after it lets a value pass: alike in
// every kernel, so that backward finds the signs that forward had.
__device__ __forceinline__ float norm_gain(const float* gamma, const float* variance, float epsilon, int channel) {
    return (gamma ? gamma[channel] : 1.0f) / sqrtf(variance[channel] + epsilon);
}
__device__ __forceinline__ float normalised(float distance, float gain, float offset) { return fmaf(distance, gain, offset); }
__device__ __forceinline__ bool norm_passes(float distance, float gain, float offset, float below) {
    float y = normalised(distance, gain, offset);
    return y > 0.0f && y < below;
}
