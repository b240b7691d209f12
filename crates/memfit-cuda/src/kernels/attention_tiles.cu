// What all kernels of attention on tensor cores share: tiles of D values of type X in shared memory, and the
// 16 rows of scores of a warp.

// Rows of D values that are worked on at once, beside those that a warp keeps.
#define STRIPE (D == 128 ? 32 : 64)
#define LOG2_E 1.4426950408889634f

// Where 8 values of a row stand: swizzled by the row, so that eight rows of a column lie in different banks.
__device__ __forceinline__ int place(int row, int eight) {
    return row * D + ((eight ^ (D == 32 ? (row >> 1) & 3 : row & 7)) << 3);
}

// 16 rows from `row` on, as left operands.
__device__ __forceinline__ void load_left(u32 (&to)[D / 16][4], const X* tile, int row) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int c = 0; c < D / 16; c++) load_tiles(to[c], tile + place(row + lane % 16, 2 * c + lane / 16));
}

// Rows `row` to `row + 15` of a tile as the columns of two right operands, over 16 values from `16 c` on.
__device__ __forceinline__ void load_across(u32 (&to)[4], const X* tile, int row, int c) {
    int lane = threadIdx.x % 32;
    load_tiles(to, tile + place(row + lane % 8 + lane / 16 * 8, 2 * c + lane / 8 % 2));
}

// Rows `row` to `row + 15` of a tile as the rows of two right operands, of columns `16 c` to `16 c + 15`.
__device__ __forceinline__ void load_down(u32 (&to)[4], const X* tile, int row, int c) {
    int lane = threadIdx.x % 32;
    load_tiles_turned(to, tile + place(row + lane % 16, 2 * c + lane / 16));
}

// Two neighbouring tiles of sums as a left operand.
__device__ __forceinline__ void as_left(u32 (&to)[4], const float (&first)[4], const float (&second)[4]) {
    to[0] = pair_of(first[0], first[1], X());
    to[1] = pair_of(first[2], first[3], X());
    to[2] = pair_of(second[0], second[1], X());
    to[3] = pair_of(second[2], second[3], X());
}

// 16 rows of sums, times a factor for the upper and one for the lower eight, to rows of memory that are
// `step` apart.
__device__ __forceinline__ void store_rows(X* to, i64 step, int there, const float (&sums)[D / 8][4], float upper, float lower) {
    int lane = threadIdx.x % 32, row = lane / 4, column = lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        if (row < there) *(u32*)(to + row * step + n * 8 + column) = pair_of(sums[n][0] * upper, sums[n][1] * upper, X());
        if (row + 8 < there) *(u32*)(to + (row + 8) * step + n * 8 + column) = pair_of(sums[n][2] * lower, sums[n][3] * lower, X());
    }
}

// Hides scores right of the diagonal, or left of it where the direction is -1; the first row meets it in
// column `diagonal`.
template <int COLUMNS> __device__ __forceinline__ void hide(float (&scores)[COLUMNS / 8][4], int diagonal, int direction) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int distance = n * 8 + lane % 4 * 2 + i % 2 - (diagonal + lane / 4 + i / 2 * 8);
            if (0 < distance * direction) scores[n][i] = -INFINITE;
        }
    }
}

__device__ __forceinline__ float sum_of_four(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
