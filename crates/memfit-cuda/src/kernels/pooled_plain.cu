// Convolutions with a 2x2 max pool after them, in single precision. Generated beside what `pooled.cu` names:
// WIDTH (filters of a thread) and PACKS (such packs of a block) forward; ROWS (filter rows at once) and LANES
// (filters of a block) backward.

#ifdef PACKS
#define STRIP 4
#define SPAN ((2 * STRIP - 1) * ACROSS + S)
#define GROUPS (256 / PACKS)

// A thread has WIDTH filters and a strip of windows, whose two lines of the image between exist in its
// registers alone.
extern "C" __global__ void __launch_bounds__(256, 2) pooled_forward(const X* x, const float* filter, const float* bias, X* y, u8* argmax, i64 strips, int height, int width, int out_height, int out_width, int filters, int top, int left) {
    int packs = filters / WIDTH, pack = blockIdx.y * PACKS + threadIdx.x % PACKS, group = threadIdx.x / PACKS;
    if (group >= GROUPS || pack >= packs) return;
    // Short texts are laid out whole.
    constexpr int lines_at_once = TAPS <= 32 ? R + DOWN : 1, channels_at_once = C <= 4 ? C : 1;
    int strips_across = (out_width + STRIP - 1) / STRIP;
    float start[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; j++) start[j] = bias ? bias[pack * WIDTH + j] : 0.0f;
    for (i64 strip = (i64)blockIdx.x * GROUPS + group; strip < strips; strip += (i64)gridDim.x * GROUPS) {
        i64 line = strip / strips_across, row = line / out_height;
        int first = (int)(strip - line * strips_across) * STRIP, down = (int)(line - row * out_height);
        float sums[2][2 * STRIP][WIDTH];
#pragma unroll
        for (int p = 0; p < 2 * STRIP; p++)
#pragma unroll
            for (int j = 0; j < WIDTH; j++) sums[0][p][j] = sums[1][p][j] = 0.0f;
        // Each line of the image serves both lines between.
#pragma unroll lines_at_once
        for (int l = 0; l < R + DOWN; l++) {
            int h = 2 * down * DOWN - top + l;
            if (h < 0 || h >= height) continue;
            const X* from = x + ((row * height + h) * width + 2 * first * ACROSS - left) * C;
#pragma unroll channels_at_once
            for (int c = 0; c < C; c++) {
                float in[SPAN];
#pragma unroll
                for (int i = 0; i < SPAN; i++) {
                    int w = 2 * first * ACROSS - left + i;
                    in[i] = 0 <= w && w < width ? load(from, i * C + c) : 0.0f;
                }
#pragma unroll
                for (int s = 0; s < S; s++)
#pragma unroll
                    for (int below = 0; below < 2; below++) {
                        int r = l - below * DOWN;
                        if (r < 0 || r >= R) continue;
                        float taps[WIDTH];
                        load_pack<WIDTH>(filter, (i64)((r * S + s) * C + c) * packs + pack, taps);
#pragma unroll
                        for (int p = 0; p < 2 * STRIP; p++)
#pragma unroll
                            for (int j = 0; j < WIDTH; j++) sums[below][p][j] += in[p * ACROSS + s] * taps[j];
                    }
            }
        }
#pragma unroll
        for (int window = 0; window < STRIP; window++) {
            if (first + window >= out_width) break;
            float most[WIDTH];
            Pack<u8, WIDTH> places;
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                float values[4];
#pragma unroll
                for (int place = 0; place < 4; place++) values[place] = sums[place / 2][2 * window + place % 2][j] + start[j];
                most[j] = max_of_window(values, places.at[j]);
            }
            i64 at = (line * out_width + first + window) * packs + pack;
            store_pack<WIDTH>(y, at, most);
            ((Pack<u8, WIDTH>*)argmax)[at] = places;
        }
    }
}
#endif

#ifdef LANES
#define GROUPS (256 / LANES)
#define OF_ROW (S * CHANNELS)
#define AT_ONCE 4

// Parts of the gradients, one for each block: [block][filter row, column, channel, and the bias after
// them][filters]. dy goes to one place of its window, so each thread reads what its own filter's argmax saw.
extern "C" __global__ void __launch_bounds__(256) pooled_filter(const X* x, const X* dy, const u8* argmax, float* parts, i64 tiles, int height, int width, int out_height, int out_width, int filters, int top, int left) {
    __shared__ float seen[LINES * STRIDE];
    __shared__ float shared[256];
    int first_channel = blockIdx.y / (R / ROWS) * CHANNELS, first_row = blockIdx.y % (R / ROWS) * ROWS;
    int filter = blockIdx.z * LANES + threadIdx.x % LANES, group = threadIdx.x / LANES;
    bool works = group < GROUPS && filter < filters;
    float totals[ROWS * OF_ROW + 1];
#pragma unroll
    for (int t = 0; t <= ROWS * OF_ROW; t++) totals[t] = 0.0f;
    for (i64 index = blockIdx.x; index < tiles; index += gridDim.x) {
        const Tile tile = tile_of(index, out_height, out_width);
        __syncthreads();
        stage(seen, x, tile, height, width, top, left, first_channel);
        __syncthreads();
        if (!works) continue;
        float sums[ROWS * OF_ROW + 1];
#pragma unroll
        for (int t = 0; t <= ROWS * OF_ROW; t++) sums[t] = 0.0f;
        for (int first = group; first < WINDOWS; first += AT_ONCE * GROUPS) {
            int places[AT_ONCE];
            float gradients[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                int i = first + k * GROUPS, down = tile.down + i / TILE_ACROSS, across = tile.across + i % TILE_ACROSS;
                bool inside = i < WINDOWS && down < out_height && across < out_width;
                i64 at = ((tile.row * out_height + (inside ? down : 0)) * out_width + (inside ? across : 0)) * filters + filter;
                int place = argmax[at];
                places[k] = inside ? place : NONE;
                gradients[k] = load(dy, at);
            }
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                int i = first + k * GROUPS, place = places[k];
                if (place == NONE) continue;
                const float* from = seen + ((2 * (i / TILE_ACROSS) + place / 2) * DOWN + first_row) * STRIDE + (2 * (i % TILE_ACROSS) + place % 2) * ACROSS * CHANNELS;
#pragma unroll
                for (int r = 0; r < ROWS; r++)
#pragma unroll
                    for (int j = 0; j < OF_ROW; j++) sums[r * OF_ROW + j] += from[r * STRIDE + j] * gradients[k];
                sums[ROWS * OF_ROW] += gradients[k];
            }
        }
#pragma unroll
        for (int t = 0; t <= ROWS * OF_ROW; t++) totals[t] += sums[t];
    }
    float* part = parts + (i64)blockIdx.x * (TAPS + 1) * filters;
#pragma unroll
    for (int t = 0; t <= ROWS * OF_ROW; t++) {
        __syncthreads();
        shared[threadIdx.x] = totals[t];
        __syncthreads();
        bool counts = t < ROWS * OF_ROW || blockIdx.y == 0;
        if (group != 0 || !works || !counts) continue;
        float total = shared[threadIdx.x];
        for (int other = 1; other < GROUPS; other++) total += shared[other * LANES + threadIdx.x];
        int r = first_row + t / OF_ROW, s = t % OF_ROW / CHANNELS, c = first_channel + t % CHANNELS;
        int tap = t < ROWS * OF_ROW ? (r * S + s) * C + c : TAPS;
        part[(i64)tap * filters + filter] = total;
    }
}
#endif
