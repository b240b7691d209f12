// Tiles of an image that a block has at once. Generated: TILE_DOWN and TILE_ACROSS (windows or pixels of a tile); whoever reads an image
// also says SEEN (floats of a line under a tile).

#ifdef TILE_DOWN
// Which places of which image a tile has.
struct Tile { i64 row; int down, across; };
__device__ __forceinline__ Tile tile_of(i64 tile, int out_height, int out_width) {
    int tiles_down = (out_height + TILE_DOWN - 1) / TILE_DOWN, tiles_across = (out_width + TILE_ACROSS - 1) / TILE_ACROSS;
    i64 line = tile / tiles_across, row = line / tiles_down;
    return {row, (int)(line - row * tiles_down) * TILE_DOWN, (int)(tile - line * tiles_across) * TILE_ACROSS};
}

// Floats of a line that a lane reads, all at once.
#define OF_LANE ((SEEN + 31) / 32)
#endif
