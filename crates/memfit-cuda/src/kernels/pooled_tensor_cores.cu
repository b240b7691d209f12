// Convolutions with a 2x2 max pool after them, whose factors are rounded to TF32. Of stride 1, over all
// channels at once. Generated beside what `pooled.cu` names: F (filters) and TILES (packs of eight of them
// that a block has), of which there are 2 or 4.

#define FILTERS (8 * TILES)
#define OF_ROW (S * C)

// The offset of a tap from the pixel that a place sees first, in bytes.
__device__ __forceinline__ int tap_offset(int tap) { return 4 * (tap / OF_ROW * STRIDE + tap % OF_ROW); }

__device__ __forceinline__ void begin_tile(Staged& staged, float* seen, const float* x, i64 index, int height, int width, int out_height, int out_width, int top, int left) {
    const Tile tile = tile_of(index, out_height, out_width);
    begin_stage(staged, seen, x + tile.row * height * width * C, 2 * tile.down - top, (2 * tile.across - left) * C, height, width * C);
}

#ifdef FORWARD
#define STEPS ((TAPS + 7) / 8)

__device__ __forceinline__ float larger(float a, float b) {
    float most;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
    return most;
}

// As `max_of_window`. Where the maximum is a NaN any place may be the argmax: a step with such a value is not
// used.
__device__ __forceinline__ float max_of_four(float a, float b, float c, float d, u8& argmax) {
    float most = larger(larger(a, b), larger(c, d));
    u32 place = a == most ? 0 : b == most ? 1 : c == most ? 2 : 3;
#ifdef RELU
    place = most > 0.0f && most < INFINITE ? place : NONE;
    most = larger(most, 0.0f);
#endif
    argmax = (u8)place;
    return most;
}

// A warp has eight windows, every second one, so that what its lanes read lies in different banks. All places
// of a window end up in the lanes of one g: rows g are places 0 and 2, rows g + 8 are places 1 and 3. Columns
// are dealt out so that a lane has four neighbouring filters of every two packs. While a tile is computed,
// the next one is in flight.
extern "C" __global__ void __launch_bounds__(256, 2) pooled_forward(const float* x, const float* filter, const float* bias, float* y, u8* argmax, i64 tiles, int height, int width, int out_height, int out_width, int filters, int top, int left) {
    __shared__ float seen[2][LINES * STRIDE];
    int g = (threadIdx.x & 31) >> 2, q = threadIdx.x & 3, first_filter = blockIdx.y * FILTERS;
    float taps[STEPS][TILES][2], start[TILES / 2][4];
    int offsets[STEPS][2];
#pragma unroll
    for (int step = 0; step < STEPS; step++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int tap = 8 * step + 4 * half + q;
            offsets[step][half] = tap < TAPS ? tap_offset(tap) : 0;
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                int of_lane = first_filter + t / 2 * 16 + g / 2 * 4 + t % 2 * 2 + g % 2;
                taps[step][t][half] = tap < TAPS ? ROUNDED(filter[tap * F + of_lane]) : 0.0f;
            }
        }
#pragma unroll
    for (int pair = 0; pair < TILES / 2; pair++)
#pragma unroll
        for (int j = 0; j < 4; j++) start[pair][j] = bias ? bias[first_filter + pair * 16 + q * 4 + j] : 0.0f;
    Staged staged;
    if (blockIdx.x < tiles) begin_tile(staged, seen[0], x, blockIdx.x, height, width, out_height, out_width, top, left);
    int turn = 0;
    for (i64 index = blockIdx.x; index < tiles; index += gridDim.x, turn ^= 1) {
        end_stage(staged, seen[turn]);
        __syncthreads();
        if (index + gridDim.x < tiles) begin_tile(staged, seen[turn ^ 1], x, index + gridDim.x, height, width, out_height, out_width, top, left);
        const Tile tile = tile_of(index, out_height, out_width);
        for (int group = threadIdx.x >> 5; group < WINDOWS / 8; group += 8) {
            int line = group / (TILE_ACROSS / 8), window = group % (TILE_ACROSS / 8) / 2 * 16 + group % 2 + 2 * g;
            int down = tile.down + line, across = tile.across + window;
            if (down >= out_height) break;
            const float* from = seen[turn] + 2 * line * STRIDE + 2 * window * C;
            float sums[2][TILES][4];
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int j = 0; j < 4; j++) sums[0][t][j] = sums[1][t][j] = start[t / 2][t % 2 * 2 + j % 2];
#pragma unroll
            for (int step = 0; step < STEPS; step++)
#pragma unroll
                for (int below = 0; below < 2; below++) {
                    float a[4];
#pragma unroll
                    for (int half = 0; half < 2; half++)
#pragma unroll
                        for (int beside = 0; beside < 2; beside++) {
                            // A tap that there is none of is zero, whatever the image holds.
                            int first = 8 * step + 4 * half;
                            float value = first < TAPS ? at_byte(from + below * STRIDE + beside * C, offsets[step][half]) : 0.0f;
                            a[2 * half + beside] = first + 3 < TAPS || first + q < TAPS ? value : 0.0f;
                        }
#pragma unroll
                    for (int t = 0; t < TILES; t++) multiply(sums[below][t], a, taps[step][t]);
                }
            if (across >= out_width) continue;
            i64 at = ((tile.row * out_height + down) * out_width + across) * F + first_filter + q * 4;
#pragma unroll
            for (int pair = 0; pair < TILES / 2; pair++) {
                float most[4];
                Pack<u8, 4> places;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    int t = 2 * pair + j / 2, column = j % 2;
                    most[j] = max_of_four(sums[0][t][column], sums[0][t][2 + column], sums[1][t][column], sums[1][t][2 + column], places.at[j]);
                }
                store_pack<4>(y + at, pair * 4, most);
                *(Pack<u8, 4>*)(argmax + at + pair * 16) = places;
            }
        }
    }
}
#else
// Rows of taps, the bias after them as a tap that always sees 1.
#define ROWS_OF_TAPS ((TAPS + 16) / 16)
#define AT_ONCE 8
#if TILES == 4
#define BYTES u32
#else
#define BYTES u16
#endif

// Parts of the gradients, one for each block: [block][filter row, column, channel, and the bias after
// them][filters]. A product is over the four places of two windows: dy of a window stands at its argmax, and
// zeros at the other places. A lane has dy of TILES neighbouring filters at place q. There are many parts, so
// that each is a sum of few.
extern "C" __global__ void __launch_bounds__(256, 2) pooled_filter(const float* x, const float* dy, const u8* argmax, float* parts, i64 tiles, int height, int width, int out_height, int out_width, int filters, int top, int left) {
    __shared__ float seen[2][LINES * STRIDE < ROWS_OF_TAPS * 16 * FILTERS ? ROWS_OF_TAPS * 16 * FILTERS : LINES * STRIDE];
    int g = (threadIdx.x & 31) >> 2, q = threadIdx.x & 3, warp = threadIdx.x >> 5, first_filter = blockIdx.y * FILTERS;
    u32 own_place = q * 0x01010101u;
    int offsets[ROWS_OF_TAPS][2];
    float sums[ROWS_OF_TAPS][TILES][4];
#pragma unroll
    for (int m = 0; m < ROWS_OF_TAPS; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int tap = 16 * m + 8 * half + g;
            offsets[m][half] = (tap < TAPS ? tap_offset(tap) : 0) + 4 * (q / 2 * STRIDE + q % 2 * C);
        }
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int j = 0; j < 4; j++) sums[m][t][j] = 0.0f;
    }
    Staged staged;
    if (blockIdx.x < tiles) begin_tile(staged, seen[0], x, blockIdx.x, height, width, out_height, out_width, top, left);
    int turn = 0;
    for (i64 index = blockIdx.x; index < tiles; index += gridDim.x, turn ^= 1) {
        end_stage(staged, seen[turn]);
        __syncthreads();
        if (index + gridDim.x < tiles) begin_tile(staged, seen[turn ^ 1], x, index + gridDim.x, height, width, out_height, out_width, top, left);
        const Tile tile = tile_of(index, out_height, out_width);
        for (int group = warp; group < WINDOWS / AT_ONCE; group += 8) {
            int line = group / (TILE_ACROSS / AT_ONCE), window = group % (TILE_ACROSS / AT_ONCE) * AT_ONCE;
            int down = tile.down + line, last = out_width - 1 - tile.across - window;
            if (down >= out_height) break;
            if (last < 0) continue;
            i64 at = ((tile.row * out_height + down) * out_width + tile.across + window) * F + first_filter + g * TILES;
            float gradients[AT_ONCE][TILES];
            u32 places[AT_ONCE];
            if (AT_ONCE - 1 <= last) {
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++) {
                    load_pack<TILES>(dy + at + i * F, 0, gradients[i]);
                    places[i] = *(const BYTES*)(argmax + at + i * F);
                }
            } else {
                // After the last window the last one is read, and has no argmax.
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++) {
                    load_pack<TILES>(dy + at + min(i, last) * F, 0, gradients[i]);
                    u32 bytes = *(const BYTES*)(argmax + at + min(i, last) * F);
                    places[i] = i <= last ? bytes : ~0u;
                }
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i += 2) {
                const float* from = seen[turn] + 2 * line * STRIDE + 2 * (window + i) * C;
                float b[TILES][2];
#pragma unroll
                for (int t = 0; t < TILES; t++)
#pragma unroll
                    for (int k = 0; k < 2; k++) b[t][k] = ROUNDED(((places[i + k] ^ own_place) & 255u << 8 * t) == 0 ? gradients[i + k][t] : 0.0f);
#pragma unroll
                for (int m = 0; m < ROWS_OF_TAPS; m++) {
                    float a[4];
#pragma unroll
                    for (int half = 0; half < 2; half++)
#pragma unroll
                        for (int k = 0; k < 2; k++) {
                            int first = 16 * m + 8 * half, tap = first + g;
                            float value = first < TAPS ? at_byte(from + 2 * k * C, offsets[m][half]) : 0.0f;
                            float constant = tap == TAPS ? 1.0f : 0.0f;
                            a[2 * k + half] = first + 7 < TAPS || tap < TAPS ? value : constant;
                        }
#pragma unroll
                    for (int t = 0; t < TILES; t++) multiply(sums[m][t], a, b[t]);
                }
            }
        }
    }
    // The warps' sums, one after the other.
    float* total = seen[0];
    for (int other = 0; other < 8; other++) {
        __syncthreads();
        if (other != warp) continue;
#pragma unroll
        for (int m = 0; m < ROWS_OF_TAPS; m++)
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    int tap = 16 * m + j / 2 * 8 + g, filter = (2 * q + j % 2) * TILES + t;
                    float& sum = total[tap * FILTERS + filter];
                    sum = warp == 0 ? sums[m][t][j] : sum + sums[m][t][j];
                }
    }
    __syncthreads();
    float* part = parts + (i64)blockIdx.x * (TAPS + 1) * F + first_filter;
    for (int i = threadIdx.x; i < (TAPS + 1) * FILTERS; i += 256) part[i / FILTERS * F + i % FILTERS] = total[i];
}
#endif
