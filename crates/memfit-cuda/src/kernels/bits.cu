// One bit an element, lowest first, every row from a byte of its own. A thread has one byte; `whole` says
// that rows are whole bytes.

extern "C" __global__ void sign_bits(const X* x, u8* bits, i64 bytes, i64 elements, i64 row_bytes, int whole, float below) {
    for (i64 i = first_item(); i < bytes; i += item_stride()) {
        float a[8];
        int count = 8;
        if (whole) {
            load_pack<8>(x, i, a);
        } else {
            i64 row = i / row_bytes, first = (i - row * row_bytes) * 8;
            count = (int)min((i64)8, elements - first);
            for (int j = 0; j < count; j++) a[j] = load(x, row * elements + first + j);
        }
        u32 byte = 0;
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (j < count && a[j] > 0.0f && a[j] < below) byte |= 1u << j;
        bits[i] = (u8)byte;
    }
}

// A thread has WIDTH elements of a byte, or a whole byte where rows are no whole bytes. Generated: OTHER (a
// parameter) and DY, an element of one gradient or the sum of two.
extern "C" __global__ void mask_bits(const X* dy, OTHER const u8* bits, X* dx, i64 bytes, i64 elements, i64 row_bytes, int whole) {
    if (whole) {
        constexpr int PARTS = 8 / WIDTH;
        for (i64 i = first_item(); i < bytes * PARTS; i += item_stride()) {
            u32 byte = (u32)bits[i / PARTS] >> (int)(i % PARTS) * WIDTH;
            float gradients[WIDTH];
            LOAD_DY
#pragma unroll
            for (int j = 0; j < WIDTH; j++) gradients[j] = byte >> j & 1 ? gradients[j] : 0.0f;
            store_pack<WIDTH>(dx, i, gradients);
        }
        return;
    }
    for (i64 i = first_item(); i < bytes; i += item_stride()) {
        u32 byte = bits[i];
        i64 row = i / row_bytes, first = (i - row * row_bytes) * 8;
        int count = (int)min((i64)8, elements - first);
        for (int j = 0; j < count; j++) {
            i64 at = row * elements + first + j;
            store(dx, at, byte >> j & 1 ? DY : 0.0f);
        }
    }
}
