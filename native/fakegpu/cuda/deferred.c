#include "deferred.h"

#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "host.h"
#include "transfer.h"

/* How often a value that somebody has to write is looked at. */
#define LOOK_NS UINT64_C(50000)

struct work {
    struct operation operation;
    struct CUstream_st *stream; /* the legacy one for an event after a whole context */
    struct CUctx_st *context;
    bool whole_context;
    bool running;
    uint64_t id;
    uint64_t after; /* the recording that it waits for, by its id, or 0 */
    const struct device *other;
    uint64_t number;    /* the kernel of `other` that it waits for */
    unsigned next_item; /* of operations on memory */
    uint64_t until_ns;  /* the end of a transfer that has begun */
    struct work *next;
};

unsigned deferred_count;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct work *first;
    uint64_t last_id;
    uint64_t pass;
    bool started;
} list = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- who has to wait for whom ------------------------------------------------- */

static bool is_legacy(const struct CUstream_st *stream) {
    return stream == &stream->context->legacy;
}

static bool is_blocking(const struct CUstream_st *stream) {
    return (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
}

static bool holds_stream(const struct work *work, const struct CUstream_st *stream) {
    if (work->whole_context || work->context != stream->context)
        return false;
    return work->stream == stream || (is_legacy(stream) && is_blocking(work->stream)) ||
           (is_legacy(work->stream) && is_blocking(stream));
}

/* Within one pass over the list: what was passed over holds up what follows it. */
static bool held_up(const struct work *work) {
    const struct CUctx_st *context = work->context;
    const struct CUstream_st *stream = work->stream;
    if (work->whole_context)
        return context->held_any == list.pass;
    return stream->held == list.pass ||
           (is_legacy(stream) && context->held_blocking == list.pass) ||
           (is_blocking(stream) && context->held_legacy == list.pass);
}

static void pass_over(const struct work *work) {
    struct CUctx_st *context = work->context;
    context->held_any = list.pass;
    if (work->whole_context)
        return;
    work->stream->held = list.pass;
    if (is_legacy(work->stream))
        context->held_legacy = list.pass;
    if (is_blocking(work->stream))
        context->held_blocking = list.pass;
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

static bool quiet(const struct work *work, uint64_t *wake) {
    const struct device *device = work->context->device;
    engine_enter(&driver.engine, device->gpu);
    uint64_t pending = stream_pending(work->stream);
    engine_leave(&driver.engine, device->gpu);
    return over(device, pending, wake);
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
        return work->other == work->context->device || over(work->other, work->number, wake);
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
    list.pass++;
    for (struct work *work = list.first; work != NULL; work = work->next) {
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
        engine_enter(&driver.engine, device->gpu);
        stream_busy(work->stream, work->number);
        engine_leave(&driver.engine, device->gpu);
    } else if (operation->duration_ns > 0) {
        operation_submit(work->stream, operation);
    }
}

static void drop_stream(struct CUstream_st *stream) {
    stream->deferred--;
    if (stream->unlisted && stream->deferred == 0)
        free(stream);
}

/* Takes finished work off the list, and tells who waited. Lock held. */
static void finish(struct work *work) {
    struct work **place = &list.first;
    while (*place != work)
        place = &(*place)->next;
    *place = work->next;
    if (work->operation.kind == OPERATION_RECORD) {
        uint64_t number = event_record_deferred(work->operation.event, work->id, work->stream,
                                                work->whole_context);
        for (struct work *later = work->next; later != NULL; later = later->next) {
            if (later->after == work->id) {
                later->after = 0;
                later->other = work->context->device;
                later->number = number;
            }
        }
    }
    drop_stream(work->stream);
    __atomic_sub_fetch(&deferred_count, 1, __ATOMIC_RELEASE);
    operation_clear(&work->operation);
    free(work);
    pthread_cond_broadcast(&list.changed);
}

static void after_function(void *work) {
    pthread_mutex_lock(&list.lock);
    finish(work);
    pthread_mutex_unlock(&list.lock);
}

static void wait_until(uint64_t wake_ns) {
    struct timespec wake = {(time_t)(wake_ns / 1000000000u), (long)(wake_ns % 1000000000u)};
    if (wake_ns == UINT64_MAX)
        pthread_cond_wait(&list.changed, &list.lock);
    else
        pthread_cond_timedwait(&list.changed, &list.lock, &wake);
}

static void *dispatch(void *unused) {
    (void)unused;
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
    pthread_mutex_lock(&list.lock);
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
        pthread_mutex_unlock(&list.lock);
        if (function)
            host_call(&work->operation, after_function, work);
        else
            perform(work);
        pthread_mutex_lock(&list.lock);
        if (!function)
            finish(work);
    }
    return NULL;
}

/* ---- putting it here ------------------------------------------------------------------ */

static bool start(void) {
    if (list.started)
        return true;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&list.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    list.started = driver_thread(dispatch);
    return list.started;
}

/* What an event is waited for by: its recording here, or another GPU's kernel. False where the
 * engine's own order is enough. */
static bool look_at_event(struct work *work, const struct CUstream_st *stream, CUevent event) {
    const struct device *device = event->context->device;
    engine_enter(&driver.engine, device->gpu);
    bool is_over = event_is_over(event);
    work->after = event->state == EVENT_DEFERRED ? event->work : 0;
    work->other = device;
    work->number = event->number;
    engine_leave(&driver.engine, device->gpu);
    return !is_over && (work->after != 0 || device != stream->context->device);
}

static bool any_holds(const struct CUstream_st *stream) {
    const struct work *work = list.first;
    while (work != NULL && !holds_stream(work, stream))
        work = work->next;
    return work != NULL;
}

static void append(struct work *work) {
    struct work **place = &list.first;
    while (*place != NULL)
        place = &(*place)->next;
    work->id = ++list.last_id;
    work->stream->deferred++;
    if (work->operation.kind == OPERATION_RECORD)
        event_defer(work->operation.event, work->id);
    *place = work;
    __atomic_add_fetch(&deferred_count, 1, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&list.changed);
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

static void wait_for_room(void) {
    while (__atomic_load_n(&deferred_count, __ATOMIC_RELAXED) >= QUEUE_DEPTH)
        pthread_cond_wait(&list.changed, &list.lock);
}

CUresult defer(struct CUstream_st *stream, const struct operation *operation, bool *taken) {
    struct work like = {0};
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&list.lock);
    wait_for_room();
    *taken = operation->kind == OPERATION_WAIT
                 ? look_at_event(&like, stream, operation->event)
                 : operation_needs_quiet(operation) || any_holds(stream);
    if (*taken)
        result = add(stream, operation, &like);
    pthread_mutex_unlock(&list.lock);
    return result;
}

CUresult defer_context_record(struct CUctx_st *context, CUevent event, bool *taken) {
    const struct operation record = {.kind = OPERATION_RECORD, .event = event};
    const struct work like = {.whole_context = true};
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&list.lock);
    const struct work *work = list.first;
    while (work != NULL && work->context != context)
        work = work->next;
    *taken = work != NULL;
    if (*taken)
        result = add(&context->legacy, &record, &like);
    pthread_mutex_unlock(&list.lock);
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

/* For what is here now: what comes meanwhile is not waited for. */
static void wait_for(holds_fn *holds, const void *what) {
    if (!deferred_any())
        return;
    pthread_mutex_lock(&list.lock);
    uint64_t limit = list.last_id;
    const struct work *work = list.first;
    while (work != NULL && work->id <= limit) {
        if (holds(work, what)) {
            pthread_cond_wait(&list.changed, &list.lock);
            work = list.first;
        } else {
            work = work->next;
        }
    }
    pthread_mutex_unlock(&list.lock);
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
    pthread_mutex_lock(&list.lock);
    bool holds = any_holds(stream);
    pthread_mutex_unlock(&list.lock);
    return holds;
}

/* Lock held. */
static bool holds_event(const struct CUevent_st *event) {
    const struct work *work = list.first;
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
    pthread_mutex_lock(&list.lock);
    bool holds = holds_event(event);
    pthread_mutex_unlock(&list.lock);
    return holds;
}

void deferred_wait_event(const struct CUevent_st *event) {
    if (!deferred_any())
        return;
    pthread_mutex_lock(&list.lock);
    while (holds_event(event))
        pthread_cond_wait(&list.changed, &list.lock);
    pthread_mutex_unlock(&list.lock);
}

void deferred_forget_event(const struct CUevent_st *event) {
    if (!deferred_any())
        return;
    pthread_mutex_lock(&list.lock);
    for (struct work *work = list.first; work != NULL; work = work->next)
        if (work->operation.kind == OPERATION_RECORD && work->operation.event == event)
            work->operation.event = NULL;
    pthread_mutex_unlock(&list.lock);
}

void deferred_free_stream(struct CUstream_st *stream) {
    pthread_mutex_lock(&list.lock);
    stream->unlisted = true;
    bool free_now = stream->deferred == 0;
    pthread_mutex_unlock(&list.lock);
    if (free_now)
        free(stream);
}
