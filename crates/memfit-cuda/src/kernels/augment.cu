// Images changed at random. Draws belong to seed, step and row. Type X, and CHANGE, INTERPOLATION and FILL.

#define FLIP 0
#define CROP 1
#define ROTATE 2
#define TRANSLATE 3
#define ZOOM 4
#define CONTRAST 5
#define BRIGHTNESS 6
#define NEAREST 0
#define FILL_CONSTANT 0
#define FILL_NEAREST 1
#define FILL_REFLECT 2
#define FILL_WRAP 3
#define DRAWS 4

// Products and sums one by one, as they are computed elsewhere: places between two pixels must not differ.
__device__ __forceinline__ float times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float plus(float a, float b) { return __fadd_rn(a, b); }

struct Draws {
    u64 seed, row;
    __device__ __forceinline__ float within(u64 number, float low, float high) const { return plus(low, times(plus(high, -low), random_unit(seed, row * DRAWS + number))); }
    __device__ __forceinline__ i64 shared_place(u64 number, i64 most) const { return min((i64)times(random_unit(seed, number), (float)(most + 1)), most); }
};

// A place brought into the image.
__device__ __forceinline__ float inside(float place, int length) {
    float size = (float)length, last = size - 1.0f;
    if (FILL == FILL_CONSTANT) return place;
    if (FILL != FILL_NEAREST && length <= 1) return 0.0f;
    if (FILL == FILL_REFLECT) {
        float twice = 2.0f * size;
        if (place < 0.0f) {
            float shifted = plus(times(twice, truncf(-place / twice)), place);
            place = shifted < -size ? plus(shifted, twice) : plus(-shifted, -1.0f);
        } else if (place > last) {
            float shifted = plus(place, -times(twice, truncf(place / twice)));
            place = shifted >= size ? plus(plus(twice, -shifted), -1.0f) : shifted;
        }
    } else if (FILL == FILL_WRAP) {
        if (place < 0.0f) place = plus(place, times(size, plus(truncf(-place / last), 1.0f)));
        else if (place > last) place = plus(place, -times(size, truncf(place / last)));
    }
    return f_clip(place, 0.0f, last);
}

__device__ __forceinline__ float pixel_at(const X* image, int height, int width, int channels, float row, float column, float outside) {
    bool is_inside = 0.0f <= row && row < (float)height && 0.0f <= column && column < (float)width;
    return is_inside ? load(image, ((i64)row * width + (i64)column) * channels) : (FILL == FILL_CONSTANT ? outside : 0.0f);
}

// The mean of a channel of an image: a block each.
extern "C" __global__ void augment_means(const X* x, float* means, i64 pixels, i64 channels) {
    const X* from = x + blockIdx.x / channels * pixels * channels + blockIdx.x % channels;
    double sum = 0.0;
    for (i64 pixel = threadIdx.x; pixel < pixels; pixel += blockDim.x) sum += load(from, pixel * channels);
    sum = block_sum(sum);
    if (threadIdx.x == 0) means[blockIdx.x] = (float)(sum / (double)pixels);
}

// Two ranges, `a` and `b`; `flags` are what is turned over, or whether there is a second range.
extern "C" __global__ void augment(const X* x, X* y, const float* means, const Context* context, i64 count, int height, int width, int channels, int out_height, int out_width, i64 row_start, i64 seed, float a0, float a1, float b0, float b1, float outside, int flags) {
    u64 own = random_derive(random_derive(context->seed, (u64)seed), context->step);
    for (i64 i = first_item(); i < count; i += item_stride()) {
        int channel = (int)(i % channels), column = (int)(i / channels % out_width), row = (int)(i / channels / out_width % out_height);
        i64 image_number = i / channels / out_width / out_height;
        Draws draws = {own, context->row_start + (u64)row_start + (u64)image_number};
        const X* image = x + image_number * height * width * channels + channel;
        if (CHANGE == FLIP) {
            bool flips = draws.within(0, 0.0f, 1.0f) <= 0.5f;
            if (flips && (flags & 1)) column = width - 1 - column;
            if (flips && (flags & 2)) row = height - 1 - row;
            store(y, i, load(image, ((i64)row * width + column) * channels));
        } else if (CHANGE == CROP) {
            i64 top = draws.shared_place(0, height - out_height), left = draws.shared_place(1, width - out_width);
            store(y, i, load(image, ((top + row) * width + left + column) * channels));
        } else if (CHANGE == CONTRAST) {
            float factor = draws.within(0, a0, a1), mean = means[image_number * channels + channel];
            float value = load(image, ((i64)row * width + column) * channels);
            store(y, i, f_clip(plus(times(plus(value, -mean), factor), mean), b0, b1));
        } else if (CHANGE == BRIGHTNESS) {
            float more = times(draws.within(0, a0, a1), plus(b1, -b0));
            store(y, i, f_clip(plus(load(image, ((i64)row * width + column) * channels), more), b0, b1));
        } else {
            float centre_x = ((float)width - 1.0f) / 2.0f, centre_y = ((float)height - 1.0f) / 2.0f;
            // Where a pixel comes from: along a column, along a row, and a shift.
            float across[3] = {1.0f, 0.0f, 0.0f}, down[3] = {0.0f, 1.0f, 0.0f};
            if (CHANGE == ROTATE) {
                float angle = times(draws.within(0, a0, a1), 6.28318530717958647692f), sine = sinf(angle), cosine = cosf(angle);
                across[0] = cosine;
                across[1] = -sine;
                across[2] = plus(plus(centre_x, -times(centre_x, cosine)), times(centre_y, sine));
                down[0] = sine;
                down[1] = cosine;
                down[2] = plus(plus(centre_y, -times(centre_x, sine)), -times(centre_y, cosine));
            } else if (CHANGE == TRANSLATE) {
                across[2] = -times(draws.within(1, b0, b1), (float)width);
                down[2] = -times(draws.within(0, a0, a1), (float)height);
            } else {
                float vertical = plus(1.0f, draws.within(0, a0, a1)), horizontal = flags ? plus(1.0f, draws.within(1, b0, b1)) : vertical;
                across[0] = horizontal;
                across[2] = times(centre_x, plus(1.0f, -horizontal));
                down[1] = vertical;
                down[2] = times(centre_y, plus(1.0f, -vertical));
            }
            float from_x = inside(plus(plus(times(across[0], (float)column), times(across[1], (float)row)), across[2]), width);
            float from_y = inside(plus(plus(times(down[0], (float)column), times(down[1], (float)row)), down[2]), height);
            if (INTERPOLATION == NEAREST) {
                store(y, i, pixel_at(image, height, width, channels, roundf(from_y), roundf(from_x), outside));
            } else {
                float top = floorf(from_y), left = floorf(from_x), lower = from_y - top, right = from_x - left;
                float above = (1.0f - right) * pixel_at(image, height, width, channels, top, left, outside) + right * pixel_at(image, height, width, channels, top, left + 1.0f, outside);
                float below = (1.0f - right) * pixel_at(image, height, width, channels, top + 1.0f, left, outside) + right * pixel_at(image, height, width, channels, top + 1.0f, left + 1.0f, outside);
                store(y, i, (1.0f - lower) * above + lower * below);
            }
        }
    }
}
