/* What the parts of burn share. */
#ifndef BURN_H
#define BURN_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define GPUS_MAX     16
#define STREAMS_MAX  64
#define INFLIGHT_MAX 1024
#define STAMPS_MAX   (1 << 18) /* kernels of which it is kept when they ran */

struct options {
    uint32_t kernel_us;
    unsigned long long memory;
    double seconds;
    unsigned long long steps;
    unsigned streams;
    unsigned inflight; /* 0: nothing is ever waited for */
    double rate;       /* requests a second; 0: not a server */
    double busy_ms, idle_ms;
    int device;
    int gpus;
    unsigned graph;     /* kernels of a graph; 0: they are launched one by one */
    double work;        /* rounds that the GPU does in a microsecond; 0: kernels wait instead */
    const char *stamps; /* a file for when kernels began and ended; NULL: nobody asks */
    bool calibrates;
};

/* One GPU with its kernel ready to be launched. */
struct gpu {
    CUcontext context;
    CUfunction spin, work;
    unsigned blocks; /* of WORK_THREADS each, that the GPU has room for at a time */
    CUdeviceptr stamps;
    CUgraphExec graph;
    CUstream streams[STREAMS_MAX];
};

/* The results for the report at the end. */
struct totals {
    unsigned long long kernels;
    double p50_ms, p99_ms, longest_ms; /* of requests */
};

/* Prints the driver's error as JSON and ends the program, unless there is none. */
void check(CUresult result, const char *call);
#define CHECK(call) check(call, #call)

/* Seconds on CLOCK_MONOTONIC. */
double now(void);

/* Returns at that time, or when a signal stops the program. */
void sleep_until(double time);

/* Whether a signal has stopped the program, or its time is over. */
bool enough(const struct options *options, double start, unsigned long long launched);

void prepare(const struct options *options, struct gpu *gpus);

/* Loads the kernels into the current context. */
void load_kernels(const struct options *options, CUdevice device, struct gpu *gpu);

/* Puts one kernel, the so-manieth of this program, on a stream of the current context's GPU. */
void launch_kernel(const struct options *options, const struct gpu *gpu, CUstream stream,
                   unsigned long long number);

/* The same, or a graph of kernels. */
void launch(const struct options *options, const struct gpu *gpu, CUstream stream,
            unsigned long long number);

/* Rounds of work that the GPU does in a microsecond when it has nothing else to do. */
double calibrate(const struct gpu *gpu);

/* Writes a line for each kernel: when it began and ended, in ns of the GPU's clock. */
void write_stamps(const struct options *options, const struct gpu *gpu, unsigned long long kernels);

/* Keeps the GPUs busy until it is enough. */
struct totals keep_busy(const struct options *options, const struct gpu *gpus, double start);

/* Serves requests as they come, until it is enough. */
struct totals serve(const struct options *options, const struct gpu *gpu, double start);

#endif
