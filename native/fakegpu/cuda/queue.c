/*
 * A stream's way into its hardware queue. What it waits for in other queues
 * are markers there, as semaphores are on a real GPU: they hold up every
 * stream of the same queue.
 */
#include "queue.h"

#include <stdlib.h>

/* ---- which queue ----------------------------------------------------------- */

/* What is no number of queues counts as not set, as with the real driver. */
void queues_choose(void) {
    const char *asked = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    uint32_t queues = driver.engine.profile.hardware_queues;
    driver.has_hardware_queues = queues > 0;
    if (queues > 0 && asked != NULL) {
        char *end;
        long number = strtol(asked, &end, 10);
        if (end != asked && *end == '\0' && number >= 1 && number <= (long)QUEUES_MAX)
            queues = (uint32_t)number;
    }
    driver.queues = queues > 0 ? queues : 1;
}

uint32_t queue_next(struct device *device) {
    return __atomic_fetch_add(&device->streams, 1, __ATOMIC_RELAXED) % driver.queues;
}

/* ---- fronts ---------------------------------------------------------------- */

void front_add(struct front *front, uint32_t queue, uint64_t number) {
    if (number > front->last[queue])
        front->last[queue] = number;
}

void front_add_all(struct front *front, const struct front *other) {
    for (uint32_t queue = 0; queue < driver.queues; queue++)
        front_add(front, queue, other->last[queue]);
}

uint64_t front_first(struct front *front, uint32_t gpu, uint32_t client) {
    uint64_t first = 0;
    for (uint32_t queue = 0; queue < QUEUES_MAX; queue++) {
        uint64_t number = front->last[queue];
        if (number == 0)
            continue;
        if (engine_completed(&driver.engine, gpu, client, number))
            front->last[queue] = 0;
        else if (first == 0 || number < first)
            first = number;
    }
    return first;
}

uint64_t front_greatest(const struct front *front) {
    uint64_t greatest = 0;
    for (uint32_t queue = 0; queue < driver.queues; queue++)
        if (front->last[queue] > greatest)
            greatest = front->last[queue];
    return greatest;
}

/* ---- into the queue -------------------------------------------------------- */

/* Waits while the queue is full, as the real driver's launch does. */
static uint64_t submit(struct CUstream_st *stream, uint64_t duration_ns, uint64_t after) {
    struct device *device = stream->context->device;
    struct engine *engine = &driver.engine;
    engine_enter(engine, device->gpu);
    while (!engine_has_room(engine, device->gpu, device->client)) {
        uint64_t oldest = engine->state->gpu[device->gpu].client[device->client].completed + 1;
        engine_leave(engine, device->gpu);
        device_wait(device, oldest);
        engine_enter(engine, device->gpu);
    }
    settle_events(device, engine->state->gpu[device->gpu].client[device->client].submitted + 1);
    uint64_t number =
        engine_submit(engine, device->gpu, device->client, stream->queue, duration_ns, after);
    stream_busy(stream, number);
    engine_leave(engine, device->gpu);
    return number;
}

/* A marker for each queue that a front has something in and the stream does not wait for yet. What
 * stands in its own queue comes before all that follows. */
static void wait_in_queue(struct CUstream_st *stream, struct front front) {
    const struct device *device = stream->context->device;
    engine_enter(&driver.engine, device->gpu);
    front_first(&front, device->gpu, device->client);
    if (front.last[stream->queue] != 0)
        stream_busy(stream, front.last[stream->queue]);
    front.last[stream->queue] = 0;
    for (uint32_t queue = 0; queue < driver.queues; queue++)
        if (front.last[queue] <= stream->joined.last[queue])
            front.last[queue] = 0;
    engine_leave(&driver.engine, device->gpu);
    for (uint32_t queue = 0; queue < driver.queues; queue++)
        if (front.last[queue] != 0)
            submit(stream, 0, front.last[queue]);
    engine_enter(&driver.engine, device->gpu);
    front_add_all(&stream->joined, &front);
    engine_leave(&driver.engine, device->gpu);
}

void stream_follow(struct CUstream_st *stream, const struct front *front) {
    if (driver.has_hardware_queues) {
        wait_in_queue(stream, *front);
        return;
    }
    uint32_t gpu = stream->context->device->gpu;
    engine_enter(&driver.engine, gpu);
    stream_busy(stream, front->last[0]);
    engine_leave(&driver.engine, gpu);
}

/* The legacy default stream waits for every blocking one, and they for it. */
static void join(struct CUstream_st *stream) {
    struct CUctx_st *context = stream->context;
    struct front front;
    if (!driver.has_hardware_queues || (stream->flags & CU_STREAM_NON_BLOCKING) != 0)
        return;
    engine_enter(&driver.engine, context->device->gpu);
    front = stream == &context->legacy ? context->last_blocking : context->last_legacy;
    engine_leave(&driver.engine, context->device->gpu);
    wait_in_queue(stream, front);
}

uint64_t stream_submit(struct CUstream_st *stream, uint64_t duration_ns) {
    join(stream);
    return submit(stream, duration_ns, 0);
}

uint64_t stream_mark(struct CUstream_st *stream) {
    return stream_submit(stream, 0);
}
