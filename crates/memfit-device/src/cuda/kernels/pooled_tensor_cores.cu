// Convolutions with a max pool of two by two pixels behind them, whose factors are rounded to TF32. Of stride 1, over all channels at
// once. Generated beside what `pooled.cu` names: TILES (packs of eight filters of a block), of which there are 2 or 4.

#define FILTERS (8 * TILES)
#define OF_ROW (S * C)

// Where a tap stands behind the pixel that a place sees first.
__device__ __forceinline__ int behind(int tap) { return tap / OF_ROW * STRIDE + tap % OF_ROW; }

#ifdef FORWARD
#define STEPS ((TAPS + 7) / 8)
#define GROUPS_ACROSS (TILE_ACROSS / 8)

// A warp has eight windows, all of whose places end up in the lanes of one window: rows g are places 0 and 2, rows g + 8 are places
// 1 and 3. Columns are dealt out so that a lane has four neighbouring filters of every two packs.
extern "C" __global__ void __launch_bounds__(256, 2) pooled_forward(const float* x, const float* filter, const float* bias, float* y, u8* winners, i64 tiles, int height, int width, int out_height, int out_width, int filters, int top, int left) {
    __shared__ float seen[LINES * STRIDE];
    int g = (threadIdx.x & 31) >> 2, q = threadIdx.x & 3, first_filter = blockIdx.y * FILTERS;
    float taps[STEPS][TILES][2], start[TILES / 2][4];
    int offsets[STEPS][2];
#pragma unroll
    for (int step = 0; step < STEPS; step++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int tap = 8 * step + 4 * half + q;
            offsets[step][half] = tap < TAPS ? behind(tap) : 0;
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                int of_lane = first_filter + t / 2 * 16 + g / 2 * 4 + t % 2 * 2 + g % 2;
                taps[step][t][half] = tap < TAPS ? ROUNDED(filter[(i64)tap * filters + of_lane]) : 0.0f;
            }
        }
#pragma unroll
    for (int pair = 0; pair < TILES / 2; pair++)
#pragma unroll
        for (int j = 0; j < 4; j++) start[pair][j] = bias ? bias[first_filter + pair * 16 + q * 4 + j] : 0.0f;
    for (i64 index = blockIdx.x; index < tiles; index += gridDim.x) {
        const Tile tile = tile_of(index, out_height, out_width);
        __syncthreads();
        stage(seen, x, tile, height, width, top, left, 0);
        __syncthreads();
        for (int group = threadIdx.x >> 5; group < WINDOWS / 8; group += 8) {
            int line = group / GROUPS_ACROSS, window = group % GROUPS_ACROSS * 8 + g;
            int down = tile.down + line, across = tile.across + window;
            if (down >= out_height) break;
            const float* from = seen + 2 * line * STRIDE + 2 * window * C;
            float sums[2][TILES][4];
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int j = 0; j < 4; j++) sums[0][t][j] = sums[1][t][j] = 0.0f;
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
                            float value = first < TAPS ? from[offsets[step][half] + below * STRIDE + beside * C] : 0.0f;
                            a[2 * half + beside] = first + 3 < TAPS || first + q < TAPS ? value : 0.0f;
                        }
#pragma unroll
                    for (int t = 0; t < TILES; t++) multiply(sums[below][t], a, taps[step][t]);
                }
            if (across >= out_width) continue;
            i64 at = ((tile.row * out_height + down) * out_width + across) * filters + first_filter + q * 4;
#pragma unroll
            for (int pair = 0; pair < TILES / 2; pair++) {
                float most[4];
                Pack<u8, 4> places;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    int t = 2 * pair + j / 2, column = j % 2;
                    float values[4];
#pragma unroll
                    for (int place = 0; place < 4; place++) values[place] = sums[place / 2][t][place % 2 * 2 + column] + start[pair][j];
                    most[j] = largest(values, places.at[j]);
                }
                store_pack<4>(y + at, pair * 4, most);
                *(Pack<u8, 4>*)(winners + at + pair * 16) = places;
            }
        }
    }
}
#else
// Rows of taps, the bias behind them as a tap that always sees 1.
#define ROWS_OF_TAPS ((TAPS + 16) / 16)
#define AT_ONCE 4

// Parts of the gradients, one for each block: [block][filter row, column, channel, and the bias behind them][filters]. A product is over
// the four places of two windows: the slope of a window stands at its winner's place, and zeros at the others. A lane has the slopes of
// TILES neighbouring filters at place q.
extern "C" __global__ void __launch_bounds__(256, 2) pooled_filter(const float* x, const float* dy, const u8* winners, float* parts, i64 tiles, int height, int width, int out_height, int out_width, int filters, int top, int left) {
    __shared__ float seen[LINES * STRIDE < ROWS_OF_TAPS * 16 * FILTERS ? ROWS_OF_TAPS * 16 * FILTERS : LINES * STRIDE];
    int g = (threadIdx.x & 31) >> 2, q = threadIdx.x & 3, warp = threadIdx.x >> 5, first_filter = blockIdx.y * FILTERS;
    int offsets[ROWS_OF_TAPS][2];
    float totals[ROWS_OF_TAPS][TILES][4];
#pragma unroll
    for (int m = 0; m < ROWS_OF_TAPS; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int tap = 16 * m + 8 * half + g;
            offsets[m][half] = (tap < TAPS ? behind(tap) : 0) + q / 2 * STRIDE + q % 2 * C;
        }
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int j = 0; j < 4; j++) totals[m][t][j] = 0.0f;
    }
    for (i64 index = blockIdx.x; index < tiles; index += gridDim.x) {
        const Tile tile = tile_of(index, out_height, out_width);
        __syncthreads();
        stage(seen, x, tile, height, width, top, left, 0);
        __syncthreads();
        float sums[ROWS_OF_TAPS][TILES][4];
#pragma unroll
        for (int m = 0; m < ROWS_OF_TAPS; m++)
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int j = 0; j < 4; j++) sums[m][t][j] = 0.0f;
        for (int group = warp; group < WINDOWS / AT_ONCE; group += 8) {
            int line = group / (TILE_ACROSS / AT_ONCE), window = group % (TILE_ACROSS / AT_ONCE) * AT_ONCE;
            int down = tile.down + line, across = tile.across + window;
            if (down >= out_height) break;
            i64 at = ((tile.row * out_height + down) * out_width + across) * filters + first_filter + g * TILES;
            float slopes[AT_ONCE][TILES];
            Pack<u8, TILES> places[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                bool inside = across + i < out_width;
#pragma unroll
                for (int t = 0; t < TILES; t++) slopes[i][t] = 0.0f, places[i].at[t] = NONE;
                if (inside) {
                    load_pack<TILES>(dy + at + (i64)i * filters, 0, slopes[i]);
                    places[i] = *(const Pack<u8, TILES>*)(winners + at + (i64)i * filters);
                }
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i += 2) {
                const float* from = seen + 2 * line * STRIDE + 2 * (window + i) * C;
                float b[TILES][2];
#pragma unroll
                for (int t = 0; t < TILES; t++)
#pragma unroll
                    for (int k = 0; k < 2; k++) b[t][k] = places[i + k].at[t] == q ? ROUNDED(slopes[i + k][t]) : 0.0f;
#pragma unroll
                for (int m = 0; m < ROWS_OF_TAPS; m++) {
                    float a[4];
#pragma unroll
                    for (int half = 0; half < 2; half++)
#pragma unroll
                        for (int k = 0; k < 2; k++) {
                            int first = 16 * m + 8 * half, tap = first + g;
                            float value = first < TAPS ? from[offsets[m][half] + 2 * k * C] : 0.0f;
                            float constant = tap == TAPS ? 1.0f : 0.0f;
                            a[2 * k + half] = first + 7 < TAPS || tap < TAPS ? value : constant;
                        }
#pragma unroll
                    for (int t = 0; t < TILES; t++) multiply(sums[m][t], a, b[t]);
                }
            }
        }
#pragma unroll
        for (int m = 0; m < ROWS_OF_TAPS; m++)
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int j = 0; j < 4; j++) totals[m][t][j] += sums[m][t][j];
    }
    // The warps' sums, one after the other.
    for (int turn = 0; turn < 8; turn++) {
        __syncthreads();
        if (turn != warp) continue;
#pragma unroll
        for (int m = 0; m < ROWS_OF_TAPS; m++)
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    int tap = 16 * m + j / 2 * 8 + g, filter = (2 * q + j % 2) * TILES + t;
                    float& sum = seen[tap * FILTERS + filter];
                    sum = turn == 0 ? totals[m][t][j] : sum + totals[m][t][j];
                }
    }
    __syncthreads();
    float* part = parts + (i64)blockIdx.x * (TAPS + 1) * filters + first_filter;
    for (int i = threadIdx.x; i < (TAPS + 1) * FILTERS; i += 256) part[(i64)(i / FILTERS) * filters + i % FILTERS] = seen[i];
}
#endif
