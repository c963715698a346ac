/* GPUs made ready, and a kernel launched on them again and again. */
#include "burn.h"

#include <stdio.h>

static void capture(const struct options *options, struct gpu *gpu) {
    CUgraph graph;
    CHECK(cuStreamBeginCapture(gpu->streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (unsigned i = 0; i < options->graph; i++)
        launch_kernel(options, gpu, gpu->streams[0], 0);
    CHECK(cuStreamEndCapture(gpu->streams[0], &graph));
    CHECK(cuGraphInstantiate(&gpu->graph, graph, 0));
    CHECK(cuGraphDestroy(graph));
}

static void prepare_gpu(const struct options *options, int index, struct gpu *gpu) {
    CUdevice device;
    CUdeviceptr memory;
    CHECK(cuDeviceGet(&device, options->device + index));
    CHECK(cuDevicePrimaryCtxRetain(&gpu->context, device));
    CHECK(cuCtxSetCurrent(gpu->context));
    if (options->memory > 0) {
        CHECK(cuMemAlloc(&memory, (size_t)options->memory));
        CHECK(cuMemsetD8(memory, 0, (size_t)options->memory));
    }
    load_kernels(options, device, gpu);
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

void launch(const struct options *options, const struct gpu *gpu, CUstream stream,
            unsigned long long number) {
    if (options->graph > 0)
        CHECK(cuGraphLaunch(gpu->graph, stream));
    else
        launch_kernel(options, gpu, stream, number);
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
        launch(options, &gpus[i], gpus[i].streams[stream], flight->launched);
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
    write_stamps(options, &gpus[0], flight.launched);
    return (struct totals){.kernels = flight.launched};
}
