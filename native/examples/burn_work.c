/* The kernel, and launching it again and again. */
#include "burn.h"

#include <stdio.h>
#include <stdlib.h>

/* kubeshare_spin_us(u32 microseconds): reads the global timer until that much has passed. */
static const char ptx[] = ".version 6.0\n"
                          ".target sm_50\n"
                          ".address_size 64\n"
                          ".visible .entry kubeshare_spin_us(.param .u32 microseconds)\n"
                          "{\n"
                          "    .reg .pred %p;\n"
                          "    .reg .b32 %us;\n"
                          "    .reg .b64 %start, %now, %ns;\n"
                          "    ld.param.u32 %us, [microseconds];\n"
                          "    mul.wide.u32 %ns, %us, 1000;\n"
                          "    mov.u64 %start, %globaltimer;\n"
                          "again:\n"
                          "    mov.u64 %now, %globaltimer;\n"
                          "    sub.u64 %now, %now, %start;\n"
                          "    setp.lt.u64 %p, %now, %ns;\n"
                          "    @%p bra again;\n"
                          "    ret;\n"
                          "}\n";

static void launch_kernel(const struct options *options, const struct gpu *gpu, CUstream stream) {
    uint32_t microseconds = options->kernel_us;
    void *parameters[] = {&microseconds};
    CHECK(cuLaunchKernel(gpu->spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static void capture(const struct options *options, struct gpu *gpu) {
    CUgraph graph;
    CHECK(cuStreamBeginCapture(gpu->streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (unsigned i = 0; i < options->graph; i++)
        launch_kernel(options, gpu, gpu->streams[0]);
    CHECK(cuStreamEndCapture(gpu->streams[0], &graph));
    CHECK(cuGraphInstantiate(&gpu->graph, graph, 0));
    CHECK(cuGraphDestroy(graph));
}

static void prepare_gpu(const struct options *options, int index, struct gpu *gpu) {
    CUdevice device;
    CUmodule module;
    CUdeviceptr memory;
    CHECK(cuDeviceGet(&device, options->device + index));
    CHECK(cuDevicePrimaryCtxRetain(&gpu->context, device));
    CHECK(cuCtxSetCurrent(gpu->context));
    if (options->memory > 0) {
        CHECK(cuMemAlloc(&memory, (size_t)options->memory));
        CHECK(cuMemsetD8(memory, 0, (size_t)options->memory));
    }
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&gpu->spin, module, "kubeshare_spin_us"));
    for (unsigned i = 0; i < options->streams; i++)
        CHECK(cuStreamCreate(&gpu->streams[i], CU_STREAM_NON_BLOCKING));
    if (options->graph > 0)
        capture(options, gpu);
}

void prepare(const struct options *options, struct gpu *gpus) {
    CHECK(cuInit(0));
    for (int i = options->gpus - 1; i >= 0; i--) /* the first one's context stays current */
        prepare_gpu(options, i, &gpus[i]);
}

void launch(const struct options *options, const struct gpu *gpu, CUstream stream) {
    if (options->graph > 0)
        CHECK(cuGraphLaunch(gpu->graph, stream));
    else
        launch_kernel(options, gpu, stream);
}

/* ---- steps ------------------------------------------------------------------- */

/* A ring of the events that end the steps in flight. */
struct flight {
    CUevent done[GPUS_MAX][INFLIGHT_MAX];
    unsigned long long launched, finished;
};

static void create_events(const struct options *options, const struct gpu *gpus,
                          struct flight *flight) {
    for (int i = options->gpus - 1; i >= 0; i--) {
        CHECK(cuCtxSetCurrent(gpus[i].context));
        for (unsigned place = 0; place < options->inflight; place++)
            CHECK(cuEventCreate(&flight->done[i][place],
                                CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING));
    }
}

static void wait_for_oldest(const struct options *options, struct flight *flight) {
    const unsigned place = (unsigned)(flight->launched % options->inflight);
    for (int i = 0; i < options->gpus; i++)
        CHECK(cuEventSynchronize(flight->done[i][place]));
    flight->finished++;
}

static void step(const struct options *options, const struct gpu *gpus, struct flight *flight) {
    const unsigned stream = (unsigned)(flight->launched % options->streams);
    if (options->inflight > 0 && flight->launched >= options->inflight)
        wait_for_oldest(options, flight);
    for (int i = 0; i < options->gpus; i++) {
        if (options->gpus > 1)
            CHECK(cuCtxSetCurrent(gpus[i].context));
        launch(options, &gpus[i], gpus[i].streams[stream]);
        if (options->inflight > 0)
            CHECK(cuEventRecord(flight->done[i][flight->launched % options->inflight],
                                gpus[i].streams[stream]));
    }
    flight->launched++;
}

static void synchronize(const struct options *options, const struct gpu *gpus) {
    for (int i = 0; i < options->gpus; i++) {
        CHECK(cuCtxSetCurrent(gpus[i].context));
        CHECK(cuCtxSynchronize());
    }
}

/* A pause when it is time for one. */
static void rest(const struct options *options, const struct gpu *gpus, unsigned long long launched,
                 unsigned long long *rested_at) {
    const double work_ms = (double)(launched - *rested_at) * options->kernel_us / 1e3;
    if (options->idle_ms == 0 || work_ms < options->busy_ms)
        return;
    synchronize(options, gpus);
    sleep_until(now() + options->idle_ms / 1e3);
    *rested_at = launched;
}

struct totals keep_busy(const struct options *options, const struct gpu *gpus, double start) {
    static struct flight flight;
    unsigned long long reported = 0;
    unsigned long long rested_at = 0;
    double last = start;
    create_events(options, gpus, &flight);
    while (!enough(options, start, flight.launched)) {
        step(options, gpus, &flight);
        const unsigned long long so_far = options->inflight > 0 ? flight.finished : flight.launched;
        const double time = now();
        if (time - last >= 1) {
            printf("{\"kernels_per_s\": %.1f}\n", (double)(so_far - reported) / (time - last));
            last = time;
            reported = so_far;
        }
        rest(options, gpus, flight.launched, &rested_at);
    }
    synchronize(options, gpus);
    return (struct totals){.kernels = flight.launched};
}
