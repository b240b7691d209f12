// Reads what is to run, runs it in memory that it was sent, and sends the memory back. Words of eight bytes.

namespace emulator {

// Kernels of each part that was compiled alone.
extern const Kernel* const parts[];

inline uint64_t word() {
    uint64_t value;
    if (fread(&value, 8, 1, stdin) != 1) exit(0);
    return value;
}

enum Type { F32, F16, BF16 };

inline double load_as(Type type, const char* p, int64_t i) {
    if (type == F32) return ((const float*)p)[i];
    uint16_t bits = ((const uint16_t*)p)[i];
    return type == F16 ? float_of_f16(bits) : __int_as_float((int)bits << 16);
}
inline void store_as(Type type, char* p, int64_t i, double x) {
    if (type == F32) ((float*)p)[i] = (float)x;
    else ((uint16_t*)p)[i] = type == F16 ? f16_of_float((float)x) : bf16_of_float((float)x);
}

// What the library for products does.
inline void multiply(char* memory) {
    int64_t m = word(), n = word(), k = word(), count = word();
    bool transpose_a = word(), transpose_b = word(), adds = word(), has_bias = word();
    Type type = (Type)word(), type_result = (Type)word();
    char *a = memory + word(), *b = memory + word(), *c = memory + word(), *d = memory + word(), *bias = memory + word();
    for (int64_t batch = 0; batch < count; batch++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                double sum = 0.0;
                for (int64_t l = 0; l < k; l++)
                    sum += load_as(type, a, batch * m * k + (transpose_a ? l * m + i : i * k + l)) * load_as(type, b, batch * k * n + (transpose_b ? j * k + l : l * n + j));
                int64_t at = batch * m * n + i * n + j;
                if (has_bias) sum += load_as(type_result, bias, j);
                if (adds) sum += load_as(type_result, c, at);
                store_as(type_result, d, at, sum);
            }
}

// What the library for convolutions does; pass 0 is forward, 1 the gradient of images, 2 that of filters.
inline void convolve(char* memory) {
    uint64_t pass = word();
    int64_t rows = word(), in[3], out[3], kernel[2], strides[2], dilation[2], pads[2];
    for (int64_t& v : in) v = word();
    for (int64_t& v : out) v = word();
    for (int64_t& v : kernel) v = word();
    for (int64_t& v : strides) v = word();
    for (int64_t& v : dilation) v = word();
    for (int64_t& v : pads) v = word();
    int64_t groups = word();
    bool adds = word();
    Type type = (Type)word();
    char *x = memory + word(), *filter = memory + word(), *y = memory + word();
    int64_t channels = in[2] / groups, filters = out[2] / groups;
    int64_t sizes[3] = {rows * out[0] * out[1] * out[2], rows * in[0] * in[1] * in[2], out[2] * kernel[0] * kernel[1] * channels};
    std::vector<double> sums(sizes[pass]);
    for (int64_t at = 0; at < sizes[0]; at++) {
        int64_t o = at % out[2], column = at / out[2] % out[1], line = at / out[2] / out[1] % out[0], row = at / out[2] / out[1] / out[0];
        for (int64_t h = 0; h < kernel[0]; h++)
            for (int64_t w = 0; w < kernel[1]; w++) {
                int64_t i = line * strides[0] + h * dilation[0] - pads[0], j = column * strides[1] + w * dilation[1] - pads[1];
                if (i < 0 || in[0] <= i || j < 0 || in[1] <= j) continue;
                for (int64_t c = 0; c < channels; c++) {
                    int64_t from = ((row * in[0] + i) * in[1] + j) * in[2] + o / filters * channels + c;
                    int64_t tap = ((o * kernel[0] + h) * kernel[1] + w) * channels + c;
                    if (pass == 0) sums[at] += load_as(type, x, from) * load_as(type, filter, tap);
                    if (pass == 1) sums[from] += load_as(type, y, at) * load_as(type, filter, tap);
                    if (pass == 2) sums[tap] += load_as(type, x, from) * load_as(type, y, at);
                }
            }
    }
    char* to = pass == 0 ? y : pass == 1 ? x : filter;
    for (int64_t i = 0; i < sizes[pass]; i++)
        store_as(type, to, i, sums[i] + (adds ? load_as(type, to, i) : 0.0));
}

inline void launch(char* memory) {
    uint64_t part = word(), which = word();
    dim3 blocks = {(unsigned)word(), (unsigned)word(), (unsigned)word()};
    int threads = (int)word();
    std::vector<uint64_t> values(word());
    for (uint64_t& value : values) {
        bool is_pointer = word();
        value = word() + (is_pointer ? (uint64_t)memory : 0);
    }
    run_grid(blocks, threads, {parts[part][which], values.data()});
}

inline void serve() {
    for (;;) {
        uint64_t bytes = word();
        char* memory = (char*)aligned_alloc(256, (bytes + 255) / 256 * 256);
        if (fread(memory, 1, bytes, stdin) != bytes) exit(0);
        forwards = word();
        for (uint64_t left = word(); left > 0; left--) {
            uint64_t kind = word();
            if (kind == 0) launch(memory);
            if (kind == 1) { uint64_t to = word(), count = word(); memset(memory + to, 0, count); }
            if (kind == 2) { uint64_t from = word(), to = word(), count = word(); memmove(memory + to, memory + from, count); }
            if (kind == 3) multiply(memory);
            if (kind == 4) convolve(memory);
        }
        uint64_t none = 0;
        fwrite(&none, 8, 1, stdout);
        fwrite(memory, 1, bytes, stdout);
        fflush(stdout);
        free(memory);
    }
}

}  // namespace emulator

int main() { emulator::serve(); }
