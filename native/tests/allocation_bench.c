/*
 * What an allocation costs: run once with the library and once without, and compare.
 *
 *   allocation-bench [PAIRS [stream]]
 *
 * Memory is allocated and freed again, a mebibyte at a time; with `stream`, in
 * the order of a stream. Prints one JSON line with the fastest of many batches,
 * in ns for a pair: the others were disturbed.
 */
#include <cuda.h>
#include <cuda_memory.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCHES 201
#define BYTES   ((size_t)1 << 20)

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static CUresult do_pair(void) {
    CUdeviceptr pointer;
    const CUresult result = cuMemAlloc(&pointer, BYTES);
    return result == CUDA_SUCCESS ? cuMemFree(pointer) : result;
}

static CUresult do_pair_in_stream(void) {
    CUdeviceptr pointer;
    const CUresult result = cuMemAllocAsync(&pointer, BYTES, NULL);
    return result == CUDA_SUCCESS ? cuMemFreeAsync(pointer, NULL) : result;
}

/* Negative where an allocation failed. */
static double nanoseconds_a_pair(int pairs, bool stream) {
    const int64_t start = now();
    for (int i = 0; i < pairs; i++) {
        if ((stream ? do_pair_in_stream() : do_pair()) != CUDA_SUCCESS)
            return -1;
    }
    return (double)(now() - start) / pairs;
}

int main(int count, char **arguments) {
    const int pairs = count > 1 ? atoi(arguments[1]) : 1000;
    const bool stream = count > 2 && strcmp(arguments[2], "stream") == 0;
    double fastest = INFINITY;
    CUcontext context;
    if (pairs < 1 || cuInit(0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS || nanoseconds_a_pair(pairs, stream) < 0) {
        fprintf(stderr, "allocation-bench: no GPU can be used, or its memory is in use; "
                        "usage: allocation-bench [PAIRS [stream]]\n");
        return 3;
    }
    for (int i = 0; i < BATCHES; i++)
        fastest = fmin(fastest, nanoseconds_a_pair(pairs, stream));
    printf("{\"allocation_ns\": %.2f, \"pairs\": %d}\n", fastest, pairs);
    return 0;
}
