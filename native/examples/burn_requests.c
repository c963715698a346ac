/*
 * An inference server: requests come when they come, whether or not those
 * before them are done, and a request's latency runs from its arrival. One
 * thread launches, another sees the ends; between them is a ring.
 */
#include "burn.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct server {
    const struct options *options;
    CUcontext context;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    CUevent done[INFLIGHT_MAX];
    double arrived[INFLIGHT_MAX];
    unsigned long long launched, served;
    bool closed; /* no more requests come */
    double *latencies;
    size_t room;
};

/* The same arrivals in each run: splitmix64. */
static double uniform(uint64_t *state) {
    uint64_t mixed = *state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return ((double)((mixed ^ (mixed >> 31)) >> 11) + 0.5) / 9007199254740992.0;
}

static void note(struct server *server, double latency) {
    if (server->served == server->room) {
        server->room = server->room == 0 ? 1024 : 2 * server->room;
        server->latencies = realloc(server->latencies, server->room * sizeof latency);
        if (server->latencies == NULL)
            check(CUDA_ERROR_OUT_OF_MEMORY, "realloc");
    }
    server->latencies[server->served++] = latency;
}

static void *see_ends(void *argument) {
    struct server *server = argument;
    CHECK(cuCtxSetCurrent(server->context));
    pthread_mutex_lock(&server->mutex);
    for (;;) {
        while (server->served == server->launched && !server->closed)
            pthread_cond_wait(&server->changed, &server->mutex);
        if (server->served == server->launched)
            break;
        const unsigned place = (unsigned)(server->served % INFLIGHT_MAX);
        pthread_mutex_unlock(&server->mutex);
        CHECK(cuEventSynchronize(server->done[place]));
        const double latency = now() - server->arrived[place];
        pthread_mutex_lock(&server->mutex);
        note(server, latency);
        pthread_cond_signal(&server->changed);
    }
    pthread_mutex_unlock(&server->mutex);
    return NULL;
}

static void take_request(struct server *server, const struct gpu *gpu, double arrived) {
    const CUstream stream = gpu->streams[0];
    const unsigned place = (unsigned)(server->launched % INFLIGHT_MAX);
    pthread_mutex_lock(&server->mutex);
    while (server->launched - server->served == INFLIGHT_MAX)
        pthread_cond_wait(&server->changed, &server->mutex);
    pthread_mutex_unlock(&server->mutex);
    launch(server->options, gpu, stream, server->launched);
    CHECK(cuEventRecord(server->done[place], stream));
    pthread_mutex_lock(&server->mutex);
    server->arrived[place] = arrived;
    server->launched++;
    pthread_cond_signal(&server->changed);
    pthread_mutex_unlock(&server->mutex);
}

static int compare(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static struct totals summarize(const struct server *server) {
    struct totals totals = {.kernels = server->served};
    if (server->served == 0)
        return totals;
    const size_t last = (size_t)server->served - 1;
    qsort(server->latencies, last + 1, sizeof *server->latencies, compare);
    totals.p50_ms = 1e3 * server->latencies[last / 2];
    totals.p99_ms = 1e3 * server->latencies[last - last / 100];
    totals.longest_ms = 1e3 * server->latencies[last];
    return totals;
}

struct totals serve(const struct options *options, const struct gpu *gpu, double start) {
    static struct server server = {.mutex = PTHREAD_MUTEX_INITIALIZER,
                                   .changed = PTHREAD_COND_INITIALIZER};
    uint64_t state = 1;
    double arrival = start, last = start;
    unsigned long long reported = 0;
    pthread_t thread;
    server.options = options;
    server.context = gpu->context;
    for (unsigned place = 0; place < INFLIGHT_MAX; place++)
        CHECK(cuEventCreate(&server.done[place], CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING));
    if (pthread_create(&thread, NULL, see_ends, &server) != 0)
        check(CUDA_ERROR_OUT_OF_MEMORY, "pthread_create");
    while (!enough(options, start, server.launched)) {
        arrival += -log(uniform(&state)) / options->rate;
        sleep_until(arrival);
        take_request(&server, gpu, arrival);
        if (now() - last >= 1) {
            printf("{\"kernels_per_s\": %.1f}\n",
                   (double)(server.launched - reported) / (now() - last));
            last = now();
            reported = server.launched;
        }
    }
    pthread_mutex_lock(&server.mutex);
    server.closed = true;
    pthread_cond_signal(&server.changed);
    pthread_mutex_unlock(&server.mutex);
    pthread_join(thread, NULL);
    return summarize(&server);
}
