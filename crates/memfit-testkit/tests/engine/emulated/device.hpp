// A GPU's threads on a processor, as far as our kernels use them: every thread of a block is a fiber, blocks run one after the other.
// What a thread does between two barriers it does at once, forwards or backwards in the order of threads, so that a barrier
// that is missing shows in one of the two.

#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __device__
#define __global__ static
#define __forceinline__ inline
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)
#define __noinline__ inline

struct alignas(16) float4 { float x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

struct dim3 { unsigned x, y, z; };
inline dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

[[noreturn]] inline void fail(const char* words) {
    uint64_t length = strlen(words);
    fwrite(&length, 8, 1, stdout);
    fwrite(words, 1, length, stdout);
    fflush(stdout);
    exit(1);
}

enum State { READY, AT_WARP, AT_BLOCK, DONE };

const int MOST_THREADS = 1024;
const size_t STACK = 128 << 10;

struct Fiber {
    State state;
    bool started;
    jmp_buf at;
    ucontext_t begin;
    // Values for other lanes, double-buffered so that no lane overwrites what another still reads.
    uint64_t handed[2];
    int turn;
};

inline Fiber fibers[MOST_THREADS];
inline jmp_buf home;
inline int current;
inline bool forwards = true;

// A kernel that takes its arguments from words of eight bytes.
using Kernel = void (*)(uint64_t*);

struct Job {
    Kernel kernel;
    uint64_t* values;
};
inline Job job;

inline void leave(State why) {
    fibers[current].state = why;
    if (!_setjmp(fibers[current].at)) _longjmp(home, 1);
}

inline void live() {
    for (;;) {
        job.kernel(job.values);
        leave(DONE);
    }
}

inline void resume(int fiber) {
    current = fiber;
    threadIdx = {(unsigned)fiber, 0, 0};
    if (_setjmp(home)) return;
    Fiber& next = fibers[fiber];
    if (next.started) _longjmp(next.at, 1);
    next.started = true;
    getcontext(&next.begin);
    next.begin.uc_stack.ss_sp = malloc(STACK);
    next.begin.uc_stack.ss_size = STACK;
    makecontext(&next.begin, live, 0);
    setcontext(&next.begin);
}

// Runs a warp until all its threads are at a barrier of the block, or done.
inline void run_warp(int first, int end) {
    for (;;) {
        for (int i = 0; i < end - first; i++) {
            int fiber = forwards ? first + i : end - 1 - i;
            if (fibers[fiber].state == READY) resume(fiber);
        }
        int waiting = 0;
        for (int i = first; i < end; i++) waiting += fibers[i].state == AT_WARP;
        if (waiting == 0) return;
        if (waiting < end - first) fail("some threads of a warp wait for others that do not come");
        for (int i = first; i < end; i++) fibers[i].state = READY;
    }
}

inline void run_block(int threads) {
    for (int i = 0; i < threads; i++) fibers[i].state = READY;
    int warps = (threads + 31) / 32;
    for (bool waits = true; waits;) {
        for (int i = 0; i < warps; i++) {
            int warp = forwards ? i : warps - 1 - i;
            run_warp(warp * 32, warp * 32 + 32 < threads ? warp * 32 + 32 : threads);
        }
        waits = false;
        for (int i = 0; i < threads; i++)
            if (fibers[i].state == AT_BLOCK) {
                fibers[i].state = READY;
                waits = true;
            }
    }
}

inline void run_grid(dim3 blocks, int threads, Job next) {
    job = next;
    gridDim = blocks;
    blockDim = {(unsigned)threads, 1, 1};
    uint64_t count = (uint64_t)blocks.x * blocks.y * blocks.z;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = forwards ? i : count - 1 - i;
        blockIdx = {(unsigned)(at % blocks.x), (unsigned)(at / blocks.x % blocks.y), (unsigned)(at / blocks.x / blocks.y)};
        run_block(threads);
    }
}

// Calls a kernel; every parameter takes as many bytes of its word as it has.
template <class... P, size_t... I> void call(void (*kernel)(P...), uint64_t* values, std::index_sequence<I...>) {
    auto take = [&](auto type, size_t i) { memcpy(&type, &values[i], sizeof type); return type; };
    kernel(take(std::remove_const_t<P>{}, I)...);
}
template <class... P> void call(void (*kernel)(P...), uint64_t* values) { call(kernel, values, std::index_sequence_for<P...>{}); }

// Calls an update of one weight, of which a launch could have many.
template <class Many, class C> void call_update(void (*kernel)(Many, C), uint64_t* values) {
    std::remove_const_t<Many> many = {};
    memcpy(&many.at[0], values, sizeof many.at[0]);
    for (int& first : many.first_block) first = (int)gridDim.x;
    many.first_block[0] = 0;
    kernel(many, (C)values[9]);
}

// The value that each lane of the warp wrote.
template <class T> struct Lanes {
    int first, turn;
    T of(int lane) const {
        T value;
        memcpy(&value, &fibers[first + lane].handed[turn], sizeof value);
        return value;
    }
};
template <class T> Lanes<T> hand_over(T value) {
    static_assert(sizeof(T) <= 8);
    Fiber& own = fibers[current];
    own.turn ^= 1;
    int turn = own.turn;
    memcpy(&own.handed[turn], &value, sizeof value);
    leave(AT_WARP);
    return {current / 32 * 32, turn};
}

}  // namespace emulator

inline void __syncthreads() { emulator::leave(emulator::AT_BLOCK); }
inline void __syncwarp(unsigned = 0xffffffffu) { emulator::leave(emulator::AT_WARP); }
template <class T> T __shfl_sync(unsigned, T value, int lane) { return emulator::hand_over(value).of(lane); }
template <class T> T __shfl_xor_sync(unsigned, T value, int mask) {
    int lane = threadIdx.x % 32;
    return emulator::hand_over(value).of(lane ^ mask);
}
template <class T> T __shfl_up_sync(unsigned, T value, int step) {
    int lane = threadIdx.x % 32;
    return emulator::hand_over(value).of(lane < step ? lane : lane - step);
}
inline unsigned __match_any_sync(unsigned, unsigned value) {
    auto lanes = emulator::hand_over(value);
    unsigned alike = 0;
    for (int lane = 0; lane < 32; lane++) alike |= (unsigned)(lanes.of(lane) == value) << lane;
    return alike;
}
template <class T> T atomicMax(T* to, T value) { T before = *to; *to = before < value ? value : before; return before; }
template <class T> T atomicMin(T* to, T value) { T before = *to; *to = value < before ? value : before; return before; }
template <class T> T atomicAdd(T* to, T value) { T before = *to; *to = before + value; return before; }

template <class T, class F> T same_bits(F from) { static_assert(sizeof(T) == sizeof(F)); T to; memcpy(&to, &from, sizeof to); return to; }
inline float __int_as_float(int x) { return same_bits<float>(x); }
inline int __float_as_int(float x) { return same_bits<int>(x); }
inline double __longlong_as_double(long long x) { return same_bits<double>(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline size_t __cvta_generic_to_shared(const void* p) { return (size_t)p; }
template <class T> T __ldg(const T* p) { return *p; }
inline float __fmul_rn(float a, float b) { volatile float c = a * b; return c; }
inline float __fadd_rn(float a, float b) { volatile float c = a + b; return c; }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
template <class A, class B> auto min(A a, B b) -> decltype(a + b) { return b < a ? b : a; }
template <class A, class B> auto max(A a, B b) -> decltype(a + b) { return a < b ? b : a; }
using std::isfinite;
using std::isinf;
using std::isnan;

// f16 and bf16: round to nearest, ties to even.
inline float float_of_f16(uint16_t bits) {
    int exponent = bits >> 10 & 31, rest = bits & 1023;
    float size = exponent == 31 ? (rest ? NAN : INFINITY) : exponent ? ldexpf((float)(1024 + rest), exponent - 25) : ldexpf((float)rest, -24);
    return bits & 0x8000 ? -size : size;
}
inline uint16_t f16_of_float(float x) {
    uint16_t sign = same_bits<uint32_t>(x) >> 16 & 0x8000;
    float size = fabsf(x);
    if (size != size) return 0x7fff;
    if (size >= 65520.0f) return sign | 0x7c00;
    if (size < 6.103515625e-05f) return sign | (uint16_t)nearbyintf(ldexpf(size, 24));
    int exponent;
    float share = frexpf(size, &exponent);
    // A share that rounds up to the next power carries into the exponent.
    return sign | (uint16_t)(((exponent + 14) << 10) + (int)nearbyintf(ldexpf(share, 11)) - 1024);
}
inline uint16_t bf16_of_float(float x) {
    uint32_t bits = same_bits<uint32_t>(x);
    if (x != x) return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float float_of_bf16(uint16_t bits) { return same_bits<float>((uint32_t)bits << 16); }

// To ten bits after the first, ties away from zero.
inline uint32_t tf32_of_float(float x) {
    uint32_t bits = same_bits<uint32_t>(x);
    return isfinite(x) ? (bits + 0x1000) & ~0x1fffu : bits;
}

// A copy to shared memory, which is there at once.
inline void copy_or_zero(void* to, const void* from, bool there, size_t bytes) {
    if (there) memcpy(to, from, bytes);
    else memset(to, 0, bytes);
}

// Four tiles of eight rows of eight f16 or bf16 values. Lanes give the addresses of rows, and every lane gets
// a pair of each tile.
inline void load_tiles_of_halves(uint32_t (&to)[4], const void* row, bool turned) {
    auto rows = emulator::hand_over((uint64_t)row);
    int lane = threadIdx.x % 32, first = lane / 4, second = lane % 4 * 2;
    for (int tile = 0; tile < 4; tile++) {
        auto at = [&](int line, int place) { return (uint32_t)((const uint16_t*)rows.of(8 * tile + line))[place]; };
        to[tile] = turned ? at(second, first) | at(second + 1, first) << 16 : at(first, second) | at(first, second + 1) << 16;
    }
}

// A product of 16 by 8: of A a lane holds words of rows g and g + 8, of B of column g, first of place q and then of place q + 4.
template <class Term> void multiply_tile(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Term term) {
    struct Two { uint32_t at[2]; };
    int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    float products[4] = {};
    Two of_a[2][4];
    for (int half = 0; half < 2; half++) {
        auto words = emulator::hand_over(Two{{a[2 * half], a[2 * half + 1]}});
        for (int i = 0; i < 4; i++) of_a[half][i] = words.of(4 * g + i);
    }
    auto of_b = emulator::hand_over(Two{{b[0], b[1]}});
    for (int j = 0; j < 4; j++)
        for (int half = 0; half < 2; half++)
            for (int i = 0; i < 4; i++) products[j] += term(of_a[half][i].at[j / 2], of_b.of((2 * q + j % 2) * 4 + i).at[half]);
    for (int j = 0; j < 4; j++) sums[j] += products[j];
}
inline void multiply_floats(float (&sums)[4], const float (&a)[4], const float (&b)[2]) {
    uint32_t left[4], right[2];
    memcpy(left, a, sizeof left);
    memcpy(right, b, sizeof right);
    // The bits after the ten are not read.
    auto read = [](uint32_t bits) { return same_bits<float>(bits & ~0x1fffu); };
    multiply_tile(sums, left, right, [&](uint32_t x, uint32_t y) { return read(x) * read(y); });
}
inline void multiply_halves(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float (*widen)(uint16_t)) {
    uint32_t right[2] = {b0, b1};
    auto product = [&](uint32_t x, uint32_t y) { return widen((uint16_t)x) * widen((uint16_t)y) + widen(x >> 16) * widen(y >> 16); };
    multiply_tile(sums, a, right, product);
}
