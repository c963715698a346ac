/*
 * What a launch through the open gate costs: run once with the library and once without, and
 * compare.
 *
 *   launch-bench [CALLS]
 *
 * The launch names no kernel, so the driver refuses it at once: what is
 * measured is the way there, not the driver's own work, which is a hundred
 * times longer and would drown the difference. Prints one JSON line with the
 * fastest of all batches of two seconds, in ns a call: the others were disturbed,
 * as by another machine on the same core, which may last for a second.
 */
#include <cuda.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* A session's launches are metered until it has had the GPU to itself for a second. */
#define WARM_UP_NS  INT64_C(1500000000)
#define MEASURED_NS INT64_C(2000000000)

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static double nanoseconds_a_call(int calls) {
    const int64_t start = now();
    for (int i = 0; i < calls; i++)
        cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    return (double)(now() - start) / calls;
}

int main(int count, char **arguments) {
    const int calls = count > 1 ? atoi(arguments[1]) : 1000;
    double fastest = INFINITY;
    CUcontext context;
    if (calls < 1 || cuInit(0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS) {
        fprintf(stderr, "launch-bench: no GPU can be used; usage: launch-bench [CALLS]\n");
        return 3;
    }
    const CUresult refusal = cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    for (const int64_t start = now(); now() - start < WARM_UP_NS;)
        nanoseconds_a_call(calls);
    for (const int64_t start = now(); now() - start < MEASURED_NS;)
        fastest = fmin(fastest, nanoseconds_a_call(calls));
    printf("{\"launch_ns\": %.2f, \"calls\": %d, \"driver_answer\": %d}\n", fastest, calls,
           (int)refusal);
    return 0;
}
