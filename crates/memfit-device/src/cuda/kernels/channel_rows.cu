// Images with a row for each channel: frames of all images one behind the other, so that a product over pixels reads both of its
// factors along their rows. Several copies stand below each other, each a pixel further to the left.

#define TILE 32

// Frames are `frame_width` (a multiple of four) by `frame_height` pixels: line h, column w of copy s is pixel (h - top, w + s - left)
// of the image, or 0 where the image has none. A block turns TILE columns of a line for TILE channels.
extern "C" __global__ void channel_rows(const float* x, float* rows, int height, int width, int channels, int top, int left, int frame_height, int frame_width, i64 pitch) {
    __shared__ float tile[TILE + COPIES - 1][TILE + 1];
    int tiles = (frame_width + TILE - 1) / TILE;
    int w0 = (int)(blockIdx.x % tiles) * TILE, c0 = (int)blockIdx.y * TILE;
    int line = (int)(blockIdx.x / tiles), h = line % frame_height, n = line / frame_height;
    int lane = (int)threadIdx.x % TILE, warp = (int)threadIdx.x / TILE;
    int from_h = h - top, c = c0 + lane;
    bool line_inside = 0 <= from_h && from_h < height && c < channels;
    const float* from = x + ((i64)n * height + from_h) * width * channels + c;
    for (int w = warp; w < TILE + COPIES - 1; w += THREADS / TILE) {
        int from_w = w0 + w - left;
        tile[w][lane] = line_inside && 0 <= from_w && from_w < width ? from[(i64)from_w * channels] : 0.0f;
    }
    __syncthreads();
    if (w0 + lane >= frame_width) return;
    i64 at = (i64)line * frame_width + w0 + lane;
#pragma unroll
    for (int s = 0; s < COPIES; s++)
        for (int row = warp; row < TILE && c0 + row < channels; row += THREADS / TILE)
            rows[((i64)s * channels + c0 + row) * pitch + at] = tile[lane + s][row];
}
