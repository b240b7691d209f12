// Floats as f16, each channel times a power of two that brings its largest number below one half: ten bits
// and a sign are left of a number, as TF32 leaves them, whatever the channel's size.

// Bits of the largest magnitude, whose order is that of the numbers; a NaN is above all. A channel without
// such a maximum keeps its numbers as they are.
__device__ __forceinline__ int exponent_of(u32 most) {
    int biased = (int)(most >> 23);
    return most == 0 || biased == 255 ? 127 : max(252 - biased, 1);
}
__device__ __forceinline__ float factor_of(u32 most) { return __int_as_float(exponent_of(most) << 23); }
__device__ __forceinline__ float factor_back_of(u32 most) { return __int_as_float((254 - exponent_of(most)) << 23); }

#ifdef PACKS
// The largest magnitude of each channel. A block has PACKS packs of four channels.
extern "C" __global__ void channel_most(const float* x, u32* most, i64 pixels, int packs) {
    __shared__ u32 shared[4 * PACKS];
    const int pack = threadIdx.x % PACKS, lane = threadIdx.x / PACKS, lanes = 256 / PACKS, column = blockIdx.x * PACKS + pack;
    for (int i = threadIdx.x; i < 4 * PACKS; i += 256) shared[i] = 0;
    __syncthreads();
    if (column < packs && lane < lanes) {
        u32 own[4] = {0, 0, 0, 0};
#pragma unroll 4
        for (i64 pixel = (i64)blockIdx.y * lanes + lane; pixel < pixels; pixel += (i64)gridDim.y * lanes) {
            float a[4];
            load_pack<4>(x, pixel * packs + column, a);
#pragma unroll
            for (int j = 0; j < 4; j++) own[j] = max(own[j], (u32)__float_as_int(a[j]) & 0x7fffffffu);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) atomicMax(shared + pack * 4 + j, own[j]);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 4 * PACKS; i += 256) {
        int channel = blockIdx.x * PACKS * 4 + i;
        if (channel < packs * 4) atomicMax(most + channel, shared[i]);
    }
}
#endif

// Packs of eight channels.
extern "C" __global__ void scaled_f16(const float* x, f16* to, const u32* most, i64 count, int packs) {
    for (i64 i = first_item(); i < count; i += item_stride()) {
        const u32 pack = (u32)i % (u32)packs;
        float a[8];
        load_pack<8>(x, i, a);
        const Pack<u32, 8> maxima = ((const Pack<u32, 8>*)most)[pack];
#pragma unroll
        for (int j = 0; j < 8; j++) a[j] *= factor_of(maxima.at[j]);
        store_pack<8>(to, i, a);
    }
}

// The gradient of filters from that of scaled f16 values: [out][tap][in] to [tap][in][out], a tile of 32 x 32
// channels at a time.
extern "C" __global__ void filter_from_scaled(const f16* from, float* to, const u32* most_in, const u32* most_out, int taps, int in, int out, int overwrite) {
    __shared__ float tile[32][33];
    const int across = threadIdx.x & 31, first = threadIdx.x >> 5, tiles_in = (in + 31) / 32, tiles_out = (out + 31) / 32;
    for (int index = blockIdx.x; index < taps * tiles_in * tiles_out; index += gridDim.x) {
        const int o = index % tiles_out * 32, c = index / tiles_out % tiles_in * 32, tap = index / tiles_out / tiles_in;
        for (int line = first; line < 32; line += 8)
            tile[line][across] = o + line < out && c + across < in ? load(from, ((i64)(o + line) * taps + tap) * in + c + across) : 0.0f;
        __syncthreads();
        for (int line = first; line < 32; line += 8)
            if (c + line < in && o + across < out) {
                const i64 at = ((i64)tap * in + c + line) * out + o + across;
                const float value = tile[across][line] * factor_back_of(most_in[c + line]) * factor_back_of(most_out[o + across]);
                to[at] = overwrite ? value : to[at] + value;
            }
        __syncthreads();
    }
}
