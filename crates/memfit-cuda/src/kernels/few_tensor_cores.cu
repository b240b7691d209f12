// Convolutions of images of few channels whose factors are rounded to TF32, which is exact for f16 and bf16.
// Generated: X (the images' type), R, S (the filter), C (channels in), DOWN and ACROSS (strides), F (filters,
// of which a block has 64), TILE_DOWN and TILE_ACROSS (pixels of a tile, 256 in all), what a tile sees
// (LINES, SEEN and STRIDE, with eight floats or more after a line), and N_TILES (packs of eight filters that
// a warp has).
//
// Lanes read pixels so far apart that they read from different banks. Blocks of one tile and different
// filters run side by side, so that whole pixels are written at about the same time.

#define TAPS (R * S * C)
#define OF_ROW (S * C)
#define N_WARPS (8 / N_TILES)
#define COMMON(n) ((n) % 8 == 0 ? 8 : (n) % 4 == 0 ? 4 : (n) % 2 == 0 ? 2 : 1)

// A number as the images' type has it.
__device__ __forceinline__ float as_stored(float x) {
    X y;
    narrow(x, y);
    return widen(y);
}

// The offset of a tap from the pixel that a place sees first, in bytes.
__device__ __forceinline__ int tap_offset(int tap) { return 4 * (tap / OF_ROW * STRIDE + tap % OF_ROW); }

__device__ __forceinline__ void begin_tile(Staged& staged, float* seen, const X* x, i64 index, int height, int width, int out_height, int out_width, int top, int left) {
    const Tile tile = tile_of(index, out_height, out_width);
    begin_stage(staged, seen, x + tile.row * height * width * C, tile.down * DOWN - top, (tile.across * ACROSS - left) * C, height, width * C);
}

#ifdef FORWARD
// Generated as well: FUNCTION (what happens to a result, or nothing).
//
// Few taps are multiplied eight by eight as they come; of many, every row of the filter begins a new eight,
// so that all places are known to the compiler.
#define PACKED (TAPS <= 32)
#define ROW_STEPS ((OF_ROW + 7) / 8)
#define STEPS (PACKED ? (TAPS + 7) / 8 : R * ROW_STEPS)
#define SPREAD (4 / (COMMON(ACROSS * C) < 4 ? COMMON(ACROSS * C) : 4))
// Packs of which a lane has neighbouring filters, as many as it stores at once.
#define TOGETHER (sizeof(X) == 2 && N_TILES % 4 == 0 ? 4 : 2)

// The tap that a lane has in a step: the first of four neighbours, how many of these there are, and where it
// stands.
__device__ __forceinline__ int first_tap(int step, int half) { return PACKED ? 8 * step + 4 * half : step / ROW_STEPS * OF_ROW + step % ROW_STEPS * 8 + 4 * half; }
__device__ __forceinline__ int taps_there(int step, int half) { return PACKED ? TAPS - 8 * step - 4 * half : OF_ROW - step % ROW_STEPS * 8 - 4 * half; }

// A warp has 16 pixels of a line at a time, rows g and g + 8 of a product. Columns are dealt out so that a
// lane has neighbouring filters of every TOGETHER packs. While a tile is computed, the next one is in flight.
extern "C" __global__ void __launch_bounds__(256, 2) few_forward(const X* x, const float* filter, const float* bias, X* y, i64 tiles, int height, int width, int out_height, int out_width, int top, int left) {
    __shared__ float seen[2][LINES * STRIDE], start[64];
    const int warp = threadIdx.x >> 5, g = (threadIdx.x & 31) >> 2, q = threadIdx.x & 3;
    const int first_column = warp % N_WARPS * 8 * N_TILES, first_filter = blockIdx.x * 64 + first_column;
    if (threadIdx.x < 64) start[threadIdx.x] = bias ? as_stored(bias[blockIdx.x * 64 + threadIdx.x]) : 0.0f;
    float taps[STEPS][N_TILES][2];
    int offsets[STEPS][2];
#pragma unroll
    for (int step = 0; step < STEPS; step++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int tap = first_tap(step, half) + q;
            const bool there = q < taps_there(step, half);
            offsets[step][half] = PACKED && there ? tap_offset(tap) : 0;
#pragma unroll
            for (int t = 0; t < N_TILES; t++) {
                int of_lane = first_filter + t / TOGETHER * TOGETHER * 8 + g / 2 * 2 * TOGETHER + t % TOGETHER * 2 + g % 2;
                taps[step][t][half] = there ? ROUNDED(as_stored(filter[tap * F + of_lane])) : 0.0f;
            }
        }
    Staged staged;
    if (blockIdx.y < tiles) begin_tile(staged, seen[0], x, blockIdx.y, height, width, out_height, out_width, top, left);
    int turn = 0;
    for (i64 index = blockIdx.y; index < tiles; index += gridDim.y, turn ^= 1) {
        end_stage(staged, seen[turn]);
        __syncthreads();
        if (index + gridDim.y < tiles) begin_tile(staged, seen[turn ^ 1], x, index + gridDim.y, height, width, out_height, out_width, top, left);
        const Tile tile = tile_of(index, out_height, out_width);
        for (int group = warp / N_WARPS; group < TILE_DOWN * TILE_ACROSS / 16; group += N_TILES) {
            const int line = group / (TILE_ACROSS / 16), part = group % (TILE_ACROSS / 16) * 2, down = tile.down + line;
            if (down >= out_height) break;
            int pixels[2];
            const float* from[2];
#pragma unroll
            for (int beside = 0; beside < 2; beside++) {
                pixels[beside] = SPREAD * g + (part + beside) % SPREAD + 8 * SPREAD * ((part + beside) / SPREAD);
                from[beside] = seen[turn] + line * DOWN * STRIDE + pixels[beside] * ACROSS * C + (PACKED ? 0 : q);
            }
            float sums[N_TILES][4];
#pragma unroll
            for (int t = 0; t < N_TILES; t++)
#pragma unroll
                for (int j = 0; j < 4; j++) sums[t][j] = start[first_column + t / TOGETHER * TOGETHER * 8 + q * 2 * TOGETHER + t % TOGETHER * 2 + j % 2];
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                float a[4];
#pragma unroll
                for (int half = 0; half < 2; half++)
#pragma unroll
                    for (int beside = 0; beside < 2; beside++) {
                        // A tap that there is none of is zero, whatever the image holds.
                        const int there = taps_there(step, half), place = PACKED ? offsets[step][half] : tap_offset(first_tap(step, half));
                        float value = there > 0 ? at_byte(from[beside], place) : 0.0f;
                        a[2 * half + beside] = there > 3 || q < there ? value : 0.0f;
                    }
#pragma unroll
                for (int t = 0; t < N_TILES; t++) multiply(sums[t], a, taps[step][t]);
            }
#pragma unroll
            for (int beside = 0; beside < 2; beside++) {
                const int across = tile.across + pixels[beside];
                if (across >= out_width) continue;
                X* to = y + ((tile.row * out_height + down) * out_width + across) * F + first_filter + q * 2 * TOGETHER;
#pragma unroll
                for (int first = 0; first < N_TILES; first += TOGETHER) {
                    float values[2 * TOGETHER];
#pragma unroll
                    for (int j = 0; j < 2 * TOGETHER; j++) values[j] = FUNCTION(sums[first + j / 2][2 * beside + j % 2]);
                    store_pack<2 * TOGETHER>(to + first * 8, 0, values);
                }
            }
        }
    }
}
#else
// Generated as well: M_WARPS, warps that share the taps. What is left shares the lines of a tile.
#define M_TILES ((TAPS + 16 * M_WARPS - 1) / (16 * M_WARPS))
#define SHARES (8 / (M_WARPS * N_WARPS))
#define SPREAD (8 / COMMON(ACROSS * C))
// Lines whose dy a warp has in registers, and eights of their pixels.
#define AT_ONCE (64 / (TILE_ACROSS * (N_TILES / 2)) < TILE_DOWN / SHARES ? 64 / (TILE_ACROSS * (N_TILES / 2)) : TILE_DOWN / SHARES)
#define EIGHTS (TILE_ACROSS / 8)

// Parts of the gradient, one for each share of each block: [part][tap][filters]. A lane has dy of N_TILES
// neighbouring filters at pixel q of four.
extern "C" __global__ void __launch_bounds__(256, 2) few_filter(const X* x, const X* dy, float* parts, i64 tiles, int height, int width, int out_height, int out_width, int top, int left) {
    __shared__ float seen[2][LINES * STRIDE];
    const int warp = threadIdx.x >> 5, g = (threadIdx.x & 31) >> 2, q = threadIdx.x & 3, share = warp / (M_WARPS * N_WARPS);
    const int first_filter = blockIdx.x * 64 + warp / M_WARPS % N_WARPS * 8 * N_TILES, first_tap = warp % M_WARPS * M_TILES * 16;
    int offsets[M_TILES][2];
    float sums[M_TILES][N_TILES][4];
#pragma unroll
    for (int m = 0; m < M_TILES; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int tap = first_tap + 16 * m + 8 * half + g;
            offsets[m][half] = (tap < TAPS ? tap_offset(tap) : 0) + 4 * (q * SPREAD * ACROSS * C);
        }
#pragma unroll
        for (int t = 0; t < N_TILES; t++)
#pragma unroll
            for (int j = 0; j < 4; j++) sums[m][t][j] = 0.0f;
    }
    Staged staged;
    if (blockIdx.y < tiles) begin_tile(staged, seen[0], x, blockIdx.y, height, width, out_height, out_width, top, left);
    int turn = 0;
    for (i64 index = blockIdx.y; index < tiles; index += gridDim.y, turn ^= 1) {
        end_stage(staged, seen[turn]);
        __syncthreads();
        if (index + gridDim.y < tiles) begin_tile(staged, seen[turn ^ 1], x, index + gridDim.y, height, width, out_height, out_width, top, left);
        const Tile tile = tile_of(index, out_height, out_width);
        for (int first = share; first < TILE_DOWN; first += SHARES * AT_ONCE) {
            if (tile.down + first >= out_height) break;
            float gradients[AT_ONCE][EIGHTS][2][N_TILES];
#pragma unroll
            for (int l = 0; l < AT_ONCE; l++)
#pragma unroll
                for (int part = 0; part < 2 * EIGHTS; part++) {
                    int down = tile.down + first + l * SHARES, across = tile.across + SPREAD * q + part % SPREAD + 4 * SPREAD * (part / SPREAD);
                    bool there = down < out_height && across < out_width;
                    i64 at = there ? (tile.row * out_height + down) * out_width + across : 0;
                    load_pack<N_TILES>(dy + at * F + first_filter + g * N_TILES, 0, gradients[l][part / 2][part % 2]);
#pragma unroll
                    for (int t = 0; t < N_TILES; t++) gradients[l][part / 2][part % 2][t] = there ? gradients[l][part / 2][part % 2][t] : 0.0f;
                }
#pragma unroll
            for (int l = 0; l < AT_ONCE; l++)
#pragma unroll
                for (int eight = 0; eight < EIGHTS; eight++) {
                    const float* from = seen[turn] + (first + l * SHARES) * DOWN * STRIDE;
                    float b[N_TILES][2];
#pragma unroll
                    for (int t = 0; t < N_TILES; t++)
#pragma unroll
                        for (int k = 0; k < 2; k++) b[t][k] = ROUNDED(gradients[l][eight][k][t]);
#pragma unroll
                    for (int m = 0; m < M_TILES; m++) {
                        float a[4];
#pragma unroll
                        for (int half = 0; half < 2; half++)
#pragma unroll
                            for (int k = 0; k < 2; k++) {
                                const int part = 2 * eight + k, pixel = part % SPREAD + 4 * SPREAD * (part / SPREAD);
                                a[2 * k + half] = at_byte(from + pixel * ACROSS * C, offsets[m][half]);
                            }
#pragma unroll
                        for (int t = 0; t < N_TILES; t++) multiply(sums[m][t], a, b[t]);
                    }
                }
        }
    }
    float* part = parts + ((i64)blockIdx.y * SHARES + share) * TAPS * F + first_filter + q * 2 * N_TILES;
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int tap = first_tap + 16 * m + 8 * half + g;
            float values[2 * N_TILES];
#pragma unroll
            for (int j = 0; j < 2 * N_TILES; j++) values[j] = sums[m][j % N_TILES][2 * half + j / N_TILES];
            if (tap < TAPS) store_pack<2 * N_TILES>(part + tap * F, 0, values);
        }
}

// The sums of 32 neighbouring elements over all parts, by a block: warps take parts in turn.
extern "C" __global__ void few_filter_sum(const float* parts, float* dfilter, int count, int overwrite) {
    __shared__ double sums[8][32];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, i = blockIdx.x * 32 + lane;
    double total = 0.0;
    if (i < TAPS * F)
        for (int part = warp; part < count; part += 8) total += parts[(i64)part * (TAPS * F) + i];
    sums[warp][lane] = total;
    __syncthreads();
    if (warp != 0 || i >= TAPS * F) return;
    for (int other = 1; other < 8; other++) total += sums[other][lane];
    dfilter[i] = (float)((overwrite ? 0.0 : (double)dfilter[i]) + total);
}
#endif
