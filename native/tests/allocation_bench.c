/*
 * What an allocation costs: run once with the library and once without, and compare.
 *
 *   allocation-bench [PAIRS]
 *
 * Memory is allocated and freed again, a mebibyte at a time. Prints one JSON
 * line with the median over batches and the fastest of them, in ns for a pair.
 */
#include <cuda.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BATCHES 201
#define BYTES   ((size_t)1 << 20)

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Negative where an allocation failed. */
static double nanoseconds_a_pair(int pairs) {
    const int64_t start = now();
    for (int i = 0; i < pairs; i++) {
        CUdeviceptr pointer;
        if (cuMemAlloc(&pointer, BYTES) != CUDA_SUCCESS || cuMemFree(pointer) != CUDA_SUCCESS)
            return -1;
    }
    return (double)(now() - start) / pairs;
}

static int compare(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

int main(int count, char **arguments) {
    const int pairs = count > 1 ? atoi(arguments[1]) : 1000;
    double batch[BATCHES];
    CUcontext context;
    if (pairs < 1 || cuInit(0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS || nanoseconds_a_pair(pairs) < 0) {
        fprintf(stderr, "allocation-bench: no GPU can be used, or its memory is in use; "
                        "usage: allocation-bench [PAIRS]\n");
        return 3;
    }
    for (int i = 0; i < BATCHES; i++)
        batch[i] = nanoseconds_a_pair(pairs);
    qsort(batch, BATCHES, sizeof *batch, compare);
    printf("{\"allocation_ns\": %.2f, \"fastest_ns\": %.2f, \"pairs\": %d}\n", batch[BATCHES / 2],
           batch[0], pairs);
    return 0;
}
