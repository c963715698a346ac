/* Events: the end of a kernel, with the engine's own time. */
#include <stdlib.h>

#include "capture.h"
#include "deferred.h"
#include "ipc_event.h"
#include "pool.h"
#include "queue.h"

static struct CUevent_st **place_of(struct device *device, uint64_t number) {
    return &device->pending[(number - 1) % QUEUE_DEPTH];
}

static void list(struct CUevent_st *event) {
    struct CUevent_st **place = place_of(event->context->device, event->number);
    event->state = EVENT_PENDING;
    event->next = *place;
    *place = event;
}

/* Has an event wait for the first kernel of what is left; one on an idle stream happens when it is
 * recorded, else when the last work before it ends. */
static void go_on(struct CUevent_st *event) {
    const struct device *device = event->context->device;
    for (uint32_t queue = 0; queue < driver.queues; queue++) {
        uint64_t number = event->rest.last[queue];
        if (number == 0 || !engine_completed(&driver.engine, device->gpu, device->client, number))
            continue;
        uint64_t end = engine_end_ns(&driver.engine, device->gpu, device->client, number);
        if (end > event->time_ns)
            event->time_ns = end;
    }
    event->number = front_first(&event->rest, device->gpu, device->client);
    event->state = EVENT_DONE;
    if (event->number != 0)
        list(event);
}

/* What comes after the first kernel has its place until that one's is used again. */
void settle_events(struct device *device, uint64_t number) {
    struct CUevent_st **events = place_of(device, number);
    while (*events != NULL) {
        struct CUevent_st *event = *events;
        *events = event->next;
        go_on(event);
    }
}

static void forget(struct CUevent_st *event) {
    if (event->state != EVENT_PENDING)
        return;
    struct CUevent_st **place = place_of(event->context->device, event->number);
    while (*place != event)
        place = &(*place)->next;
    *place = event->next;
}

static bool is_done(struct CUevent_st *event) {
    const struct device *device = event->context->device;
    if (event->state == EVENT_PENDING &&
        engine_completed(&driver.engine, device->gpu, device->client, event->number)) {
        forget(event);
        go_on(event);
    }
    return event->state != EVENT_PENDING;
}

bool event_is_over(struct CUevent_st *event) {
    if (event->shared != NULL)
        return ipc_event_is_over(event);
    return event->state != EVENT_DEFERRED && is_done(event);
}

/* After what has ended already it happens when it is recorded. */
static void record(struct CUevent_st *event, const struct device *device, uint64_t now,
                   const struct front *front) {
    forget(event);
    event->rest = *front;
    event->record_ns = event->time_ns = now;
    if (event->shared != NULL)
        ipc_event_recorded(event);
    event->number = front_first(&event->rest, device->gpu, device->client);
    event->state = EVENT_DONE;
    if (event->number != 0)
        list(event);
}

/* With hardware queues an event stands in the queue of its stream. */
static void reach(struct CUstream_st *stream, struct front *front) {
    const struct device *device = stream->context->device;
    if (driver.has_hardware_queues) {
        *front = (struct front){0};
        front->last[stream->queue] = stream_mark(stream);
        return;
    }
    engine_enter(&driver.engine, device->gpu);
    stream_pending(stream, front);
    engine_leave(&driver.engine, device->gpu);
}

void event_record(struct CUevent_st *event, struct CUstream_st *stream) {
    struct device *device = stream->context->device;
    struct front front;
    reach(stream, &front);
    uint64_t now = engine_enter(&driver.engine, device->gpu);
    record(event, device, now, &front);
    engine_leave(&driver.engine, device->gpu);
}

void event_defer(struct CUevent_st *event, uint64_t work) {
    uint32_t gpu = event->context->device->gpu;
    engine_enter(&driver.engine, gpu);
    forget(event);
    event->state = EVENT_DEFERRED;
    if (event->shared != NULL)
        ipc_event_deferred(event);
    event->work = work;
    engine_leave(&driver.engine, gpu);
}

void event_record_deferred(struct CUevent_st *event, uint64_t work, struct CUstream_st *stream,
                           bool whole_context, struct front *front) {
    struct device *device = stream->context->device;
    if (!whole_context)
        reach(stream, front);
    uint64_t now = engine_enter(&driver.engine, device->gpu);
    if (whole_context)
        *front = stream->context->last;
    if (event != NULL && event->state == EVENT_DEFERRED && event->work == work)
        record(event, device, now, front);
    engine_leave(&driver.engine, device->gpu);
}

CUresult event_hold_up(struct CUevent_st *event, struct CUstream_st *stream) {
    struct front front = {0};
    uint32_t gpu = event->context->device->gpu;
    engine_enter(&driver.engine, gpu);
    if (event->state != EVENT_DEFERRED && !is_done(event))
        front = event->rest;
    engine_leave(&driver.engine, gpu);
    stream_follow(stream, &front);
    return CUDA_SUCCESS;
}

CUresult event_lives(const struct CUevent_st *event) {
    REQUIRE(event != NULL, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(!__atomic_load_n(&event->ended, __ATOMIC_RELAXED) && context_is_alive(event->context),
            CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return CUDA_SUCCESS;
}

static CUresult usable(CUevent event) {
    TRY(driver_ready());
    TRY(event_lives(event));
    return context_fault(event->context);
}

/* ---- beginning and end ------------------------------------------------------- */

void event_list(struct CUevent_st *event) {
    struct CUctx_st *context = event->context;
    event->later = context->events;
    event->place = &context->events;
    if (event->later != NULL)
        event->later->place = &event->later;
    context->events = event;
}

void event_unlist(struct CUevent_st *event) {
    *event->place = event->later;
    if (event->later != NULL)
        event->later->place = event->place;
}

void event_clear(struct CUevent_st *event) {
    deferred_forget_event(event);
    uint32_t gpu = event->context->device->gpu;
    engine_enter(&driver.engine, gpu);
    forget(event);
    engine_leave(&driver.engine, gpu);
    ipc_event_end(event);
    free(event->tips.node);
    event->tips = (struct node_set){0};
}

/* ---- the API -------------------------------------------------------------- */

API cuEventCreate(CUevent *event, unsigned int flags) {
    struct CUctx_st *context;
    TRY(current_context(&context));
    REQUIRE(event != NULL &&
                (flags & ~(unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING |
                                     CU_EVENT_INTERPROCESS)) == 0 &&
                ((flags & CU_EVENT_INTERPROCESS) == 0 || (flags & CU_EVENT_DISABLE_TIMING) != 0),
            CUDA_ERROR_INVALID_VALUE);
    struct CUevent_st *created = calloc(1, sizeof *created);
    REQUIRE(created != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    created->context = context;
    created->flags = flags;
    pthread_mutex_lock(&driver.lock);
    event_list(created);
    pthread_mutex_unlock(&driver.lock);
    *event = created;
    return CUDA_SUCCESS;
}

API cuEventDestroy_v2(CUevent event) {
    TRY(driver_ready());
    REQUIRE(event != NULL, CUDA_ERROR_INVALID_HANDLE);
    pthread_mutex_lock(&driver.lock);
    bool ended = event->ended;
    if (!ended)
        event_unlist(event);
    pthread_mutex_unlock(&driver.lock);
    REQUIRE(!ended, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    event_clear(event);
    free(event);
    return CUDA_SUCCESS;
}

API cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned int flags) {
    struct CUstream_st *stream;
    TRY(usable(event));
    TRY(find_stream(handle, &stream));
    call_costs(&driver.engine.profile.costs.event_record, event->context);
    REQUIRE(flags <= CU_EVENT_RECORD_EXTERNAL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(event->context == stream->context, CUDA_ERROR_INVALID_HANDLE);
    const struct operation record = {.kind = OPERATION_RECORD, .event = event};
    if (flags == CU_EVENT_RECORD_EXTERNAL)
        return stream_do(stream, &record);
    bool captured = false;
    TRY(capture_record(event, stream, &captured));
    return captured ? CUDA_SUCCESS : stream_do_now(stream, &record);
}

API cuEventRecord(CUevent event, CUstream stream) {
    return cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT);
}

static CUresult record_behind_all(struct CUctx_st *context, CUevent event) {
    bool deferred = false;
    TRY(whole_context_call(context));
    capture_forget(event);
    if (deferred_any())
        TRY(defer_context_record(context, event, &deferred));
    if (deferred)
        return CUDA_SUCCESS;
    uint64_t now = engine_enter(&driver.engine, context->device->gpu);
    record(event, context->device, now, &context->last);
    engine_leave(&driver.engine, context->device->gpu);
    return CUDA_SUCCESS;
}

API cuCtxRecordEvent(CUcontext handle, CUevent event) {
    struct CUctx_st *context;
    TRY(usable(event));
    TRY(find_context(handle, &context));
    call_costs(&driver.engine.profile.costs.event_record, context);
    REQUIRE(event->context == context, CUDA_ERROR_INVALID_HANDLE);
    return record_behind_all(context, event);
}

API cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event) {
    struct CUctx_st *context;
    TRY(usable(event));
    TRY(find_living_context((CUcontext)green, &context));
    call_costs(&driver.engine.profile.costs.event_record, context);
    REQUIRE(context->primary != NULL, CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(owning_context(event->context) == context->primary, CUDA_ERROR_INVALID_HANDLE);
    return record_behind_all(context, event);
}

API cuEventQuery(CUevent event) {
    TRY(usable(event));
    call_costs(&driver.engine.profile.costs.event_query, event->context);
    TRY(event_call(event));
    if (deferred_holds_event(event))
        return CUDA_ERROR_NOT_READY;
    uint32_t gpu = event->context->device->gpu;
    engine_enter(&driver.engine, gpu);
    bool done = event_is_over(event);
    engine_leave(&driver.engine, gpu);
    return done ? context_fault(event->context) : CUDA_ERROR_NOT_READY;
}

API cuEventSynchronize(CUevent event) {
    TRY(usable(event));
    TRY(event_call(event));
    deferred_wait_event(event);
    struct device *device = event->context->device;
    engine_enter(&driver.engine, device->gpu);
    bool done = event_is_over(event);
    struct front rest = event->rest;
    engine_leave(&driver.engine, device->gpu);
    if (!done && event->shared != NULL)
        ipc_event_wait(event);
    else if (!done)
        device_wait_front(device, &rest);
    sync_slowly();
    pools_synchronized(device);
    return context_fault(event->context);
}

API cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
    TRY(usable(start));
    TRY(usable(end));
    REQUIRE(!capture_holds(start) && !capture_holds(end), CUDA_ERROR_CAPTURED_EVENT);
    REQUIRE(milliseconds != NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) == 0 &&
                start->context->device == end->context->device,
            CUDA_ERROR_INVALID_HANDLE);
    uint32_t gpu = start->context->device->gpu;
    engine_enter(&driver.engine, gpu);
    bool recorded = start->state != EVENT_NEW && end->state != EVENT_NEW;
    bool started = event_is_over(start);
    bool done = event_is_over(end) && started;
    int64_t elapsed_ns = (int64_t)(end->time_ns - start->time_ns);
    engine_leave(&driver.engine, gpu);
    REQUIRE(recorded, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(done, CUDA_ERROR_NOT_READY);
    *milliseconds = (float)((double)elapsed_ns / 1e6);
    return CUDA_SUCCESS;
}

/* ---- streams that wait for events ------------------------------------------- */

API cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags) {
    struct CUstream_st *stream;
    TRY(usable(event));
    TRY(find_stream(handle, &stream));
    REQUIRE(flags <= CU_EVENT_WAIT_EXTERNAL, CUDA_ERROR_INVALID_VALUE);
    const struct operation wait = {.kind = OPERATION_WAIT, .event = event};
    if (flags == CU_EVENT_WAIT_EXTERNAL)
        return stream_do(stream, &wait);
    bool captured = false;
    TRY(capture_wait(stream, event, &captured));
    /* Another process's kernel is in no queue that the stream could stand in: the caller waits. */
    if (!captured && event->shared != NULL) {
        ipc_event_wait(event);
        return CUDA_SUCCESS;
    }
    return captured ? CUDA_SUCCESS : stream_do_now(stream, &wait);
}

/* The streams of a context as they are now. */
static size_t list_streams(struct CUctx_st *context, struct CUstream_st ***streams) {
    size_t count = 1;
    pthread_mutex_lock(&driver.lock);
    for (struct CUstream_st *stream = context->streams; stream != NULL; stream = stream->next)
        count++;
    *streams = malloc(count * sizeof **streams);
    if (*streams == NULL)
        count = 0;
    struct CUstream_st *stream = &context->legacy;
    for (size_t i = 0; i < count; i++) {
        (*streams)[i] = stream;
        stream = i == 0 ? context->streams : stream->next;
    }
    pthread_mutex_unlock(&driver.lock);
    return count;
}

API cuCtxWaitEvent(CUcontext handle, CUevent event) {
    struct CUctx_st *context;
    struct CUstream_st **streams;
    TRY(usable(event));
    TRY(find_context(handle, &context));
    TRY(whole_context_call(context));
    const struct operation wait = {.kind = OPERATION_WAIT, .event = event};
    size_t count = list_streams(context, &streams);
    CUresult result = count == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = stream_do_now(streams[i], &wait);
    free(streams);
    return result;
}
