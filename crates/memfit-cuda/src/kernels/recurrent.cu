// Recurrent cells over all steps: a block takes ROWS rows through them, and keeps its running state in floats
// of workspace. Defined before: types X (inputs, states and what is kept), W (the kernel) and B (the bias),
// CELL, ACTIVATION and RECURRENT, HAS_BIAS, READS_BACKWARDS, WRITES_BACKWARDS, MASKED, STARTS and ENDS. With
// STARTS, initial states stand in one more row of x, and again after the states of all steps; with ENDS, the
// LSTM's cell state after the last step stands in the last row of y.

#define ROWS 4
#define SIMPLE 0
#define LSTM 1
#define GRU_AFTER 2
#define GRU_BEFORE 3
#define LINEAR 0
#define RELU 1
#define SIGMOID 2
#define TANH 3
#define GATES (CELL == SIMPLE ? 1 : CELL == LSTM ? 4 : 3)
#define KEPT (CELL == SIMPLE ? 0 : CELL == LSTM ? 5 : CELL == GRU_AFTER ? 4 : 3)
#define THREADS 256
// Rows of a sequence's inputs and of its states.
#define HAS_CELLS (CELL == LSTM ? 1 : 0)
#define INPUTS(steps) ((steps) + STARTS)
#define STATES(steps) ((steps) + STARTS * (1 + HAS_CELLS) + ENDS * HAS_CELLS)

template <int KIND> __device__ __forceinline__ float gate(float x) {
    return KIND == RELU ? f_relu(x) : KIND == SIGMOID ? f_sigmoid(x) : KIND == TANH ? tanhf(x) : x;
}
// The derivative, from the function's value.
template <int KIND> __device__ __forceinline__ float gate_grad(float dy, float y) {
    return KIND == RELU ? (y > 0.0f ? dy : 0.0f) : KIND == SIGMOID ? dy * (y * (1.0f - y)) : KIND == TANH ? dy * (1.0f - y * y) : dy;
}

__device__ __forceinline__ int read_as(int steps, int step) { return READS_BACKWARDS ? steps - 1 - step : step; }
__device__ __forceinline__ int written_as(int steps, int step) { return WRITES_BACKWARDS ? steps - 1 - step : step; }
// Where the input of a step stands, what is kept of it, and the state after it.
__device__ __forceinline__ i64 input_at(i64 row, int steps, int step) { return row * INPUTS(steps) + read_as(steps, step); }
__device__ __forceinline__ i64 kept_at(i64 row, int steps, int step) { return row * steps + written_as(steps, step); }
__device__ __forceinline__ i64 state_at(i64 row, int steps, int step) { return row * STATES(steps) + written_as(steps, step); }
// A row of the states by its place.
__device__ __forceinline__ i64 place_at(i64 row, int steps, int place) { return row * STATES(steps) + place; }

// A unit's state before a step.
__device__ __forceinline__ float state_before(const X* y, i64 row, int steps, int step, int units, i64 u) {
    if (step > 0) return load(y, state_at(row, steps, step - 1) * units + u);
    return STARTS ? load(y, place_at(row, steps, steps) * units + u) : 0.0f;
}
// The LSTM's own.
__device__ __forceinline__ float cell_before(const X* y, const X* kept, i64 row, int steps, int step, int units, i64 u) {
    if (step > 0) return load(kept, (kept_at(row, steps, step - 1) * KEPT + 4) * units + u);
    return STARTS ? load(y, place_at(row, steps, steps + 1) * units + u) : 0.0f;
}

// Whether a step of a row counts: where it does not, states stay and nothing goes into the weights.
__device__ __forceinline__ bool counts(const float* mask, i64 row, int steps, int step) { return !MASKED || mask[row * steps + read_as(steps, step)] != 0.0f; }

// `to[r][j] = sum of from[r][k] kernel[k][j]` for some columns of the kernel.
__device__ __forceinline__ void times_kernel(const float* from, const W* kernel, float* to, int units, int wide, int first, int last) {
    for (int j = first + threadIdx.x; j < last; j += THREADS) {
        float sums[ROWS] = {};
        for (int k = 0; k < units; k++) {
            float weight = load(kernel, (i64)k * wide + j);
#pragma unroll
            for (int r = 0; r < ROWS; r++) sums[r] += from[r * units + k] * weight;
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) to[r * wide + j] = sums[r];
    }
}

// `to[r][k] (+)= sum of from[r][j] kernel[k][j]` over some columns of the kernel: a warp for each k.
__device__ __forceinline__ void times_kernel_back(const float* from, const W* kernel, float* to, int units, int wide, int first, int last, bool adds) {
    int lane = threadIdx.x % 32;
    for (int k = threadIdx.x / 32; k < units; k += THREADS / 32) {
        float sums[ROWS] = {};
        for (int j = first + lane; j < last; j += 32) {
            float weight = load(kernel, (i64)k * wide + j);
#pragma unroll
            for (int r = 0; r < ROWS; r++) sums[r] += from[r * wide + j] * weight;
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float sum = warp_sum(sums[r]);
            if (lane == 0) to[r * units + k] = adds ? to[r * units + k] + sum : sum;
        }
    }
}

// Floats of workspace of a block: states, the LSTM's own, what a reset gate lets through, and gates.
#define FLOATS(units, wide) ((i64)ROWS * (3 * (units) + (wide)))

extern "C" __global__ void __launch_bounds__(THREADS) recurrent(const X* x, const W* kernel, const B* bias, const float* mask, X* y, X* kept, float* memory, int rows, int steps, int units) {
    const int wide = GATES * units;
    float* states = memory + blockIdx.x * FLOATS(units, wide);
    float* cells = states + ROWS * units;
    float* passed = cells + ROWS * units;
    float* gates = passed + ROWS * units;
    for (int i = threadIdx.x; i < ROWS * units; i += THREADS) {
        int u = i % units;
        i64 row = (i64)blockIdx.x * ROWS + i / units;
        states[i] = cells[i] = 0.0f;
        if (!STARTS || row >= rows) continue;
        const X* given = x + (row * INPUTS(steps) + steps) * wide;
        states[i] = load(given, u);
        store(y, place_at(row, steps, steps) * units + u, states[i]);
        if (!HAS_CELLS) continue;
        cells[i] = load(given, units + u);
        store(y, place_at(row, steps, steps + 1) * units + u, cells[i]);
    }
    __syncthreads();
    for (int step = 0; step < steps; step++) {
        times_kernel(states, kernel, gates, units, wide, 0, CELL == GRU_BEFORE ? 2 * units : wide);
        __syncthreads();
        if (CELL == GRU_BEFORE) {
            for (int i = threadIdx.x; i < ROWS * units; i += THREADS) {
                int r = i / units, u = i % units;
                i64 row = (i64)blockIdx.x * ROWS + r;
                if (row >= rows) continue;
                const X* from = x + input_at(row, steps, step) * wide;
                float* own = gates + r * wide;
#pragma unroll
                for (int g = 0; g < 2; g++) {
                    float value = own[g * units + u] + load(from, g * units + u);
                    if (HAS_BIAS) value += load(bias, g * units + u);
                    own[g * units + u] = gate<RECURRENT>(value);
                }
                passed[i] = own[units + u] * states[i];
            }
            __syncthreads();
            times_kernel(passed, kernel, gates, units, wide, 2 * units, wide);
            __syncthreads();
        }
        for (int i = threadIdx.x; i < ROWS * units; i += THREADS) {
            int r = i / units, u = i % units;
            i64 row = (i64)blockIdx.x * ROWS + r;
            if (row >= rows) continue;
            const X* from = x + input_at(row, steps, step) * wide;
            const float* own = gates + r * wide;
            X* keep = kept + kept_at(row, steps, step) * KEPT * units;
            if (!counts(mask, row, steps, step)) {
#pragma unroll
                for (int g = 0; g < KEPT; g++) store(keep, g * units + u, CELL == LSTM && g == 4 ? cells[i] : 0.0f);
                store(y, state_at(row, steps, step) * units + u, states[i]);
                continue;
            }
            // What a gate reads, with the bias before the product.
            auto input = [&](int g) { return load(from, g * units + u) + (HAS_BIAS ? load(bias, g * units + u) : 0.0f); };
            float state;
            if (CELL == SIMPLE) {
                state = gate<ACTIVATION>(own[u] + input(0));
            } else if (CELL == LSTM) {
                float in = gate<RECURRENT>(own[u] + input(0)), forget = gate<RECURRENT>(own[units + u] + input(1));
                float candidate = gate<ACTIVATION>(own[2 * units + u] + input(2)), out = gate<RECURRENT>(own[3 * units + u] + input(3));
                float cell = forget * cells[i] + in * candidate;
                cells[i] = cell;
                state = out * gate<ACTIVATION>(cell);
                store(keep, u, in);
                store(keep, units + u, forget);
                store(keep, 2 * units + u, candidate);
                store(keep, 3 * units + u, out);
                store(keep, 4 * units + u, cell);
            } else {
                float update, reset, candidate;
                if (CELL == GRU_AFTER) {
                    auto product = [&](int g) { return own[g * units + u] + (HAS_BIAS ? load(bias, wide + g * units + u) : 0.0f); };
                    update = gate<RECURRENT>(product(0) + input(0));
                    reset = gate<RECURRENT>(product(1) + input(1));
                    candidate = gate<ACTIVATION>(reset * product(2) + input(2));
                    store(keep, 3 * units + u, product(2));
                } else {
                    update = own[u];
                    reset = own[units + u];
                    candidate = gate<ACTIVATION>(own[2 * units + u] + input(2));
                }
                state = update * states[i] + (1.0f - update) * candidate;
                store(keep, u, update);
                store(keep, units + u, reset);
                store(keep, 2 * units + u, candidate);
            }
            states[i] = state;
            store(y, state_at(row, steps, step) * units + u, state);
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; ENDS && HAS_CELLS && i < ROWS * units; i += THREADS) {
        i64 row = (i64)blockIdx.x * ROWS + i / units;
        if (row < rows) store(y, place_at(row, steps, STATES(steps) - 1) * units + i % units, cells[i]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) recurrent_grad(const X* dy, const X* y, const X* kept, const W* kernel, const float* mask, X* dx, float* memory, int rows, int steps, int units) {
    const int wide = GATES * units;
    float* dstates = memory + blockIdx.x * FLOATS(units, wide);
    float* cells = dstates + ROWS * units;
    float* passed = cells + ROWS * units;
    float* gates = passed + ROWS * units;
    for (int i = threadIdx.x; i < ROWS * units; i += THREADS) {
        i64 row = (i64)blockIdx.x * ROWS + i / units;
        dstates[i] = 0.0f;
        cells[i] = ENDS && HAS_CELLS && row < rows ? load(dy, place_at(row, steps, STATES(steps) - 1) * units + i % units) : 0.0f;
    }
    for (int i = threadIdx.x; i < ROWS * wide; i += THREADS) gates[i] = 0.0f;
    __syncthreads();
    for (int step = steps - 1; step >= 0; step--) {
        for (int i = threadIdx.x; i < ROWS * units; i += THREADS) {
            int r = i / units, u = i % units;
            i64 row = (i64)blockIdx.x * ROWS + r;
            if (row >= rows) continue;
            i64 here = state_at(row, steps, step);
            const X* keep = kept + kept_at(row, steps, step) * KEPT * units;
            X* to = dx + input_at(row, steps, step) * wide;
            float* own = gates + r * wide;
            float now = dstates[i] + load(dy, here * units + u);
            if (!counts(mask, row, steps, step)) {
#pragma unroll
                for (int g = 0; g < GATES; g++) {
                    own[g * units + u] = 0.0f;
                    store(to, g * units + u, 0.0f);
                }
                dstates[i] = now;
                continue;
            }
            if (CELL == SIMPLE) {
                own[u] = gate_grad<ACTIVATION>(now, load(y, here * units + u));
                store(to, u, own[u]);
                dstates[i] = 0.0f;
            } else if (CELL == LSTM) {
                float in = load(keep, u), forget = load(keep, units + u), candidate = load(keep, 2 * units + u), out = load(keep, 3 * units + u);
                float shaped = gate<ACTIVATION>(load(keep, 4 * units + u));
                float cell = cells[i] + gate_grad<ACTIVATION>(now * out, shaped);
                own[u] = gate_grad<RECURRENT>(cell * candidate, in);
                own[units + u] = gate_grad<RECURRENT>(cell * cell_before(y, kept, row, steps, step, units, u), forget);
                own[2 * units + u] = gate_grad<ACTIVATION>(cell * in, candidate);
                own[3 * units + u] = gate_grad<RECURRENT>(now * shaped, out);
#pragma unroll
                for (int g = 0; g < 4; g++) store(to, g * units + u, own[g * units + u]);
                cells[i] = cell * forget;
                dstates[i] = 0.0f;
            } else {
                float update = load(keep, u), reset = load(keep, units + u), candidate = load(keep, 2 * units + u);
                float d_update = gate_grad<RECURRENT>((state_before(y, row, steps, step, units, u) - candidate) * now, update);
                float d_candidate = gate_grad<ACTIVATION>(now * (1.0f - update), candidate);
                dstates[i] = now * update;
                own[u] = d_update;
                store(to, u, d_update);
                store(to, 2 * units + u, d_candidate);
                if (CELL == GRU_AFTER) {
                    float d_reset = gate_grad<RECURRENT>(d_candidate * load(keep, 3 * units + u), reset);
                    own[units + u] = d_reset;
                    store(to, units + u, d_reset);
                    own[2 * units + u] = d_candidate * reset;
                } else {
                    own[2 * units + u] = d_candidate;
                }
            }
        }
        __syncthreads();
        if (CELL == GRU_BEFORE) {
            times_kernel_back(gates, kernel, passed, units, wide, 2 * units, wide, false);
            __syncthreads();
            for (int i = threadIdx.x; i < ROWS * units; i += THREADS) {
                int r = i / units, u = i % units;
                i64 row = (i64)blockIdx.x * ROWS + r;
                if (row >= rows || !counts(mask, row, steps, step)) continue;
                float reset = load(kept, (kept_at(row, steps, step) * KEPT + 1) * units + u);
                float d_reset = gate_grad<RECURRENT>(passed[i] * state_before(y, row, steps, step, units, u), reset);
                gates[r * wide + units + u] = d_reset;
                store(dx, input_at(row, steps, step) * wide + units + u, d_reset);
                dstates[i] += passed[i] * reset;
            }
            __syncthreads();
        }
        if (step > 0 || STARTS) times_kernel_back(gates, kernel, dstates, units, wide, 0, CELL == GRU_BEFORE ? 2 * units : wide, true);
        __syncthreads();
    }
    // The states that were given.
    for (int i = threadIdx.x; STARTS && i < ROWS * units; i += THREADS) {
        int u = i % units;
        i64 row = (i64)blockIdx.x * ROWS + i / units;
        if (row >= rows) continue;
        X* given = dx + (row * INPUTS(steps) + steps) * wide;
        store(given, u, dstates[i] + load(dy, place_at(row, steps, steps) * units + u));
        if (HAS_CELLS) store(given, units + u, cells[i] + load(dy, place_at(row, steps, steps + 1) * units + u));
#pragma unroll
        for (int g = 1 + HAS_CELLS; g < GATES; g++) store(given, g * units + u, 0.0f);
    }
}

// The states before each step and the gradients of the products with the kernel, side by side, of rows from
// `first` on. `part` is 0 for all, 1 for the gates and 2 for the candidate of a GRU whose reset gate stands
// before the kernel.
extern "C" __global__ void recurrent_gather(const X* dx, const X* y, const X* kept, float* states, float* gates, i64 first, i64 count, int steps, int units, int part) {
    const i64 wide = GATES * units, line = units + wide;
    for (i64 i = first_item(); i < count * steps * line; i += item_stride()) {
        i64 at = i / line, column = i % line, row = first + at / steps;
        int step = (int)(at % steps);
        const X* keep = kept + kept_at(row, steps, step) * KEPT * units;
        if (column < units) {
            float state = state_before(y, row, steps, step, units, column);
            if (part == 2) state *= load(keep, units + column);
            states[at * units + column] = state;
        } else {
            i64 j = column - units;
            bool is_candidate = j >= 2 * units;
            float value = load(dx, input_at(row, steps, step) * wide + j);
            if (CELL == GRU_AFTER && is_candidate) value *= load(keep, j - units);
            if ((part == 1 && is_candidate) || (part == 2 && !is_candidate)) value = 0.0f;
            gates[at * wide + j] = value;
        }
    }
}

// Sums of biases: blocks are 32 columns by 8 steps, along y every part has its own steps.
extern "C" __global__ void recurrent_bias_parts(const X* dx, const X* kept, double* parts, i64 rows, int steps, int units, i64 columns) {
    __shared__ double sums[8][32];
    const i64 wide = GATES * units;
    i64 column = (i64)blockIdx.x * 32 + threadIdx.x % 32;
    int lane = threadIdx.x / 32;
    double sum = 0.0;
    if (column < columns) {
        i64 j = column % wide;
        bool is_passed = column >= wide && j >= 2 * units;
        for (i64 i = (i64)blockIdx.y * 8 + lane; i < rows * steps; i += (i64)gridDim.y * 8) {
            int step = (int)(i % steps);
            float value = load(dx, input_at(i / steps, steps, step) * wide + j);
            if (CELL == GRU_AFTER && is_passed) value *= load(kept, kept_at(i / steps, steps, step) * KEPT * units + j - units);
            sum += value;
        }
    }
    sums[lane][threadIdx.x % 32] = sum;
    __syncthreads();
    if (lane == 0 && column < columns) {
        for (int i = 1; i < 8; i++) sum += sums[i][threadIdx.x];
        parts[blockIdx.y * columns + column] = sum;
    }
}
extern "C" __global__ void recurrent_bias_sum(const double* parts, B* dbias, i64 count, i64 columns, int overwrite) {
    for (i64 column = first_item(); column < columns; column += item_stride()) {
        double sum = 0.0;
        for (i64 part = 0; part < count; part++) sum += parts[part * columns + column];
        store(dbias, column, overwrite ? (float)sum : (float)(load(dbias, column) + sum));
    }
}
