// A tile of an image in shared memory as floats, for products in TF32, in flight while something else is
// computed. LINES lines of SEEN floats, STRIDE apart, begin at a line of the image and at a number of its
// lines; around the image there are zeros. A warp has every eighth line. Generated: X (the image's type),
// HALF where that is not float.

#ifdef HALF
// f16 and bf16 become floats, which is exact in TF32, in registers on their way.
#define LINES_OF_WARP ((LINES + 7) / 8)
struct Staged { X values[LINES_OF_WARP][OF_LANE]; };

__device__ __forceinline__ void begin_stage(Staged& staged, float*, const X* image, int first_line, int first, int height, int numbers) {
    first += threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < LINES_OF_WARP; i++) {
        int line = (threadIdx.x >> 5) + 8 * i, h = first_line + line;
        bool exists = line < LINES && 0 <= h && h < height;
        const X* from = image + ((i64)h * numbers + first);
#pragma unroll
        for (int j = 0; j < OF_LANE; j++) {
            bool inside = exists && (u32)(first + 32 * j) < (u32)numbers;
            X value = *(inside ? from + 32 * j : image);
            value.bits = inside ? value.bits : 0;
            staged.values[i][j] = value;
        }
    }
}

__device__ __forceinline__ void end_stage(const Staged& staged, float* seen) {
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < LINES_OF_WARP; i++) {
        int line = (threadIdx.x >> 5) + 8 * i;
#pragma unroll
        for (int j = 0; j < OF_LANE; j++)
            if ((8 * i + 7 < LINES || line < LINES) && (32 * j + 31 < SEEN || 32 * j + lane < SEEN)) seen[line * STRIDE + 32 * j + lane] = widen(staged.values[i][j]);
    }
}
#else
struct Staged {};

__device__ __forceinline__ void begin_stage(Staged&, float* seen, const float* image, int first_line, int first, int height, int numbers) {
    int lane = threadIdx.x & 31;
    first += lane;
    for (int line = threadIdx.x >> 5; line < LINES; line += 8) {
        int h = first_line + line;
        bool exists = 0 <= h && h < height;
        const float* from = image + ((i64)h * numbers + first);
#pragma unroll
        for (int j = 0; j < OF_LANE; j++) {
            bool inside = exists && (u32)(first + 32 * j) < (u32)numbers;
            if (32 * j + 31 < SEEN || 32 * j + lane < SEEN) copy_4(seen + line * STRIDE + 32 * j + lane, inside ? from + 32 * j : image, inside);
        }
    }
}

// Waits for this thread's copies, and rounds what they brought.
__device__ __forceinline__ void end_stage(const Staged&, float* seen) {
    wait_for_copies();
    for (int line = threadIdx.x >> 5; line < LINES; line += 8) {
        float* own = seen + line * STRIDE + (threadIdx.x & 31);
#pragma unroll
        for (int j = 0; j < OF_LANE; j++)
            if (32 * j + 31 < SEEN || 32 * j + (threadIdx.x & 31) < SEEN) own[32 * j] = ROUNDED(own[32 * j]);
    }
}
#endif

// The float at a place that is counted in bytes.
__device__ __forceinline__ float at_byte(const float* from, int offset) { return *(const float*)((const char*)from + offset); }
