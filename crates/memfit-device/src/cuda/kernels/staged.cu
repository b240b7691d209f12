// A tile of an image in shared memory, copied beside what is computed, for products in TF32. LINES lines of SEEN floats, STRIDE apart.

// Begins to copy a tile that begins at a line of the image and at a float of its lines, with zeros around the image: a line a warp.
__device__ __forceinline__ void begin_stage(float* seen, const float* image, int first_line, int first, int height, int floats) {
    int lane = threadIdx.x & 31;
    first += lane;
    for (int line = threadIdx.x >> 5; line < LINES; line += 8) {
        int h = first_line + line;
        bool exists = 0 <= h && h < height;
        const float* from = image + ((i64)h * floats + first);
#pragma unroll
        for (int j = 0; j < OF_LANE; j++) {
            bool inside = exists && (u32)(first + 32 * j) < (u32)floats;
            if (32 * j + 31 < SEEN || 32 * j + lane < SEEN) copy_4(seen + line * STRIDE + 32 * j + lane, inside ? from + 32 * j : image, inside);
        }
    }
}

// Waits for this thread's copies, and rounds what they brought.
__device__ __forceinline__ void end_stage(float* seen) {
    wait_for_copies();
    for (int line = threadIdx.x >> 5; line < LINES; line += 8) {
        float* own = seen + line * STRIDE + (threadIdx.x & 31);
#pragma unroll
        for (int j = 0; j < OF_LANE; j++)
            if (32 * j + 31 < SEEN || 32 * j + (threadIdx.x & 31) < SEEN) own[32 * j] = ROUNDED(own[32 * j]);
    }
}

// The float at a place that is counted in bytes.
__device__ __forceinline__ float at_byte(const float* from, int offset) { return *(const float*)((const char*)from + offset); }
