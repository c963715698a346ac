/*
 * burn: keeps one GPU busy, and says how fast it goes.
 *
 *   burn [--kernel-us 1000] [--memory BYTES[K|M|G]i] [--seconds S] [--steps N]
 *        [--streams 1] [--inflight 8] [--device 0]
 *
 * Launches a kernel that spins for --kernel-us by the GPU's own clock, with
 * --inflight of them queued at a time, for --seconds or (as a training job
 * would) for --steps of them, else until it is told to stop. Prints
 * {"kernels_per_s": …} each second and a summary at the end. Only the driver
 * API is used, so it runs the same on a real GPU; the fake one reads the
 * kernel's argument instead of running it.
 *
 * Exit code: 0 done, 1 the GPU said no (out of memory, …), 2 wrong use.
 */
#include <cuda.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STREAMS_MAX  64
#define INFLIGHT_MAX 1024

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

struct options {
    uint32_t kernel_us;
    unsigned long long memory;
    double seconds;
    unsigned long long steps;
    unsigned streams;
    unsigned inflight;
    int device;
};

static volatile sig_atomic_t stopped;

static void stop(int signal) {
    (void)signal;
    stopped = 1;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* ---- failing ------------------------------------------------------------- */

static void check(CUresult result, const char *call) {
    const char *name = NULL;
    const char *text = NULL;
    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorName(result, &name);
    cuGetErrorString(result, &text);
    printf("{\"error\": \"%s\", \"call\": \"%s\", \"message\": \"%s\"}\n",
           name == NULL ? "unknown" : name, call, text == NULL ? "" : text);
    exit(1);
}

#define CHECK(call) check(call, #call)

static void wrong_use(const char *what) {
    fprintf(stderr,
            "burn: %s\n"
            "usage: burn [--kernel-us 1000] [--memory BYTES, 512Mi, 4Gi] [--seconds S]\n"
            "            [--steps N] [--streams 1..64] [--inflight 1..1024] [--device 0]\n",
            what);
    exit(2);
}

/* ---- options --------------------------------------------------------------- */

static unsigned long long number(const char *option, const char *text, unsigned long long least,
                                 unsigned long long most) {
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (end != text && strchr("KMG", *end) != NULL && *end != '\0') {
        value <<= *end == 'K' ? 10 : *end == 'M' ? 20 : 30;
        end += end[1] == 'i' ? 2 : 1;
    }
    if (end == text || *end != '\0' || *text == '-' || value < least || value > most)
        wrong_use(option);
    return value;
}

static void parse(int count, char **arguments, struct options *options) {
    *options = (struct options){.kernel_us = 1000, .streams = 1, .inflight = 8};
    for (int i = 1; i < count; i += 2) {
        const char *option = arguments[i];
        const char *value = i + 1 < count ? arguments[i + 1] : NULL;
        char *end;
        if (value == NULL)
            wrong_use(option);
        if (strcmp(option, "--kernel-us") == 0) {
            options->kernel_us = (uint32_t)number(option, value, 1, 60000000);
        } else if (strcmp(option, "--memory") == 0) {
            options->memory = number(option, value, 0, UINT64_MAX);
        } else if (strcmp(option, "--seconds") == 0) {
            options->seconds = strtod(value, &end);
            if (end == value || *end != '\0' || !(options->seconds > 0))
                wrong_use(option);
        } else if (strcmp(option, "--steps") == 0) {
            options->steps = number(option, value, 1, UINT64_MAX);
        } else if (strcmp(option, "--streams") == 0) {
            options->streams = (unsigned)number(option, value, 1, STREAMS_MAX);
        } else if (strcmp(option, "--inflight") == 0) {
            options->inflight = (unsigned)number(option, value, 1, INFLIGHT_MAX);
        } else if (strcmp(option, "--device") == 0) {
            options->device = (int)number(option, value, 0, 1024);
        } else {
            wrong_use(option);
        }
    }
}

/* ---- the work ----------------------------------------------------------------- */

static CUfunction prepare(const struct options *options) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction spin;
    CUdeviceptr memory;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, options->device));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    if (options->memory > 0) {
        CHECK(cuMemAlloc(&memory, (size_t)options->memory));
        CHECK(cuMemsetD8(memory, 0, (size_t)options->memory));
    }
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&spin, module, "kubeshare_spin_us"));
    return spin;
}

static bool enough(const struct options *options, double start, unsigned long long launched) {
    return stopped || (options->steps > 0 && launched >= options->steps) ||
           (options->seconds > 0 && now() - start >= options->seconds);
}

static unsigned long long run(const struct options *options, CUfunction spin, double start) {
    CUstream stream[STREAMS_MAX];
    CUevent done[INFLIGHT_MAX];
    uint32_t microseconds = options->kernel_us;
    void *parameters[] = {&microseconds};
    unsigned long long launched = 0;
    unsigned long long finished = 0;
    unsigned long long reported = 0;
    double last = start;
    for (unsigned i = 0; i < options->streams; i++)
        CHECK(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < options->inflight; i++)
        CHECK(cuEventCreate(&done[i], CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING));
    while (!enough(options, start, launched)) {
        unsigned place = (unsigned)(launched % options->inflight);
        CUstream mine = stream[launched % options->streams];
        if (launched >= options->inflight) {
            CHECK(cuEventSynchronize(done[place]));
            finished++;
        }
        CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, mine, parameters, NULL));
        CHECK(cuEventRecord(done[place], mine));
        launched++;
        double time = now();
        if (time - last >= 1) {
            printf("{\"kernels_per_s\": %.1f}\n", (double)(finished - reported) / (time - last));
            last = time;
            reported = finished;
        }
    }
    CHECK(cuCtxSynchronize());
    return launched;
}

int main(int count, char **arguments) {
    struct options options;
    struct sigaction action = {.sa_handler = stop};
    parse(count, arguments, &options);
    setvbuf(stdout, NULL, _IOLBF, 0);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    CUfunction spin = prepare(&options);
    double start = now();
    unsigned long long kernels = run(&options, spin, start);
    double seconds = now() - start;
    printf("{\"summary\": {\"kernels\": %llu, \"seconds\": %.3f, \"kernels_per_s\": %.1f, "
           "\"kernel_us\": %u, \"memory\": %llu}}\n",
           kernels, seconds, (double)kernels / seconds, options.kernel_us, options.memory);
    return 0;
}
