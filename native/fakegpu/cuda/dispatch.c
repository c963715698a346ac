/* Working off the list of deferred work. */
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "deferred_list.h"
#include "host.h"
#include "transfer.h"

/* How often an awaited value is read. */
#define LOOK_NS UINT64_C(50000)

/* ---- order ---------------------------------------------------------------------- */

/* Within one pass over the list: what was passed over holds up what follows it. */
static bool held_up(const struct work *work) {
    const struct CUctx_st *context = work->context;
    const struct CUstream_st *stream = work->stream;
    if (work->whole_context)
        return context->held_any == deferred.pass;
    return stream->held == deferred.pass ||
           (is_legacy(stream) && context->held_blocking == deferred.pass) ||
           (is_blocking(stream) && context->held_legacy == deferred.pass);
}

static void pass_over(const struct work *work) {
    struct CUctx_st *context = work->context;
    context->held_any = deferred.pass;
    if (work->whole_context)
        return;
    work->stream->held = deferred.pass;
    if (is_legacy(work->stream))
        context->held_legacy = deferred.pass;
    if (is_blocking(work->stream))
        context->held_blocking = deferred.pass;
}

/* ---- readiness ------------------------------------------------------------------ */

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void wake_by(uint64_t *wake, uint64_t time_ns) {
    if (time_ns < *wake)
        *wake = time_ns;
}

/* Whether a kernel has ended; else when to look again. */
static bool over(const struct device *device, uint64_t number, uint64_t *wake) {
    uint64_t at = engine_wake_ns(&driver.engine, device->gpu, device->client, number);
    if (at != 0)
        wake_by(wake, at);
    return at == 0;
}

static bool front_over(const struct device *device, const struct front *front, uint64_t *wake) {
    uint32_t queue = 0;
    while (queue < driver.queues && over(device, front->last[queue], wake))
        queue++;
    return queue == driver.queues;
}

static bool quiet(const struct work *work, uint64_t *wake) {
    const struct device *device = work->context->device;
    struct front pending;
    engine_enter(&driver.engine, device->gpu);
    stream_pending(work->stream, &pending);
    engine_leave(&driver.engine, device->gpu);
    return front_over(device, &pending, wake);
}

static bool has_room(const struct work *work, uint64_t *wake) {
    const struct device *device = work->context->device;
    const struct client *client;
    engine_enter(&driver.engine, device->gpu);
    bool room = engine_has_room(&driver.engine, device->gpu, device->client);
    client = &driver.engine.state->gpu[device->gpu].client[device->client];
    uint64_t oldest = client->completed + 1;
    engine_leave(&driver.engine, device->gpu);
    return room || over(device, oldest, wake);
}

static bool transferred(struct work *work, uint64_t *wake) {
    uint64_t now = now_ns();
    if (work->until_ns == 0)
        work->until_ns = begin_transfer(&work->operation, now);
    wake_by(wake, work->until_ns);
    return now >= work->until_ns;
}

static bool is_ready(struct work *work, uint64_t *wake) {
    const struct operation *operation = &work->operation;
    if (operation->kind == OPERATION_WAIT) {
        if (work->after != 0)
            return false;
        return work->other == work->context->device || front_over(work->other, &work->front, wake);
    }
    if (operation_needs_quiet(operation) && !quiet(work, wake))
        return false;
    if (operation->kind == OPERATION_VALUES && !values_progress(operation, &work->next_item)) {
        wake_by(wake, now_ns() + LOOK_NS);
        return false;
    }
    if (operation->transfer_ns > 0)
        return transferred(work, wake);
    return operation->duration_ns == 0 || has_room(work, wake);
}

static struct work *choose(uint64_t *wake) {
    deferred.pass++;
    for (struct work *work = deferred.first; work != NULL; work = work->next) {
        if (!work->running && !held_up(work) && is_ready(work, wake))
            return work;
        pass_over(work);
    }
    return NULL;
}

/* ---- doing it ---------------------------------------------------------------------- */

static void perform(struct work *work) {
    const struct operation *operation = &work->operation;
    const struct device *device = work->context->device;
    operation_move_bytes(operation);
    if (operation->kind == OPERATION_WAIT && work->other == device) {
        stream_follow(work->stream, &work->front);
    } else if (operation->duration_ns > 0) {
        operation_submit(work->stream, operation);
    }
}

static void drop_stream(struct CUstream_st *stream) {
    stream->deferred--;
    if (stream->unlisted && stream->deferred == 0)
        free(stream);
}

/* Takes finished work off the list, and wakes the waiting threads. Lock held. */
static void finish(struct work *work) {
    struct work **place = &deferred.first;
    while (*place != work)
        place = &(*place)->next;
    *place = work->next;
    if (work->operation.kind == OPERATION_RECORD) {
        struct front front;
        event_record_deferred(work->operation.event, work->id, work->stream, work->whole_context,
                              &front);
        for (struct work *later = work->next; later != NULL; later = later->next) {
            if (later->after == work->id) {
                later->after = 0;
                later->other = work->context->device;
                later->front = front;
            }
        }
    }
    drop_stream(work->stream);
    __atomic_sub_fetch(&deferred_count, 1, __ATOMIC_RELEASE);
    operation_clear(&work->operation);
    free(work);
    pthread_cond_broadcast(&deferred.changed);
}

static void after_function(void *work) {
    pthread_mutex_lock(&deferred.lock);
    finish(work);
    pthread_mutex_unlock(&deferred.lock);
}

static void wait_until(uint64_t wake_ns) {
    struct timespec wake = {(time_t)(wake_ns / 1000000000u), (long)(wake_ns % 1000000000u)};
    if (wake_ns == UINT64_MAX)
        pthread_cond_wait(&deferred.changed, &deferred.lock);
    else
        pthread_cond_timedwait(&deferred.changed, &deferred.lock, &wake);
}

void *deferred_dispatch(void *unused) {
    (void)unused;
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
    pthread_mutex_lock(&deferred.lock);
    for (;;) {
        uint64_t wake = UINT64_MAX;
        struct work *work = choose(&wake);
        if (work == NULL) {
            wait_until(wake);
            continue;
        }
        work->running = true;
        bool function =
            work->operation.kind == OPERATION_HOST || work->operation.kind == OPERATION_CALLBACK;
        pthread_mutex_unlock(&deferred.lock);
        if (function)
            host_call(&work->operation, after_function, work);
        else
            perform(work);
        pthread_mutex_lock(&deferred.lock);
        if (!function)
            finish(work);
    }
    return NULL;
}
