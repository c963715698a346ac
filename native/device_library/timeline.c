/*
 * The GPU's own clock.
 *
 * A drain must report when the GPU was done, not when a thread woke up to see
 * it: on a busy machine the two differ by milliseconds, which would be charged.
 * So an event is recorded behind all work of a context, and its time is read as
 * the distance to a base event whose time on CLOCK_MONOTONIC is known. The base
 * is renewed every second (a distance is a float of milliseconds, and the two
 * clocks drift) on a stream of the library, and while the drain is under way, so
 * it takes no time of a turn. There an event completes at once however much work
 * is queued on others, unless the stream shares a hardware queue with them
 * (CUDA_DEVICE_MAX_CONNECTIONS): then the base is taken when the work has ended,
 * and the distance is read backwards.
 */
#include "timeline.h"

#include "gate/capture.h"
#include "lookup/driver_calls.h"
#include "system.h"

#define BASE_LIFETIME (KS_SECOND)
#define BASE_GOOD_ENOUGH                                                                           \
    INT64_C(20000) /* ns: a base event known as exactly needs no further attempt */
#define BASE_ATTEMPT_TIME (KS_MILLISECOND) /* an attempt that takes longer is too inexact */
#define BASE_ATTEMPTS     4

static void destroy(struct ks_timeline *timeline) {
    CUevent *const events[] = {&timeline->gathered, &timeline->end, &timeline->base[0],
                               &timeline->base[1]};
    CUstream *const own[] = {&timeline->stream, &timeline->behind};
    for (unsigned i = 0; i < KS_MARKERS; i++) {
        if (timeline->markers[i] != NULL)
            KS_DRIVER(event_destroy)(timeline->markers[i]);
        timeline->markers[i] = NULL;
    }
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        if (*events[i] != NULL)
            KS_DRIVER(event_destroy)(*events[i]);
        *events[i] = NULL;
    }
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (*own[i] != NULL)
            KS_DRIVER(stream_destroy)(*own[i]);
        *own[i] = NULL;
    }
}

static bool create_stream(CUstream *stream) {
    const bool created = KS_DRIVER(stream_create)(stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
    if (!created)
        *stream = NULL;
    return created;
}

static bool create_event(CUevent *event, unsigned flags) {
    const bool created = KS_DRIVER(event_create)(event, flags) == CUDA_SUCCESS;
    if (!created)
        *event = NULL;
    return created;
}

static bool create_events(struct ks_timeline *timeline) {
    bool created = create_event(&timeline->gathered, CU_EVENT_DISABLE_TIMING) &&
                   create_event(&timeline->end, CU_EVENT_BLOCKING_SYNC) &&
                   create_event(&timeline->base[0], CU_EVENT_DEFAULT) &&
                   create_event(&timeline->base[1], CU_EVENT_DEFAULT);
    for (unsigned i = 0; i < KS_MARKERS; i++)
        created = created && create_event(&timeline->markers[i], CU_EVENT_DEFAULT);
    return created;
}

/* They may not fit while the GPU's memory is full. Of the events none is kept then, of the streams
 * one may be; the next call tries again. */
static bool prepare(struct ks_timeline *timeline) {
    unsigned long long id = 0;
    KS_DRIVER(context_get_id)(timeline->handle, &id);
    if (!timeline->prepared || timeline->id != id) {
        *timeline = (struct ks_timeline){.handle = timeline->handle, .id = id};
        timeline->prepared = create_events(timeline);
        if (!timeline->prepared)
            destroy(timeline);
    }
    if (timeline->prepared && timeline->behind == NULL)
        create_stream(&timeline->behind);
    if (timeline->prepared && timeline->stream == NULL)
        create_stream(&timeline->stream);
    return timeline->prepared;
}

void ks_timeline_discard(struct ks_timeline *timeline) {
    if (timeline->prepared)
        destroy(timeline);
    timeline->prepared = timeline->awaits_end = timeline->lacks_end = false;
}

/* Whether no further attempt is needed, or none would get further: the event waits behind work. */
static bool attempt_base(struct ks_timeline *timeline) {
    const unsigned next = 1 - timeline->base_in_use;
    CUresult state;
    const int64_t before = ks_now();
    int64_t after;
    if (KS_DRIVER(event_record)(timeline->base[next], timeline->stream) != CUDA_SUCCESS)
        return true;
    do {
        state = KS_DRIVER(event_query)(timeline->base[next]);
        after = ks_now();
    } while (state == CUDA_ERROR_NOT_READY && after - before < BASE_ATTEMPT_TIME);
    const bool better = timeline->base_time == 0 || after - before < timeline->base_width;
    if (state == CUDA_SUCCESS && better) {
        timeline->base_in_use = next;
        timeline->base_width = after - before;
        timeline->base_time = before + timeline->base_width / 2;
    }
    return state == CUDA_ERROR_NOT_READY ||
           (timeline->base_time != 0 && timeline->base_width <= BASE_GOOD_ENOUGH);
}

static void take_base(struct ks_timeline *timeline) {
    if (timeline->stream == NULL ||
        (timeline->base_time != 0 && ks_now() - timeline->base_time < BASE_LIFETIME))
        return;
    timeline->base_width = INT64_MAX; /* any new base is better than the old one */
    for (int attempt = 0; attempt < BASE_ATTEMPTS && !attempt_base(timeline); attempt++)
        ;
}

/* ---- behind all work of a context ------------------------------------------ */

static bool is_captured(CUstream stream) {
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    return ks_is_capturing() && (KS_DRIVER(stream_is_capturing)(stream, &status) != CUDA_SUCCESS ||
                                 status != CU_STREAM_CAPTURE_STATUS_NONE);
}

/* Has the stream behind all others wait for the work of one so far. What is captured does not run,
 * and what ran before was gathered when the capture began. Another thread may have the stream join
 * a capture in between: the event may then belong to it, and is not waited for. */
static CUresult follow(const struct ks_timeline *timeline, CUstream stream, CUevent event) {
    if (is_captured(stream))
        return CUDA_SUCCESS;
    const CUresult recorded = KS_DRIVER(event_record)(event, stream);
    if (recorded != CUDA_SUCCESS || is_captured(stream))
        return recorded;
    return KS_DRIVER(stream_wait_event)(timeline->behind, event, 0);
}

/* Would invalidate the captures in that green context: while there are any, anywhere, its default
 * stream is not followed. */
static CUresult follow_green(const struct ks_timeline *timeline, CUgreenCtx green, CUevent event) {
    if (ks_is_capturing())
        return CUDA_SUCCESS;
    const CUresult recorded = KS_DRIVER(green_record_event)(green, event);
    if (recorded != CUDA_SUCCESS)
        return recorded;
    return KS_DRIVER(stream_wait_event)(timeline->behind, event, 0);
}

/* The owner is the current context. */
static CUresult follow_tracked(const struct ks_timeline *timeline, struct ks_stream *stream) {
    if (stream->event == NULL) {
        const CUresult created = KS_DRIVER(event_create)(&stream->event, CU_EVENT_DISABLE_TIMING);
        if (created != CUDA_SUCCESS) {
            stream->event = NULL;
            return created;
        }
    }
    if (stream->green != NULL)
        return follow_green(timeline, stream->green, stream->event);
    return follow(timeline, stream->handle, stream->event);
}

/* The stream, or its green context, has ended without a hooked call. */
static bool is_gone(CUresult result) {
    return result == CUDA_ERROR_STREAM_DETACHED || result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

struct gathering {
    const struct ks_timeline *timeline;
    bool has_blocking; /* streams that synchronise with the default one */
    bool covers_all;
};

/* A stream that fails keeps no other from being waited for. */
static bool gather_stream(struct ks_stream *stream, void *data) {
    struct gathering *gathering = data;
    const bool is_blocking =
        (stream->flags & CU_STREAM_NON_BLOCKING) == 0 && stream->context == stream->owner;
    if (gathering->has_blocking && is_blocking)
        return true;
    const CUresult result = follow_tracked(gathering->timeline, stream);
    if (is_gone(result))
        ks_streams_remove(stream);
    else if (result != CUDA_SUCCESS)
        gathering->covers_all = false;
    return true;
}

/* The default stream waits for all that synchronise with it, those of the threads included. It may
 * not be used while one of them is captured: then the others are gone through one by one, and of
 * the threads' own streams only the caller's has a name. */
static bool gather(struct ks_timeline *timeline) {
    struct gathering gathering = {timeline, !is_captured(NULL), true};
    if (timeline->behind == NULL)
        return false;
    const CUstream first = gathering.has_blocking ? NULL : CU_STREAM_PER_THREAD;
    if (follow(timeline, first, timeline->gathered) != CUDA_SUCCESS)
        gathering.covers_all = false;
    ks_streams_visit(timeline->handle, timeline->id, gather_stream, &gathering);
    return gathering.covers_all;
}

/* Drivers before CUDA 12.5 have no event for a whole context, and such an event would invalidate
 * every capture. False: the event is not behind all work. */
static bool record(struct ks_timeline *timeline, CUevent event) {
    if (!ks_is_capturing() &&
        KS_DRIVER(context_record_event)(timeline->handle, event) == CUDA_SUCCESS)
        return true;
    return gather(timeline) && KS_DRIVER(event_record)(event, timeline->behind) == CUDA_SUCCESS;
}

/* When the GPU passed an event; 0 if the driver does not tell. */
static int64_t time_of(const struct ks_timeline *timeline, CUevent event) {
    float milliseconds;
    const CUevent base = timeline->base[timeline->base_in_use];
    if (timeline->base_time == 0 ||
        KS_DRIVER(event_elapsed)(&milliseconds, base, event) != CUDA_SUCCESS)
        return 0;
    return timeline->base_time + (int64_t)((double)milliseconds * 1e6);
}

/* The work of a context in error has ended, at a time that is not known. */
static int64_t time_of_end(const struct ks_timeline *timeline) {
    const int64_t now = ks_now();
    const int64_t end = time_of(timeline, timeline->end);
    return end != 0 && end < now ? end : now;
}

/* Makes the context current for calls of the driver. */
static bool enter(const struct ks_timeline *timeline) {
    return KS_DRIVER(context_push)(timeline->handle) == CUDA_SUCCESS;
}

static void leave(void) {
    CUcontext popped;
    KS_DRIVER(context_pop)(&popped);
}

void ks_timeline_prepare(struct ks_timeline *timeline) {
    if (timeline->behind != NULL || !enter(timeline))
        return;
    prepare(timeline);
    leave();
}

void ks_timeline_gather(struct ks_timeline *timeline) {
    if (!enter(timeline))
        return;
    if (prepare(timeline) && timeline->behind != NULL && record(timeline, timeline->gathered))
        KS_DRIVER(stream_wait_event)(timeline->behind, timeline->gathered, 0);
    leave();
}

bool ks_timeline_must_follow(void) {
    return ks_is_capturing() || !ks_driver_has(KS_CALL_context_record_event);
}

void ks_timeline_follow(struct ks_timeline *timeline, struct ks_stream *stream) {
    if (!enter(timeline))
        return;
    if (prepare(timeline) && timeline->behind != NULL)
        follow_tracked(timeline, stream);
    leave();
}

/* Whether the current context is in error: then its work has ended. */
static bool is_in_error(void) {
    CUevent event;
    const CUresult result = KS_DRIVER(event_create)(&event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        KS_DRIVER(event_destroy)(event);
    return result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY;
}

/* Without an event the driver waits for the work of a context, and may not while a stream is
 * captured: then the event is recorded later. */
static bool is_recorded_later(void) {
    return ks_is_capturing() && !is_in_error();
}

void ks_timeline_finish_begin(struct ks_timeline *timeline) {
    timeline->awaits_end = timeline->lacks_end = false;
    if (!enter(timeline))
        return;
    timeline->awaits_end = prepare(timeline) && record(timeline, timeline->end);
    timeline->lacks_end = !timeline->awaits_end && is_recorded_later();
    if (timeline->awaits_end)
        take_base(timeline);
    else if (!timeline->lacks_end)
        KS_DRIVER(context_synchronize)(); /* returns at once for a context in error */
    leave();
}

bool ks_timeline_finish_end(struct ks_timeline *timeline, int64_t *end) {
    *end = 0;
    if (timeline->lacks_end)
        ks_timeline_finish_begin(timeline);
    if (timeline->lacks_end)
        return false;
    if (!timeline->awaits_end)
        return true;
    if (KS_DRIVER(event_query)(timeline->end) == CUDA_ERROR_NOT_READY || !enter(timeline))
        return false;
    take_base(timeline); /* where it waited behind the work */
    *end = time_of_end(timeline);
    leave();
    return true;
}

void ks_timeline_mark(struct ks_timeline *timeline, unsigned marker) {
    timeline->marked[marker] = timeline->lacking[marker] = false;
    if (!enter(timeline))
        return;
    timeline->marked[marker] = prepare(timeline) && record(timeline, timeline->markers[marker]);
    timeline->lacking[marker] = !timeline->marked[marker] && is_recorded_later();
    leave();
}

bool ks_timeline_has_passed(struct ks_timeline *timeline, unsigned marker) {
    if (timeline->lacking[marker])
        ks_timeline_mark(timeline, marker);
    if (timeline->lacking[marker])
        return false;
    if (timeline->prepared && timeline->marked[marker])
        timeline->marked[marker] =
            KS_DRIVER(event_query)(timeline->markers[marker]) == CUDA_ERROR_NOT_READY;
    return !timeline->prepared || !timeline->marked[marker];
}

int64_t ks_timeline_passed_at(struct ks_timeline *timeline, unsigned marker) {
    return timeline->prepared ? time_of(timeline, timeline->markers[marker]) : 0;
}

int64_t ks_timeline_between(struct ks_timeline *timeline, unsigned earlier, unsigned later) {
    float milliseconds;
    if (!timeline->prepared || KS_DRIVER(event_elapsed)(&milliseconds, timeline->markers[earlier],
                                                        timeline->markers[later]) != CUDA_SUCCESS)
        return 0;
    return (int64_t)((double)milliseconds * 1e6);
}
