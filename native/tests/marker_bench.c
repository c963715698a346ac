/*
 * What the driver's events cover and cost: the meter of the device library stands on them.
 *
 *   marker-bench
 *
 * Without the library. On a stream of each kind it launches a kernel of KERNEL_MS, records an event
 * of the context and one of the stream, and looks at once: an event that is already complete does
 * not wait for that kernel. Prints one JSON line:
 *
 *   {"context_events": BOOL, "waits": {STREAM: {"context": BOOL, "stream": BOOL}, ...},
 *    "record_ns": N, "query_ns": N, "context_record_ns": N}
 *
 * `context_events` says whether the driver has cuCtxRecordEvent (12.5 and later). The costs are the
 * medians over batches of calls on an idle stream.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../examples/spin_ptx.h"

#define KERNEL_MS 50
#define BATCHES   21
#define CALLS     2000

typedef CUresult (*context_record)(CUcontext context, CUevent event);

enum call { RECORD, QUERY, CONTEXT_RECORD };

struct gpu {
    CUcontext context;
    CUfunction spin;
    CUevent of_context, of_stream;
    context_record record;
};

static void check(CUresult result, const char *call) {
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "marker-bench: %s: error %d\n", call, (int)result);
    exit(3);
}
#define CHECK(call) check(call, #call)

static void prepare(struct gpu *gpu) {
    CUmodule module;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&gpu->context, 0));
    CHECK(cuCtxSetCurrent(gpu->context));
    CHECK(cuModuleLoadData(&module, spin_ptx));
    CHECK(cuModuleGetFunction(&gpu->spin, module, "kubeshare_spin_us"));
    CHECK(cuEventCreate(&gpu->of_context, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&gpu->of_stream, CU_EVENT_DISABLE_TIMING));
    *(void **)&gpu->record = dlsym(RTLD_DEFAULT, "cuCtxRecordEvent");
}

static const char *word(bool value) {
    return value ? "true" : "false";
}

static void print_waits(const struct gpu *gpu, const char *name, CUstream stream, bool is_last) {
    uint32_t microseconds = KERNEL_MS * 1000;
    void *parameters[] = {&microseconds};
    bool context_waits = false;
    CHECK(cuLaunchKernel(gpu->spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    if (gpu->record != NULL) {
        CHECK(gpu->record(gpu->context, gpu->of_context));
        context_waits = cuEventQuery(gpu->of_context) == CUDA_ERROR_NOT_READY;
    }
    CHECK(cuEventRecord(gpu->of_stream, stream));
    const bool stream_waits = cuEventQuery(gpu->of_stream) == CUDA_ERROR_NOT_READY;
    CHECK(cuCtxSynchronize());
    printf("\"%s\": {\"context\": %s, \"stream\": %s}%s", name, word(context_waits),
           word(stream_waits), is_last ? "" : ", ");
}

static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int compare(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double cost_ns(const struct gpu *gpu, CUstream stream, enum call call) {
    double batch[BATCHES];
    for (int i = 0; i < BATCHES; i++) {
        const double start = now_ns();
        for (int j = 0; j < CALLS; j++) {
            if (call == RECORD)
                CHECK(cuEventRecord(gpu->of_stream, stream));
            else if (call == QUERY)
                cuEventQuery(gpu->of_stream);
            else
                CHECK(gpu->record(gpu->context, gpu->of_context));
        }
        batch[i] = (now_ns() - start) / CALLS;
        CHECK(cuCtxSynchronize());
    }
    qsort(batch, BATCHES, sizeof *batch, compare);
    return batch[BATCHES / 2];
}

int main(void) {
    struct gpu gpu;
    CUstream blocking, other;
    prepare(&gpu);
    CHECK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    printf("{\"context_events\": %s, \"waits\": {", word(gpu.record != NULL));
    print_waits(&gpu, "legacy", CU_STREAM_LEGACY, false);
    print_waits(&gpu, "per thread", CU_STREAM_PER_THREAD, false);
    print_waits(&gpu, "blocking", blocking, false);
    print_waits(&gpu, "non-blocking", other, true);
    printf("}, \"record_ns\": %.0f, \"query_ns\": %.0f, \"context_record_ns\": ",
           cost_ns(&gpu, other, RECORD), cost_ns(&gpu, other, QUERY));
    if (gpu.record != NULL)
        printf("%.0f}\n", cost_ns(&gpu, other, CONTEXT_RECORD));
    else
        printf("null}\n");
    return 0;
}
