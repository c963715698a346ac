/*
 * burn: keeps GPUs busy, and reports how fast they are.
 *
 *   burn [--kernel-us 1000] [--memory BYTES[K|M|G]i] [--seconds S] [--steps N]
 *        [--streams 1] [--inflight 8 | --sync | --no-sync] [--device 0] [--gpus 1]
 *        [--graph N] [--busy-ms B --idle-ms I] [--rate R]
 *        [--work ROUNDS [--stamps FILE]] | --calibrate
 *
 * Launches a kernel that spins for --kernel-us by the GPU's own clock, with
 * --inflight of them queued at a time, for --seconds or (as a training job
 * would) for --steps of them, else until a signal stops it. Prints
 * {"kernels_per_s": …} each second and a summary at the end. Only the driver
 * API is used, so it runs the same on a real GPU; the fake one reads the
 * kernel's argument instead of running it.
 *
 *   --sync     waits for each kernel before the next: --inflight 1
 *   --no-sync  never waits: the driver's launch queue is full all the time
 *   --gpus N   each step is a kernel on each of N GPUs from --device on, launched in turn, and
 *              done when all of them are, as that of a data-parallel training job
 *   --graph N  each launch is that of a graph of N kernels, one after another
 *   --busy-ms B --idle-ms I
 *              works until it has launched B milliseconds of kernels, however long that takes,
 *              then pauses for I, again and again
 *   --calibrate
 *              prints {"work": ROUNDS}, the rounds of arithmetic that the GPU does in a microsecond
 *   --work ROUNDS
 *              kernels that do as many rounds as the GPU, when it has nothing else to do, does in
 *              --kernel-us, on all of its multiprocessors: two at once take twice the time. A
 *              kernel that waits for the clock would end in time beside any other
 *   --stamps FILE
 *              writes there when each of these kernels began and ended, by the GPU's own clock
 *   --rate R   an inference server: R requests a second, as a Poisson process, of a kernel each;
 *              the summary has their latencies from arrival to end
 *
 * Exit code: 0 done, 1 the GPU said no (out of memory, …), 2 wrong use.
 */
#include "burn.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static volatile sig_atomic_t stopped;

static void stop(int signal) {
    (void)signal;
    stopped = 1;
}

double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

void sleep_until(double time) {
    const struct timespec until = {.tv_sec = (time_t)time,
                                   .tv_nsec = (long)((time - (double)(time_t)time) * 1e9)};
    while (!stopped && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

bool enough(const struct options *options, double start, unsigned long long launched) {
    return stopped || (options->steps > 0 && launched >= options->steps) ||
           (options->seconds > 0 && now() - start >= options->seconds);
}

void check(CUresult result, const char *call) {
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

/* ---- options --------------------------------------------------------------- */

static void wrong_use(const char *what) {
    fprintf(stderr,
            "burn: %s\n"
            "usage: burn [--kernel-us 1000] [--memory BYTES, 512Mi, 4Gi] [--seconds S]\n"
            "            [--steps N] [--streams 1..64] [--inflight 1..1024 | --sync | --no-sync]\n"
            "            [--device 0] [--gpus 1..16] [--graph 1..100000]\n"
            "            [--busy-ms B --idle-ms I] [--rate R]\n"
            "            [--work ROUNDS [--stamps FILE]] | --calibrate\n",
            what);
    exit(2);
}

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

static double positive(const char *option, const char *text) {
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value > 0))
        wrong_use(option);
    return value;
}

static bool take_flag(struct options *options, const char *option) {
    if (strcmp(option, "--sync") == 0)
        options->inflight = 1;
    else if (strcmp(option, "--no-sync") == 0)
        options->inflight = 0;
    else if (strcmp(option, "--calibrate") == 0)
        options->calibrates = true;
    else
        return false;
    return true;
}

static void take_value(struct options *options, const char *option, const char *value) {
    if (strcmp(option, "--kernel-us") == 0)
        options->kernel_us = (uint32_t)number(option, value, 1, 60000000);
    else if (strcmp(option, "--memory") == 0)
        options->memory = number(option, value, 0, UINT64_MAX);
    else if (strcmp(option, "--seconds") == 0)
        options->seconds = positive(option, value);
    else if (strcmp(option, "--steps") == 0)
        options->steps = number(option, value, 1, UINT64_MAX);
    else if (strcmp(option, "--streams") == 0)
        options->streams = (unsigned)number(option, value, 1, STREAMS_MAX);
    else if (strcmp(option, "--inflight") == 0)
        options->inflight = (unsigned)number(option, value, 1, INFLIGHT_MAX);
    else if (strcmp(option, "--device") == 0)
        options->device = (int)number(option, value, 0, 1024);
    else if (strcmp(option, "--gpus") == 0)
        options->gpus = (int)number(option, value, 1, GPUS_MAX);
    else if (strcmp(option, "--graph") == 0)
        options->graph = (unsigned)number(option, value, 1, 100000);
    else if (strcmp(option, "--busy-ms") == 0)
        options->busy_ms = positive(option, value);
    else if (strcmp(option, "--idle-ms") == 0)
        options->idle_ms = positive(option, value);
    else if (strcmp(option, "--rate") == 0)
        options->rate = positive(option, value);
    else if (strcmp(option, "--work") == 0)
        options->work = positive(option, value);
    else if (strcmp(option, "--stamps") == 0)
        options->stamps = value;
    else
        wrong_use(option);
}

static void parse(int count, char **arguments, struct options *options) {
    *options = (struct options){.kernel_us = 1000, .streams = 1, .inflight = 8, .gpus = 1};
    for (int i = 1; i < count; i++) {
        if (take_flag(options, arguments[i]))
            continue;
        if (i + 1 == count)
            wrong_use(arguments[i]);
        take_value(options, arguments[i], arguments[i + 1]);
        i++;
    }
    if ((options->busy_ms > 0) != (options->idle_ms > 0))
        wrong_use("--busy-ms and --idle-ms come together");
    if (options->rate > 0 && (options->gpus > 1 || options->idle_ms > 0))
        wrong_use("--rate goes with one GPU, and without pauses");
    if (options->stamps != NULL && (options->work == 0 || options->rate > 0 || options->graph > 0))
        wrong_use("--stamps goes with --work, and without --rate and --graph");
}

static void print_summary(const struct options *options, const struct totals *totals,
                          double seconds) {
    printf("{\"summary\": {\"kernels\": %llu, \"seconds\": %.3f, \"kernels_per_s\": %.1f, "
           "\"kernel_us\": %u, \"memory\": %llu",
           totals->kernels, seconds, (double)totals->kernels / seconds, options->kernel_us,
           options->memory);
    if (options->rate > 0)
        printf(", \"rate\": %g, \"latency_ms\": {\"p50\": %.3f, \"p99\": %.3f, \"max\": %.3f}",
               options->rate, totals->p50_ms, totals->p99_ms, totals->longest_ms);
    printf("}}\n");
}

int main(int count, char **arguments) {
    static struct gpu gpus[GPUS_MAX];
    struct options options;
    struct sigaction action = {.sa_handler = stop};
    parse(count, arguments, &options);
    setvbuf(stdout, NULL, _IOLBF, 0);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    prepare(&options, gpus);
    if (options.calibrates) {
        printf("{\"work\": %.6f}\n", calibrate(&gpus[0]));
        return 0;
    }
    const double start = now();
    struct totals totals =
        options.rate > 0 ? serve(&options, gpus, start) : keep_busy(&options, gpus, start);
    totals.kernels *= options.graph > 0 ? options.graph : 1;
    print_summary(&options, &totals, now() - start);
    return 0;
}
