/*
 * What an allocation costs: run once with the library and once without, and compare.
 *
 *   allocation-bench [PAIRS [stream]]
 *
 * Memory is allocated and freed again, a mebibyte at a time; with `stream`, in
 * the order of a stream. Prints one JSON line with the fastest of all batches of
 * two seconds, in ns for a pair: the others were disturbed. On the stub driver,
 * also what that was asked by so many allocations, and by their frees.
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

#define MEASURED_NS INT64_C(2000000000)
#define BYTES       ((size_t)1 << 20)

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Of the stub driver alone. */
extern unsigned long stub_driver_questions(void) __attribute__((weak));

static CUresult allocate(CUdeviceptr *pointer, bool stream) {
    return stream ? cuMemAllocAsync(pointer, BYTES, NULL) : cuMemAlloc(pointer, BYTES);
}

static CUresult release(CUdeviceptr pointer, bool stream) {
    return stream ? cuMemFreeAsync(pointer, NULL) : cuMemFree(pointer);
}

static CUresult do_pair(bool stream) {
    CUdeviceptr pointer;
    const CUresult result = allocate(&pointer, stream);
    return result == CUDA_SUCCESS ? release(pointer, stream) : result;
}

/* Negative where an allocation failed. */
static double nanoseconds_a_pair(int pairs, bool stream) {
    const int64_t start = now();
    for (int i = 0; i < pairs; i++) {
        if (do_pair(stream) != CUDA_SUCCESS)
            return -1;
    }
    return (double)(now() - start) / pairs;
}

static void print_questions(int pairs, bool stream) {
    unsigned long by_allocations = 0, by_frees = 0;
    for (int i = 0; i < pairs; i++) {
        CUdeviceptr pointer;
        const unsigned long before = stub_driver_questions();
        if (allocate(&pointer, stream) != CUDA_SUCCESS)
            return;
        const unsigned long between = stub_driver_questions();
        release(pointer, stream);
        by_allocations += between - before;
        by_frees += stub_driver_questions() - between;
    }
    printf(", \"asked_by_allocations\": %lu, \"asked_by_frees\": %lu", by_allocations, by_frees);
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
    for (const int64_t start = now(); now() - start < MEASURED_NS;)
        fastest = fmin(fastest, nanoseconds_a_pair(pairs, stream));
    printf("{\"allocation_ns\": %.2f, \"pairs\": %d", fastest, pairs);
    if (stub_driver_questions != NULL)
        print_questions(pairs, stream);
    printf("}\n");
    return 0;
}
