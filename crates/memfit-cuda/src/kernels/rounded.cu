// Weights of type F as numbers of type T, many of them in one launch, which are laid out as those of updates
// are.
struct Weight {
    const F* from;
    const void *none[2];
    T* to;
    void* nothing[4];
    i64 count;
};

#define MOST 48
// Elements of a block: four neighbours for each of its threads.
#define CHUNK 1024

struct Many {
    Weight at[MOST];
    int first_block[MOST + 2];
};

extern "C" __global__ void update_many(const __grid_constant__ Many many, const Context*) {
    int which = 0;
    while (many.first_block[which + 1] <= (int)blockIdx.x) which++;
    const Weight& at = many.at[which];
    const i64 first = (i64)((int)blockIdx.x - many.first_block[which]) * CHUNK + threadIdx.x * 4;
    if (first + 4 <= at.count) {
        float values[4];
        load_pack<4>(at.from + first, 0, values);
        store_pack<4>(at.to + first, 0, values);
    } else {
        for (i64 i = first; i < at.count; i++) store(at.to, i, load(at.from, i));
    }
}
