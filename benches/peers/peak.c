/* Measures the machine's fused multiply-adds: prints GFLOP/s of as many threads as the argument says, the best of several tries. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#if defined(__AVX512F__)
#define WIDTH 16
#elif defined(__AVX__)
#define WIDTH 8
#else
#define WIDTH 4
#endif
/* More sums than an FMA's latency times the units that run them. */
#define SUMS 12
#define ROUNDS 4000000L
#define TRIES 20

typedef float vector __attribute__((vector_size(WIDTH * 4)));

static void *work(void *result) {
    vector zero = {0}, factor = zero + 0.999f, addend = zero + 0.001f;
    vector a = zero, b = zero + 1, c = zero + 2, d = zero + 3, e = zero + 4, f = zero + 5;
    vector g = zero + 6, h = zero + 7, i = zero + 8, j = zero + 9, k = zero + 10, l = zero + 11;
    for (long round = 0; round < ROUNDS; round++) {
        a = a * factor + addend, b = b * factor + addend, c = c * factor + addend, d = d * factor + addend;
        e = e * factor + addend, f = f * factor + addend, g = g * factor + addend, h = h * factor + addend;
        i = i * factor + addend, j = j * factor + addend, k = k * factor + addend, l = l * factor + addend;
    }
    a = a + b + c + d + e + f + g + h + i + j + k + l;
    *(float *)result = a[0];
    return NULL;
}

int main(int count, char **arguments) {
    int threads = count < 2 ? 1 : atoi(arguments[1]);
    double best = 0;
    for (int attempt = 0; attempt < TRIES; attempt++) {
        pthread_t handles[256];
        float results[256];
        struct timespec start, end;
        clock_gettime(CLOCK_MONOTONIC, &start);
        for (int thread = 0; thread < threads && thread < 256; thread++) pthread_create(&handles[thread], NULL, work, &results[thread]);
        for (int thread = 0; thread < threads && thread < 256; thread++) pthread_join(handles[thread], NULL);
        clock_gettime(CLOCK_MONOTONIC, &end);
        double seconds = (end.tv_sec - start.tv_sec) + (end.tv_nsec - start.tv_nsec) * 1e-9;
        double rate = 2.0 * WIDTH * SUMS * ROUNDS * threads / seconds * 1e-9;
        if (best < rate) best = rate;
    }
    printf("%.1f\n", best);
    return 0;
}
