// Tiles of an image that a block has at once. Generated: TILE_DOWN and TILE_ACROSS (windows or pixels of a
// tile), and, for kernels that read an image, SEEN (floats of a line under a tile).

#ifdef TILE_DOWN
// Which places of which image a tile has. Counted in 32 bits, whose divisions take a quarter of the time.
struct Tile { i64 row; int down, across; };
__device__ __forceinline__ Tile tile_of(i64 tile, int out_height, int out_width) {
    u32 tiles_down = ((u32)out_height + TILE_DOWN - 1) / TILE_DOWN, tiles_across = ((u32)out_width + TILE_ACROSS - 1) / TILE_ACROSS;
    u32 line = (u32)tile / tiles_across, row = line / tiles_down;
    return {(i64)row, (int)((line - row * tiles_down) * TILE_DOWN), (int)(((u32)tile - line * tiles_across) * TILE_ACROSS)};
}

// Floats of a line that a lane reads, all at once.
#define OF_LANE ((SEEN + 31) / 32)
#endif
