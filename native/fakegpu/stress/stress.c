/*
 * stress: many threads at everything at once, for the sanitizers.
 *
 *   stress [THREADS] [ROUNDS]
 *
 * Each thread has streams of its own and one that all share; it launches,
 * records, waits, queries, allocates, copies, captures graphs, has functions
 * called and values waited for, makes and destroys contexts, and
 * checks what must hold whatever the others do. A second process would only
 * add what no sanitizer sees. Prints "ok"; ends with 1 at the first lie.
 */
#include <cuda.h>
#include <nvml.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stress.h"

#define BYTES 65536

static CUcontext primary;
static CUstream shared;
static CUfunction spin;
static CUgraphExec everybodys;
static int rounds = 200;

void require(int holds, const char *what, const char *file, int line) {
    if (holds)
        return;
    fprintf(stderr, "%s:%d: %s\n", file, line, what);
    exit(1);
}

static void launch(CUstream stream, unsigned microseconds) {
    void *parameters[] = {&microseconds};
    GOOD(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

/* Work of a stream takes at least its own time between two events of that stream. */
static void time_work(CUstream stream, CUevent start, CUevent end) {
    float milliseconds;
    GOOD(cuEventRecord(start, stream));
    launch(stream, 30);
    launch(stream, 20);
    GOOD(cuEventRecord(end, stream));
    GOOD(cuEventSynchronize(end));
    GOOD(cuEventElapsedTime(&milliseconds, start, end));
    REQUIRE(milliseconds >= 0.0499f);
    GOOD(cuEventQuery(start));
}

static void use_memory(unsigned char mark) {
    unsigned char there[64];
    unsigned char back[64];
    CUdeviceptr memory;
    size_t free_bytes, total;
    memset(there, mark, sizeof there);
    GOOD(cuMemAlloc(&memory, BYTES));
    GOOD(cuMemsetD8(memory, 0, BYTES));
    GOOD(cuMemcpyHtoD(memory + 100, there, sizeof there));
    GOOD(cuMemcpyDtoH(back, memory + 100, sizeof back));
    REQUIRE(memcmp(there, back, sizeof back) == 0);
    GOOD(cuMemGetInfo(&free_bytes, &total));
    REQUIRE(free_bytes < total);
    GOOD(cuMemFree(memory));
}

/* Its memory, its events and its stream end with it. */
static void use_a_context_of_its_own(void) {
    CUcontext own;
    CUcontext popped;
    CUdeviceptr left_behind;
    CUevent event, end;
    CUstream stream;
    GOOD(cuCtxCreate(&own, NULL, 0, 0));
    GOOD(cuMemAlloc(&left_behind, 4096));
    GOOD(cuEventCreate(&event, CU_EVENT_DEFAULT));
    GOOD(cuEventCreate(&end, CU_EVENT_DEFAULT));
    GOOD(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    launch(NULL, 5);
    GOOD(cuCtxRecordEvent(own, event));
    GOOD(cuEventSynchronize(event));
    launch(stream, 5);
    GOOD(cuEventRecord(end, stream));
    GOOD(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(stream, 5);
    GOOD(cuCtxPopCurrent(&popped));
    REQUIRE(popped == own);
    GOOD(cuCtxDestroy(own));
    REQUIRE(cuCtxSetCurrent(own) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    REQUIRE(cuEventQuery(end) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    REQUIRE(cuEventDestroy(end) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    REQUIRE(cuStreamQuery(stream) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    REQUIRE(cuStreamDestroy(stream) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

#define STREAMS 32

static void *destroy_streams(void *streams) {
    for (int i = 0; i < STREAMS; i++) {
        CUresult result = cuStreamDestroy(((CUstream *)streams)[i]);
        REQUIRE(result == CUDA_SUCCESS || result == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    return NULL;
}

/* Each stream ends once, by another thread or with its context. */
static void end_streams_twice(void) {
    CUcontext own;
    CUstream streams[STREAMS];
    pthread_t other;
    GOOD(cuCtxCreate(&own, NULL, 0, 0));
    for (int i = 0; i < STREAMS; i++)
        GOOD(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    REQUIRE(pthread_create(&other, NULL, destroy_streams, streams) == 0);
    GOOD(cuCtxDestroy(own));
    REQUIRE(pthread_join(other, NULL) == 0);
}

static void count_call(void *counter) {
    __atomic_add_fetch((unsigned *)counter, 1, __ATOMIC_RELAXED);
}

/* Each thread captures in streams of its own, while others do the same and launch one graph that
 * is everybody's. */
static void use_graphs(CUstream stream) {
    unsigned calls = 0;
    CUgraph graph;
    CUgraphExec executable;
    GOOD(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch(stream, 3);
    GOOD(cuLaunchHostFunc(stream, count_call, &calls));
    launch(stream, 4);
    GOOD(cuStreamEndCapture(stream, &graph));
    GOOD(cuGraphInstantiate(&executable, graph, 0));
    GOOD(cuGraphDestroy(graph));
    for (int i = 0; i < 4; i++)
        GOOD(cuGraphLaunch(executable, stream));
    GOOD(cuGraphExecDestroy(executable));
    GOOD(cuGraphLaunch(everybodys, stream));
    GOOD(cuStreamSynchronize(stream));
    REQUIRE(__atomic_load_n(&calls, __ATOMIC_RELAXED) == 4);
}

/* Copies that take their time beside the engine, and a graph that allocates. */
static void use_copies(CUstream stream) {
    const size_t bytes = 1 << 20;
    CUdeviceptr memory, fleeting;
    CUgraph graph;
    CUgraphExec executable;
    char *here = calloc(1, bytes);
    GOOD(cuMemAlloc(&memory, bytes));
    here[bytes - 1] = 5;
    GOOD(cuMemcpyHtoDAsync(memory, here, bytes, stream));
    launch(stream, 3);
    GOOD(cuStreamSynchronize(stream));
    here[bytes - 1] = 0;
    GOOD(cuMemcpyDtoHAsync(here, memory, bytes, stream));
    GOOD(cuStreamSynchronize(stream));
    REQUIRE(here[bytes - 1] == 5);
    GOOD(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    GOOD(cuMemAllocAsync(&fleeting, 100, stream));
    GOOD(cuMemcpyDtoDAsync(fleeting, memory, 100, stream));
    GOOD(cuMemFreeAsync(fleeting, stream));
    GOOD(cuStreamEndCapture(stream, &graph));
    GOOD(cuGraphInstantiate(&executable, graph, 0));
    GOOD(cuGraphLaunch(executable, stream));
    GOOD(cuGraphLaunch(executable, stream));
    GOOD(cuStreamSynchronize(stream));
    GOOD(cuGraphExecDestroy(executable));
    GOOD(cuGraphDestroy(graph));
    GOOD(cuMemFree(memory));
    free(here);
}

/* One stream waits for a value that another one writes after a function. */
static void use_values(CUstream stream, CUevent event) {
    unsigned calls = 0;
    uint32_t cell = 0;
    CUstream other;
    GOOD(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    GOOD(cuStreamWaitValue32(stream, (CUdeviceptr)&cell, 1, CU_STREAM_WAIT_VALUE_EQ));
    launch(stream, 2);
    GOOD(cuEventRecord(event, stream));
    GOOD(cuLaunchHostFunc(other, count_call, &calls));
    GOOD(cuStreamWriteValue32(other, (CUdeviceptr)&cell, 1, 0));
    GOOD(cuStreamWaitEvent(other, event, 0));
    GOOD(cuStreamSynchronize(other));
    GOOD(cuEventQuery(event));
    REQUIRE(__atomic_load_n(&calls, __ATOMIC_RELAXED) == 1);
    GOOD(cuStreamDestroy(other));
    GOOD(cuStreamSynchronize(stream));
}

static void look(void) {
    nvmlDevice_t gpu;
    nvmlMemory_t memory;
    nvmlUtilization_t utilisation;
    GOOD(nvmlInit());
    GOOD(nvmlDeviceGetHandleByIndex(0, &gpu));
    GOOD(nvmlDeviceGetMemoryInfo(gpu, &memory));
    GOOD(nvmlDeviceGetUtilizationRates(gpu, &utilisation));
    REQUIRE(memory.total == memory.used + memory.free && utilisation.gpu <= 100);
    GOOD(nvmlShutdown());
}

static void *work(void *argument) {
    unsigned char mark = (unsigned char)(size_t)argument;
    CUstream stream;
    CUevent start, end, marker;
    GOOD(cuCtxSetCurrent(primary));
    GOOD(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    GOOD(cuEventCreate(&start, CU_EVENT_DEFAULT));
    GOOD(cuEventCreate(&end, CU_EVENT_DEFAULT));
    GOOD(cuEventCreate(&marker, CU_EVENT_DISABLE_TIMING));
    for (int round = 0; round < rounds; round++) {
        time_work(stream, start, end);
        launch(shared, 2);
        launch(CU_STREAM_PER_THREAD, 2);
        GOOD(cuEventRecord(marker, shared));
        GOOD(cuStreamWaitEvent(stream, marker, 0));
        GOOD(cuStreamSynchronize(stream));
        GOOD(cuEventQuery(marker));
        use_memory(mark);
        if (round % 4 == 0)
            use_all_memory(stream, mark);
        if (round % 16 == 0) {
            use_a_context_of_its_own();
            end_streams_twice();
            use_graphs(stream);
            use_values(stream, marker);
            use_copies(stream);
            look();
        }
    }
    GOOD(cuEventDestroy(marker));
    GOOD(cuEventDestroy(end));
    GOOD(cuEventDestroy(start));
    GOOD(cuStreamDestroy(stream));
    return NULL;
}

static void *fill_the_queue(void *argument) {
    (void)argument;
    GOOD(cuCtxSetCurrent(primary));
    for (int i = 0; i < 3000; i++)
        launch(shared, 1);
    GOOD(cuStreamSynchronize(shared));
    return NULL;
}

static void make_everybodys(void) {
    CUgraph graph;
    GOOD(cuStreamBeginCapture(shared, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch(shared, 5);
    launch(shared, 5);
    GOOD(cuStreamEndCapture(shared, &graph));
    GOOD(cuGraphInstantiate(&everybodys, graph, 0));
    GOOD(cuGraphDestroy(graph));
}

int main(int count, char **arguments) {
    unsigned threads = count > 1 ? (unsigned)atoi(arguments[1]) : 4;
    pthread_t thread[64];
    pthread_t filler;
    CUmodule module;
    size_t free_bytes, total;
    REQUIRE(threads >= 1 && threads <= 64);
    if (count > 2)
        rounds = atoi(arguments[2]);
    GOOD(cuInit(0));
    GOOD(cuDevicePrimaryCtxRetain(&primary, 0));
    GOOD(cuCtxSetCurrent(primary));
    GOOD(cuModuleLoadData(&module, "any image"));
    GOOD(cuModuleGetFunction(&spin, module, "kubeshare_spin_us"));
    GOOD(cuStreamCreate(&shared, CU_STREAM_NON_BLOCKING));
    make_everybodys();
    pthread_create(&filler, NULL, fill_the_queue, NULL);
    for (unsigned i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, work, (void *)(size_t)(i + 1));
    for (unsigned i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    pthread_join(filler, NULL);
    GOOD(cuCtxSynchronize());
    GOOD(cuDeviceGraphMemTrim(0));
    GOOD(cuMemGetInfo(&free_bytes, &total));
    REQUIRE(free_bytes == total);
    GOOD(cuGraphExecDestroy(everybodys));
    GOOD(cuStreamDestroy(shared));
    GOOD(cuModuleUnload(module));
    GOOD(cuDevicePrimaryCtxRelease(0));
    puts("ok");
    return 0;
}
