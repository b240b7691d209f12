// Entries of a table by number, and their gradient. Defined before: ID, WIDTH (floats of a pack).
//
// The gradient sorts positions by their entry and adds dy of each in the order of positions, so that the bits
// are the same on every run: keys, then for each digit of eight bits counts, their sums before each, and the
// move; then sums of chunks of sorted positions, and at last entries that reach over several chunks.

__device__ __forceinline__ bool is_entry(int id, i64 entries) { return 0 <= id && id < entries; }
__device__ __forceinline__ bool is_entry(float id, i64 entries) { return -1.0f < id && id < (float)entries; }

extern "C" __global__ void embedding(const ID* ids, const float* table, float* y, i64 positions, i64 entries, int packs) {
    i64 count = positions * packs;
    for (i64 i = first_item(); i < count; i += item_stride()) {
        i64 position = i / packs;
        ID id = ids[position];
        float values[WIDTH];
#pragma unroll
        for (int j = 0; j < WIDTH; j++) values[j] = NOT_A_NUMBER;
        if (is_entry(id, entries)) load_pack<WIDTH>(table, (i64)id * packs + i % packs, values);
        store_pack<WIDTH>(y, i, values);
    }
}

// A position's entry, or one past the last.
extern "C" __global__ void entry_keys(const ID* ids, u32* keys, u32* places, i64 positions, i64 entries) {
    for (i64 i = first_item(); i < positions; i += item_stride()) {
        ID id = ids[i];
        keys[i] = is_entry(id, entries) ? (u32)id : (u32)entries;
        places[i] = (u32)i;
    }
}

// How often each digit occurs in the range of every block, which is one warp.
extern "C" __global__ void digit_counts(const u32* keys, u32* counts, i64 positions, i64 each, int shift) {
    __shared__ u32 found[256];
    for (int i = threadIdx.x; i < 256; i += 32) found[i] = 0;
    __syncwarp();
    i64 end = min((i64)(blockIdx.x + 1) * each, positions);
    for (i64 i = blockIdx.x * each + threadIdx.x; i < end; i += 32) atomicAdd(&found[keys[i] >> shift & 255], 1u);
    __syncwarp();
    for (int i = threadIdx.x; i < 256; i += 32) counts[(i64)i * gridDim.x + blockIdx.x] = found[i];
}

// Every count becomes the sum of those before it. One block of 1024 threads, each with four neighbours at a
// time.
extern "C" __global__ void sums_before(u32* counts, int count) {
    __shared__ u32 warps[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u32 carried = 0;
    for (int start = 0; start < count; start += 4096) {
        int first = start + threadIdx.x * 4;
        u32 here[4], mine = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) here[j] = first + j < count ? counts[first + j] : 0;
#pragma unroll
        for (int j = 0; j < 4; j++) mine += here[j];
        u32 upto = mine;
#pragma unroll
        for (int step = 1; step < 32; step <<= 1) {
            u32 other = __shfl_up_sync(0xffffffffu, upto, step);
            if (lane >= step) upto += other;
        }
        __syncthreads();
        if (lane == 31) warps[warp] = upto;
        __syncthreads();
        u32 before = carried + upto - mine;
        for (int i = 0; i < 32; i++) {
            if (i < warp) before += warps[i];
            carried += warps[i];
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (first + j < count) counts[first + j] = before;
            before += here[j];
        }
    }
}

// Moves keys to their places by one digit; equals keep their order.
extern "C" __global__ void move_keys(const u32* keys, const u32* places, u32* keys_to, u32* places_to, const u32* before, i64 positions, i64 each, int shift) {
    __shared__ u32 next[256];
    for (int i = threadIdx.x; i < 256; i += 32) next[i] = before[(i64)i * gridDim.x + blockIdx.x];
    __syncwarp();
    i64 end = min((i64)(blockIdx.x + 1) * each, positions);
    for (i64 start = blockIdx.x * each; start < end; start += 32) {
        i64 i = start + threadIdx.x;
        bool works = i < end;
        u32 key = works ? keys[i] : 0, digit = works ? key >> shift & 255 : 256;
        u32 alike = __match_any_sync(0xffffffffu, digit);
        u32 earlier = __popc(alike & ((1u << threadIdx.x) - 1));
        u32 to = works ? next[digit] + earlier : 0;
        __syncwarp();
        if (works && earlier == 0) next[digit] += __popc(alike);
        __syncwarp();
        if (works) {
            keys_to[to] = key;
            places_to[to] = places[i];
        }
    }
}

#define CHUNK 32

// Adds dy of entries whose positions all stand in one chunk; of others it leaves parts: line 0 where an entry
// goes on from the chunk before, line 1 where it begins here and goes on.
extern "C" __global__ void entry_parts(const u32* keys, const u32* places, const float* dy, float* dtable, float* parts, i64 positions, i64 entries, int packs) {
    int pack = blockIdx.y * blockDim.x + threadIdx.x;
    i64 start = (i64)blockIdx.x * CHUNK, end = min(start + CHUNK, positions);
    if (pack >= packs) return;
    bool goes_on = 0 < start && keys[start - 1] == keys[start];
    float sum[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; j++) sum[j] = 0.0f;
    for (i64 first = start; first < end; first += 8) {
        float gradients[8][WIDTH];
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (first + i < end) load_pack<WIDTH>(dy, (i64)places[first + i] * packs + pack, gradients[i]);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            i64 at = first + i;
            if (at < end) {
                u32 key = keys[at];
#pragma unroll
                for (int j = 0; j < WIDTH; j++) sum[j] += gradients[i][j];
                bool ends = at + 1 == positions || keys[at + 1] != key;
                if (ends || at + 1 == end) {
                    if (ends && !goes_on) {
                        if (key < entries) {
                            float before[WIDTH];
                            load_pack<WIDTH>(dtable, (i64)key * packs + pack, before);
#pragma unroll
                            for (int j = 0; j < WIDTH; j++) sum[j] += before[j];
                            store_pack<WIDTH>(dtable, (i64)key * packs + pack, sum);
                        }
                    } else {
                        store_pack<WIDTH>(parts, ((i64)blockIdx.x * 2 + (goes_on ? 0 : 1)) * packs + pack, sum);
                    }
                    goes_on = false;
#pragma unroll
                    for (int j = 0; j < WIDTH; j++) sum[j] = 0.0f;
                }
            }
        }
    }
}

// Adds up entries that begin in a chunk and go on into others.
extern "C" __global__ void entry_sums(const u32* keys, float* dtable, const float* parts, i64 positions, i64 entries, int packs) {
    int pack = blockIdx.y * blockDim.x + threadIdx.x;
    i64 start = (i64)blockIdx.x * CHUNK, end = min(start + CHUNK, positions);
    u32 key = keys[end - 1];
    bool begins = !(0 < start && keys[start - 1] == key), goes_on = end < positions && keys[end] == key;
    if (pack >= packs || !begins || !goes_on || key >= entries) return;
    float sum[WIDTH];
    load_pack<WIDTH>(dtable, (i64)key * packs + pack, sum);
    i64 line = (i64)blockIdx.x * 2 + 1;
    for (i64 chunk = blockIdx.x; ; ) {
        float part[WIDTH];
        load_pack<WIDTH>(parts, line * packs + pack, part);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) sum[j] += part[j];
        i64 following = (chunk + 1) * CHUNK;
        if (following >= positions || keys[following] != key) break;
        line = ++chunk * 2;
    }
    store_pack<WIDTH>(dtable, (i64)key * packs + pack, sum);
}
