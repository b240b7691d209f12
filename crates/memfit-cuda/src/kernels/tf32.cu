// Products of floats that are rounded to TF32, by a warp: `mma` of 16 x 8 x 8, summed up in floats.
//
// With `g = lane / 4` and `q = lane % 4`, a lane holds of A (16 x 8) rows g and g + 8 at column q, then both
// at column q + 4; of B (8 x 8) rows q and q + 4 at column g; of the sums (16 x 8) columns 2q and 2q + 1 of
// row g, then of row g + 8.

__device__ __forceinline__ void multiply(float (&sums)[4], const float (&a)[4], const float (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) : "r"(__float_as_int(a[0])), "r"(__float_as_int(a[1])), "r"(__float_as_int(a[2])), "r"(__float_as_int(a[3])), "r"(__float_as_int(b[0])), "r"(__float_as_int(b[1])));
}

// To the nearest number of ten bits; ties are rounded away from zero.
__device__ __forceinline__ float rounded(float x) {
    u32 bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return __int_as_float((int)bits);
}
#define ROUNDED(value) rounded(value)
