/* What the parts of burn share. */
#ifndef BURN_H
#define BURN_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define GPUS_MAX     16
#define STREAMS_MAX  64
#define INFLIGHT_MAX 1024

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
    unsigned graph; /* kernels of a graph; 0: they are launched one by one */
};

/* One GPU with its kernel ready to be launched. */
struct gpu {
    CUcontext context;
    CUfunction spin;
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

/* Puts one kernel, or a graph of them, on a stream of the current context's GPU. */
void launch(const struct options *options, const struct gpu *gpu, CUstream stream);

/* Keeps the GPUs busy until it is enough. */
struct totals keep_busy(const struct options *options, const struct gpu *gpus, double start);

/* Serves requests as they come, until it is enough. */
struct totals serve(const struct options *options, const struct gpu *gpu, double start);

#endif
