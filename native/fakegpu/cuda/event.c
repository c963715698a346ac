/* Events: the end of a kernel, with the engine's own time. */
#include <stdlib.h>

#include "pool.h"

static struct CUevent_st **place_of(struct device *device, uint64_t number) {
    return &device->pending[(number - 1) % QUEUE_DEPTH];
}

/* An event on an idle stream happens when it is recorded, else when the work before it ends. */
static void settle(struct CUevent_st *event) {
    const struct device *device = event->context->device;
    uint64_t end = engine_end_ns(&driver.engine, device->gpu, device->client, event->number);
    event->time_ns = end > event->record_ns ? end : event->record_ns;
    event->state = EVENT_DONE;
}

void settle_events(struct device *device, uint64_t number) {
    struct CUevent_st **list = place_of(device, number);
    while (*list != NULL) {
        struct CUevent_st *event = *list;
        *list = event->next;
        settle(event);
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
        settle(event);
    }
    return event->state != EVENT_PENDING;
}

static void record(struct CUevent_st *event, struct device *device, uint64_t now, uint64_t number) {
    forget(event);
    event->number = number;
    event->record_ns = event->time_ns = now;
    if (engine_completed(&driver.engine, device->gpu, device->client, number)) {
        event->state = EVENT_DONE;
        return;
    }
    struct CUevent_st **list = place_of(device, number);
    event->state = EVENT_PENDING;
    event->next = *list;
    *list = event;
}

static CUresult usable(CUevent event) {
    TRY(driver_ready());
    REQUIRE(event != NULL, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(event->context->alive, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return CUDA_SUCCESS;
}

/* ---- the API -------------------------------------------------------------- */

API cuEventCreate(CUevent *event, unsigned int flags) {
    struct CUctx_st *context;
    TRY(current_context(&context));
    REQUIRE(event != NULL &&
                (flags & ~(unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING)) == 0,
            CUDA_ERROR_INVALID_VALUE);
    struct CUevent_st *created = calloc(1, sizeof *created);
    REQUIRE(created != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    created->context = context;
    created->flags = flags;
    *event = created;
    return CUDA_SUCCESS;
}

API cuEventDestroy_v2(CUevent event) {
    TRY(driver_ready());
    REQUIRE(event != NULL, CUDA_ERROR_INVALID_HANDLE);
    uint32_t gpu = event->context->device->gpu;
    engine_enter(&driver.engine, gpu);
    forget(event);
    engine_leave(&driver.engine, gpu);
    free(event);
    return CUDA_SUCCESS;
}

API cuEventDestroy(CUevent event) {
    return cuEventDestroy_v2(event);
}

API cuEventRecord(CUevent event, CUstream handle) {
    struct CUstream_st *stream;
    TRY(usable(event));
    TRY(find_stream(handle, &stream));
    REQUIRE(event->context == stream->context, CUDA_ERROR_INVALID_HANDLE);
    struct device *device = stream->context->device;
    uint64_t now = engine_enter(&driver.engine, device->gpu);
    record(event, device, now, stream_pending(stream));
    engine_leave(&driver.engine, device->gpu);
    return CUDA_SUCCESS;
}

API cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
    REQUIRE(flags == 0, CUDA_ERROR_INVALID_VALUE);
    return cuEventRecord(event, stream);
}

API cuCtxRecordEvent(CUcontext handle, CUevent event) {
    struct CUctx_st *context;
    TRY(usable(event));
    TRY(find_context(handle, &context));
    REQUIRE(event->context == context, CUDA_ERROR_INVALID_HANDLE);
    uint64_t now = engine_enter(&driver.engine, context->device->gpu);
    record(event, context->device, now, context->last);
    engine_leave(&driver.engine, context->device->gpu);
    return CUDA_SUCCESS;
}

API cuEventQuery(CUevent event) {
    TRY(usable(event));
    uint32_t gpu = event->context->device->gpu;
    engine_enter(&driver.engine, gpu);
    bool done = is_done(event);
    engine_leave(&driver.engine, gpu);
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API cuEventSynchronize(CUevent event) {
    TRY(usable(event));
    struct device *device = event->context->device;
    engine_enter(&driver.engine, device->gpu);
    bool done = is_done(event);
    uint64_t number = event->number;
    engine_leave(&driver.engine, device->gpu);
    if (!done)
        device_wait(device, number);
    pools_synchronized(device);
    return CUDA_SUCCESS;
}

API cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
    TRY(usable(start));
    TRY(usable(end));
    REQUIRE(milliseconds != NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) == 0 &&
                start->context->device == end->context->device,
            CUDA_ERROR_INVALID_HANDLE);
    uint32_t gpu = start->context->device->gpu;
    engine_enter(&driver.engine, gpu);
    bool recorded = start->state != EVENT_NEW && end->state != EVENT_NEW;
    bool started = is_done(start);
    bool done = is_done(end) && started;
    int64_t elapsed_ns = (int64_t)(end->time_ns - start->time_ns);
    engine_leave(&driver.engine, gpu);
    REQUIRE(recorded, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(done, CUDA_ERROR_NOT_READY);
    *milliseconds = (float)((double)elapsed_ns / 1e6);
    return CUDA_SUCCESS;
}

API cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    return cuEventElapsedTime_v2(milliseconds, start, end);
}

/* ---- streams that wait for events ------------------------------------------- */

/* Another GPU's queue knows nothing of this one's kernels: there the caller waits instead. */
API cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags) {
    struct CUstream_st *stream;
    TRY(usable(event));
    TRY(find_stream(handle, &stream));
    REQUIRE(flags <= 1, CUDA_ERROR_INVALID_VALUE);
    struct device *device = stream->context->device;
    if (device != event->context->device)
        return cuEventSynchronize(event);
    engine_enter(&driver.engine, device->gpu);
    if (!is_done(event))
        stream_busy(stream, event->number);
    engine_leave(&driver.engine, device->gpu);
    return CUDA_SUCCESS;
}

/* ---- twins with the thread's own default stream ------------------------------ */

API cuEventRecord_ptsz(CUevent event, CUstream stream) {
    return cuEventRecord(event, per_thread(stream));
}

API cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags) {
    return cuEventRecordWithFlags(event, per_thread(stream), flags);
}

API cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags) {
    return cuStreamWaitEvent(per_thread(stream), event, flags);
}
