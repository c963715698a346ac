/* Streams. Each is a number: the kernel after which it is idle. */
#include <stdlib.h>

#include "capture.h"
#include "deferred.h"
#include "overhead.h"
#include "pool.h"
#include "queue.h"

CUstream per_thread(CUstream stream) {
    return stream == NULL ? CU_STREAM_PER_THREAD : stream;
}

/* ---- handles ----------------------------------------------------------- */

uint64_t this_thread(void) {
    static uint64_t threads;
    static _Thread_local uint64_t own;
    if (own == 0)
        own = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
    return own;
}

static struct CUstream_st *add_stream(struct CUctx_st *context, unsigned flags, int priority,
                                      uint64_t thread) {
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return NULL;
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->thread = thread;
    stream->queue = queue_next(context->device);
    stream->id = ++driver.last_id;
    stream->next = context->streams;
    context->streams = stream;
    return stream;
}

static struct CUstream_st *own_stream(struct CUctx_st *context) {
    uint64_t thread = this_thread();
    pthread_mutex_lock(&driver.lock);
    struct CUstream_st *stream = context->streams;
    while (stream != NULL && stream->thread != thread)
        stream = stream->next;
    if (stream == NULL)
        stream = add_stream(context, CU_STREAM_DEFAULT, 0, thread);
    pthread_mutex_unlock(&driver.lock);
    return stream;
}

CUresult find_stream(CUstream handle, struct CUstream_st **stream) {
    struct CUctx_st *context;
    TRY(driver_ready());
    if (handle != NULL && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
        REQUIRE(!__atomic_load_n(&handle->ended, __ATOMIC_RELAXED),
                CUDA_ERROR_CONTEXT_IS_DESTROYED);
        REQUIRE(context_is_alive(handle->context), CUDA_ERROR_STREAM_DETACHED);
        *stream = handle;
        return context_fault(handle->context);
    }
    TRY(current_context(&context));
    *stream = handle == CU_STREAM_PER_THREAD ? own_stream(context) : &context->legacy;
    return *stream == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* ---- progress ------------------------------------------------------------ */

/* The legacy default stream waits for every blocking one, and they for it. */
void stream_pending(const struct CUstream_st *stream, struct front *front) {
    const struct CUctx_st *context = stream->context;
    *front = (struct front){0};
    if (stream == &context->legacy) {
        *front = context->last_blocking;
        return;
    }
    if (!(stream->flags & CU_STREAM_NON_BLOCKING))
        *front = context->last_legacy;
    front_add(front, stream->queue, stream->last);
}

void stream_busy(struct CUstream_st *stream, uint64_t number) {
    struct CUctx_st *context = stream->context;
    if (number > stream->last)
        stream->last = number;
    front_add(&context->last, stream->queue, number);
    if (context->primary != NULL)
        front_add(&context->primary->last, stream->queue, number);
    if (stream == &context->legacy)
        front_add(&context->last_legacy, stream->queue, number);
    if (!(stream->flags & CU_STREAM_NON_BLOCKING))
        front_add(&context->last_blocking, stream->queue, number);
}

void device_wait(struct device *device, uint64_t number) {
    engine_wait(&driver.engine, device->gpu, device->client, number);
}

void device_wait_front(struct device *device, const struct front *front) {
    for (uint32_t queue = 0; queue < driver.queues; queue++)
        device_wait(device, front->last[queue]);
}

CUresult stream_wait(struct CUstream_st *stream) {
    struct device *device = stream->context->device;
    struct front pending;
    deferred_wait_stream(stream);
    engine_enter(&driver.engine, device->gpu);
    stream_pending(stream, &pending);
    engine_leave(&driver.engine, device->gpu);
    device_wait_front(device, &pending);
    return CUDA_SUCCESS;
}

/* A stream of the program's own, which takes memory; NULL if there is none. */
static struct CUstream_st *create_stream(struct CUctx_st *context, unsigned flags, int priority) {
    struct CUstream_st *stream = NULL;
    pthread_mutex_lock(&driver.lock);
    if (context_charge(context, stream_price())) {
        stream = add_stream(context, flags, priority, 0);
        if (stream != NULL)
            stream->charged = stream_price();
        else
            context_uncharge(context, stream_price());
    }
    pthread_mutex_unlock(&driver.lock);
    return stream;
}

/* ---- the API --------------------------------------------------------------- */

API cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority) {
    struct CUctx_st *context;
    TRY(current_context(&context));
    REQUIRE(stream != NULL && (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) == 0,
            CUDA_ERROR_INVALID_VALUE);
    *stream = create_stream(context, flags, priority);
    return *stream == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

API cuStreamCreate(CUstream *stream, unsigned int flags) {
    return cuStreamCreateWithPriority(stream, flags, 0);
}

API cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned int flags, int priority) {
    struct CUctx_st *context;
    TRY(find_living_context((CUcontext)green, &context));
    REQUIRE(stream != NULL && context->primary != NULL && flags == CU_STREAM_NON_BLOCKING,
            CUDA_ERROR_INVALID_VALUE);
    *stream = create_stream(context, flags, priority);
    return *stream == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* Its work goes on, as with the real driver. Another thread may end its context meanwhile, and the
 * stream with it. */
API cuStreamDestroy_v2(CUstream handle) {
    struct CUstream_st *stream = handle;
    REQUIRE(handle != NULL && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD,
            CUDA_ERROR_INVALID_HANDLE);
    CUresult found = find_stream(handle, &stream);
    REQUIRE(found == CUDA_SUCCESS || found == CUDA_ERROR_STREAM_DETACHED, found);
    pthread_mutex_lock(&driver.lock);
    bool ended = stream->ended;
    struct CUstream_st **place = &stream->context->streams;
    while (*place != NULL && *place != stream)
        place = &(*place)->next;
    if (*place != NULL) {
        *place = stream->next;
        context_uncharge(stream->context, stream->charged);
    }
    pthread_mutex_unlock(&driver.lock);
    REQUIRE(!ended, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    capture_lose(stream);
    deferred_free_stream(stream);
    return CUDA_SUCCESS;
}

API cuStreamSynchronize(CUstream handle) {
    struct CUstream_st *stream;
    TRY(find_stream(handle, &stream));
    TRY(progress_call(stream));
    TRY(stream_wait(stream));
    sync_slowly();
    pools_synchronized(stream->context->device);
    return context_fault(stream->context);
}

API cuStreamQuery(CUstream handle) {
    struct CUstream_st *stream;
    TRY(find_stream(handle, &stream));
    TRY(progress_call(stream));
    if (deferred_holds_stream(stream))
        return CUDA_ERROR_NOT_READY;
    struct device *device = stream->context->device;
    struct front pending;
    engine_enter(&driver.engine, device->gpu);
    stream_pending(stream, &pending);
    bool idle = front_first(&pending, device->gpu, device->client) == 0;
    engine_leave(&driver.engine, device->gpu);
    return idle ? context_fault(stream->context) : CUDA_ERROR_NOT_READY;
}

API cuStreamGetFlags(CUstream handle, unsigned int *flags) {
    struct CUstream_st *stream;
    TRY(find_stream(handle, &stream));
    REQUIRE(flags != NULL, CUDA_ERROR_INVALID_VALUE);
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

API cuStreamGetPriority(CUstream handle, int *priority) {
    struct CUstream_st *stream;
    TRY(find_stream(handle, &stream));
    REQUIRE(priority != NULL, CUDA_ERROR_INVALID_VALUE);
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

API cuStreamGetId(CUstream handle, unsigned long long *id) {
    struct CUstream_st *stream;
    TRY(find_stream(handle, &stream));
    REQUIRE(id != NULL, CUDA_ERROR_INVALID_VALUE);
    *id = stream->id;
    return CUDA_SUCCESS;
}

API cuStreamGetCtx(CUstream handle, CUcontext *context) {
    struct CUstream_st *stream;
    TRY(find_stream(handle, &stream));
    REQUIRE(context != NULL, CUDA_ERROR_INVALID_VALUE);
    *context = stream->context;
    return CUDA_SUCCESS;
}

API cuStreamGetDevice(CUstream handle, CUdevice *ordinal) {
    struct CUstream_st *stream;
    TRY(find_stream(handle, &stream));
    REQUIRE(ordinal != NULL, CUDA_ERROR_INVALID_VALUE);
    *ordinal = (CUdevice)(stream->context->device - driver.devices);
    return CUDA_SUCCESS;
}
