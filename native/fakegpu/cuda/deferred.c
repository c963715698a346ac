#include "deferred_list.h"

#include <stdlib.h>

#include "host.h"

unsigned deferred_count;

struct work_list deferred = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool holds_stream(const struct work *work, const struct CUstream_st *stream) {
    if (work->whole_context || work->context != stream->context)
        return false;
    return work->stream == stream || (is_legacy(stream) && is_blocking(work->stream)) ||
           (is_legacy(work->stream) && is_blocking(stream));
}

/* ---- putting it here ------------------------------------------------------------------ */

static bool start(void) {
    if (deferred.started)
        return true;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&deferred.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    deferred.started = driver_thread(deferred_dispatch);
    return deferred.started;
}

/* What an event is waited for by: its recording here, or another GPU's kernel. False where the
 * engine's own order is enough. */
static bool look_at_event(struct work *work, const struct CUstream_st *stream, CUevent event) {
    const struct device *device = event->context->device;
    engine_enter(&driver.engine, device->gpu);
    bool is_over = event_is_over(event);
    work->after = event->state == EVENT_DEFERRED ? event->work : 0;
    work->other = device;
    work->front = event->rest;
    engine_leave(&driver.engine, device->gpu);
    return !is_over && (work->after != 0 || device != stream->context->device);
}

static bool any_holds(const struct CUstream_st *stream) {
    const struct work *work = deferred.first;
    while (work != NULL && !holds_stream(work, stream))
        work = work->next;
    return work != NULL;
}

static void append(struct work *work) {
    struct work **place = &deferred.first;
    while (*place != NULL)
        place = &(*place)->next;
    work->id = ++deferred.last_id;
    work->stream->deferred++;
    if (work->operation.kind == OPERATION_RECORD)
        event_defer(work->operation.event, work->id);
    *place = work;
    __atomic_add_fetch(&deferred_count, 1, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&deferred.changed);
}

static CUresult add(struct CUstream_st *stream, const struct operation *operation,
                    const struct work *like) {
    struct work *work = malloc(sizeof *work);
    REQUIRE(work != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    *work = *like;
    work->stream = stream;
    work->context = stream->context;
    if (!start() || !operation_clone(&work->operation, operation)) {
        free(work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    append(work);
    return CUDA_SUCCESS;
}

static bool has_to_wait(const struct CUstream_st *stream, const struct operation *operation,
                        struct work *like) {
    if (operation->kind == OPERATION_WAIT)
        return look_at_event(like, stream, operation->event);
    return operation_needs_quiet(operation) || any_holds(stream);
}

CUresult defer(struct CUstream_st *stream, const struct operation *operation, bool *taken) {
    struct work like = {0};
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&deferred.lock);
    while ((*taken = has_to_wait(stream, operation, &like)) &&
           __atomic_load_n(&deferred_count, __ATOMIC_RELAXED) >= QUEUE_DEPTH)
        pthread_cond_wait(&deferred.changed, &deferred.lock);
    if (*taken)
        result = add(stream, operation, &like);
    pthread_mutex_unlock(&deferred.lock);
    return result;
}

CUresult defer_context_record(struct CUctx_st *context, CUevent event, bool *taken) {
    const struct operation record = {.kind = OPERATION_RECORD, .event = event};
    const struct work like = {.whole_context = true};
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&deferred.lock);
    const struct work *work = deferred.first;
    while (work != NULL && work->context != context)
        work = work->next;
    *taken = work != NULL;
    if (*taken)
        result = add(&context->legacy, &record, &like);
    pthread_mutex_unlock(&deferred.lock);
    return result;
}

/* ---- waiting for it --------------------------------------------------------------------- */

typedef bool holds_fn(const struct work *work, const void *what);

static bool holds_this_stream(const struct work *work, const void *stream) {
    return holds_stream(work, stream);
}

static bool is_of_context(const struct work *work, const void *context) {
    return work->context == context;
}

static bool is_of_device(const struct work *work, const void *device) {
    return work->context->device == device;
}

/* Waits for the present work, not for work that is added during the wait. */
static void wait_for(holds_fn *holds, const void *what) {
    if (!deferred_any())
        return;
    pthread_mutex_lock(&deferred.lock);
    uint64_t limit = deferred.last_id;
    const struct work *work = deferred.first;
    while (work != NULL && work->id <= limit) {
        if (holds(work, what)) {
            pthread_cond_wait(&deferred.changed, &deferred.lock);
            work = deferred.first;
        } else {
            work = work->next;
        }
    }
    pthread_mutex_unlock(&deferred.lock);
}

void deferred_wait_stream(const struct CUstream_st *stream) {
    wait_for(holds_this_stream, stream);
}

void deferred_wait_context(const struct CUctx_st *context) {
    wait_for(is_of_context, context);
}

void deferred_wait_device(const struct device *device) {
    wait_for(is_of_device, device);
}

bool deferred_holds_stream(const struct CUstream_st *stream) {
    if (!deferred_any())
        return false;
    pthread_mutex_lock(&deferred.lock);
    bool holds = any_holds(stream);
    pthread_mutex_unlock(&deferred.lock);
    return holds;
}

/* Lock held. */
static bool holds_event(const struct CUevent_st *event) {
    const struct work *work = deferred.first;
    uint32_t gpu = event->context->device->gpu;
    engine_enter(&driver.engine, gpu);
    uint64_t id = event->state == EVENT_DEFERRED ? event->work : 0;
    engine_leave(&driver.engine, gpu);
    while (work != NULL && work->id != id)
        work = work->next;
    return work != NULL;
}

bool deferred_holds_event(const struct CUevent_st *event) {
    if (!deferred_any())
        return false;
    pthread_mutex_lock(&deferred.lock);
    bool holds = holds_event(event);
    pthread_mutex_unlock(&deferred.lock);
    return holds;
}

void deferred_wait_event(const struct CUevent_st *event) {
    if (!deferred_any())
        return;
    pthread_mutex_lock(&deferred.lock);
    while (holds_event(event))
        pthread_cond_wait(&deferred.changed, &deferred.lock);
    pthread_mutex_unlock(&deferred.lock);
}

void deferred_forget_event(const struct CUevent_st *event) {
    if (!deferred_any())
        return;
    pthread_mutex_lock(&deferred.lock);
    for (struct work *work = deferred.first; work != NULL; work = work->next)
        if (work->operation.kind == OPERATION_RECORD && work->operation.event == event)
            work->operation.event = NULL;
    pthread_mutex_unlock(&deferred.lock);
}

void deferred_free_stream(struct CUstream_st *stream) {
    pthread_mutex_lock(&deferred.lock);
    stream->unlisted = true;
    bool free_now = stream->deferred == 0;
    pthread_mutex_unlock(&deferred.lock);
    if (free_now)
        free(stream);
}
