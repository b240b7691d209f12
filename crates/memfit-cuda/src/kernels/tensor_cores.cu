// Tiles of f16 or bf16 in shared memory, and products of them by a warp: `mma` of 16 x 8 x 16, summed up in
// floats.
//
// Thread `t` of a warp holds, of A (16 x 16), rows t/4 and t/4 + 8 at columns 2(t%4) and 2(t%4) + 8 and their
// right neighbours, in the order (row, column), (row + 8, column), (row, column + 8), (row + 8, column + 8);
// of B (16 x 8) column t/4 at those rows; of the sums (16 x 8) rows t/4 and t/4 + 8 at column 2(t%4) and its
// right neighbour.

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// Four tiles of 8 x 8 values: lane 8 i + j names row j of tile i; every lane gets a pair of each, as A and B
// need them.
template <class T> __device__ __forceinline__ void load_tiles(u32 (&to)[4], const T* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(shared_address(row)) : "memory");
}
// The same of the transposed tiles.
template <class T> __device__ __forceinline__ void load_tiles_turned(u32 (&to)[4], const T* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(shared_address(row)) : "memory");
}

#if BEFORE_8_0
// The first and the second of two bf16 in one word.
__device__ __forceinline__ float first_of(u32 pair) { return __int_as_float((int)(pair << 16)); }
__device__ __forceinline__ float second_of(u32 pair) { return __int_as_float((int)(pair & 0xffff0000u)); }

// Tensor cores take no bf16 here: lanes hand each other what they hold, and each adds up its own sums. A function that is called, since
// the kernels have hundreds of these products.
__device__ __noinline__ Pack<float, 4> add_products(Pack<float, 4> sums, Pack<u32, 4> a, u32 b0, u32 b1) {
    int lane = threadIdx.x % 32, row = lane / 4 * 4, column = lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        u32 left = __shfl_sync(0xffffffffu, i < 4 ? b0 : b1, column + i % 4), right = __shfl_sync(0xffffffffu, i < 4 ? b0 : b1, column + 4 + i % 4);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 factors = __shfl_sync(0xffffffffu, a.at[i / 4 * 2 + half], row + i % 4);
            float* to = sums.at + 2 * half;
            to[0] = fmaf(second_of(factors), second_of(left), fmaf(first_of(factors), first_of(left), to[0]));
            to[1] = fmaf(second_of(factors), second_of(right), fmaf(first_of(factors), first_of(right), to[1]));
        }
    }
    return sums;
}
__device__ __forceinline__ void multiply_tiles(float (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1, bf16) {
    Pack<float, 4> result = add_products({{sums[0], sums[1], sums[2], sums[3]}}, {{a[0], a[1], a[2], a[3]}}, b0, b1);
#pragma unroll
    for (int i = 0; i < 4; i++) sums[i] = result.at[i];
}
// Products of f16 are half as deep: two of them are one.
__device__ __forceinline__ void multiply_tiles_shallow(float (&sums)[4], u32 a0, u32 a1, u32 b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};" : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) : "r"(a0), "r"(a1), "r"(b));
}
__device__ __forceinline__ void multiply_tiles(float (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1, f16) {
    multiply_tiles_shallow(sums, a[0], a[1], b0);
    multiply_tiles_shallow(sums, a[2], a[3], b1);
}

// Two neighbours in one word, the first in its lower half.
template <class T> __device__ __forceinline__ u32 pair_of(float first, float second, T) {
    T low, high;
    narrow(first, low);
    narrow(second, high);
    return low.bits | (u32)high.bits << 16;
}

// A copy of 16 or 4 bytes to shared memory; zeros where there is nothing to copy.
template <class T> __device__ __forceinline__ void copy_or_zero(void* to, const void* from, bool there) {
    T value = {};
    if (there) value = *(const T*)from;
    *(T*)to = value;
}
__device__ __forceinline__ void copy_16(void* to, const void* from, bool there) { copy_or_zero<Pack<u32, 4>>(to, from, there); }
__device__ __forceinline__ void copy_4(void* to, const void* from, bool there) { copy_or_zero<u32>(to, from, there); }
__device__ __forceinline__ void wait_for_copies() {}
#else
__device__ __forceinline__ void multiply_tiles(float (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1, bf16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply_tiles(float (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1, f16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two neighbours in one word, the first in its lower half.
__device__ __forceinline__ u32 pair_of(float first, float second, bf16) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}
__device__ __forceinline__ u32 pair_of(float first, float second, f16) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

// A copy of 16 or 4 bytes to shared memory that runs on beside the thread; zeros where there is nothing to
// copy.
__device__ __forceinline__ void copy_16(void* to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}
__device__ __forceinline__ void copy_4(void* to, const void* from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 4 : 0) : "memory");
}
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#endif

__device__ __forceinline__ float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Hopper multiplies by groups of four warps, whose rows together are the left operand, each in its own
// registers as above, and reads the right one from shared memory. Elsewhere what orders such products is
// nothing.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WARPGROUPS 1
#else
#define WARPGROUPS 0
#endif

#if WARPGROUPS
// A tile of rows of 64 values, 128 bytes each, whose eighths are swizzled by the row within groups of eight
// rows.
__device__ __forceinline__ u64 describe_tile(const void* tile) {
    return (u64)((shared_address(tile) & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

#define FOUR(n) "+f"(sums[n][0]), "+f"(sums[n][1]), "+f"(sums[n][2]), "+f"(sums[n][3])
#define GROUPED_PRODUCT(T)                                                                                                                       \
    template <int TURNED> __device__ __forceinline__ void multiply_grouped(float (&sums)[8][4], const u32 (&a)[4], u64 b, int adds, T) {         \
        asm volatile(                                                                                                                            \
            "{ .reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32." #T "." #T                                       \
            " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "     \
            "%27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, %38; }"                                                              \
            : FOUR(0), FOUR(1), FOUR(2), FOUR(3), FOUR(4), FOUR(5), FOUR(6), FOUR(7)                                                             \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds), "n"(TURNED));                                                      \
    }                                                                                                                                            \
    template <int TURNED> __device__ __forceinline__ void multiply_grouped(float (&sums)[4][4], const u32 (&a)[4], u64 b, int adds, T) {         \
        asm volatile(                                                                                                                            \
            "{ .reg .pred p; setp.ne.b32 p, %21, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32." #T "." #T                                       \
            " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, p, 1, 1, %22; }"                \
            : FOUR(0), FOUR(1), FOUR(2), FOUR(3)                                                                                                 \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds), "n"(TURNED));                                                      \
    }
GROUPED_PRODUCT(bf16)
GROUPED_PRODUCT(f16)

// Keeps the compiler from using sums before the wait for their products.
template <int N> __device__ __forceinline__ void fence_sums(float (&sums)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++) asm volatile("" : FOUR(n)::"memory");
}
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until no more than the LEFT last groups of products go on.
template <int LEFT> __device__ __forceinline__ void wait_for_products() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }
// Products after the next barrier can read what this thread has written to shared memory.
__device__ __forceinline__ void show_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#else
template <int N> __device__ __forceinline__ void fence_sums(float (&)[N][4]) {}
__device__ __forceinline__ void begin_products() {}
__device__ __forceinline__ void end_products() {}
template <int LEFT> __device__ __forceinline__ void wait_for_products() {}
__device__ __forceinline__ void show_to_products() {}
#endif
