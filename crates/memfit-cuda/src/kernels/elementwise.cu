// A chain over tensors of one shape. Generated before this: INPUTS, the types A0, A1, … and Y, PARAMETERS,
// LOADS and CHAIN.

extern "C" __global__ void elementwise(PARAMETERS Y* y, i64 count) {
    const i64 packs = count / WIDTH;
    for (i64 i = first_item(); i < packs; i += item_stride()) {
        float result[WIDTH];
        LOAD_PACKS
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            TAKE_PACKED
            CHAIN
            result[j] = RESULT;
        }
        store_pack<WIDTH>(y, i, result);
    }
    for (i64 i = packs * WIDTH + first_item(); i < count; i += item_stride()) {
        TAKE_ONE
        CHAIN
        store(y, i, RESULT);
    }
}
