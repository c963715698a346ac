/*
 * The GPU's own clock.
 *
 * A drain must report when the GPU was done, not when a thread woke up to see
 * it: on a busy machine the two differ by milliseconds, which would be charged.
 * So an event is recorded behind all work of a context, and its time is read as
 * the distance to a base event whose time on CLOCK_MONOTONIC is known. The base
 * is renewed every second (a distance is a float of milliseconds, and the two
 * clocks drift) on a stream of the library, where an event completes at once
 * however much work is queued on others; and while the drain is under way, so
 * it takes no time of a turn.
 */
#include "timeline.h"

#include "lookup/driver_calls.h"
#include "system.h"

#define BASE_LIFETIME (KS_SECOND)
#define BASE_GOOD_ENOUGH                                                                           \
    INT64_C(20000) /* ns: a base event known as exactly needs no further attempt */
#define BASE_ATTEMPT_TIME (KS_MILLISECOND) /* an attempt that takes longer is too inexact */
#define BASE_ATTEMPTS     4

static bool prepare(struct ks_timeline *timeline) {
    unsigned long long id = 0;
    KS_DRIVER(context_get_id)(timeline->handle, &id);
    if (timeline->prepared && timeline->id == id)
        return true;
    timeline->id = id;
    timeline->base_time = 0;
    timeline->awaits_end = false;
    timeline->prepared =
        KS_DRIVER(stream_create)(&timeline->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
        KS_DRIVER(event_create)(&timeline->end, CU_EVENT_BLOCKING_SYNC) == CUDA_SUCCESS &&
        KS_DRIVER(event_create)(&timeline->base[0], CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
        KS_DRIVER(event_create)(&timeline->base[1], CU_EVENT_DEFAULT) == CUDA_SUCCESS;
    for (unsigned i = 0; i < KS_MARKERS; i++) {
        timeline->prepared =
            timeline->prepared &&
            KS_DRIVER(event_create)(&timeline->markers[i], CU_EVENT_DEFAULT) == CUDA_SUCCESS;
        timeline->marked[i] = false;
    }
    return timeline->prepared;
}

void ks_timeline_discard(struct ks_timeline *timeline) {
    if (timeline->prepared) {
        KS_DRIVER(event_destroy)(timeline->end);
        KS_DRIVER(event_destroy)(timeline->base[0]);
        KS_DRIVER(event_destroy)(timeline->base[1]);
        for (unsigned i = 0; i < KS_MARKERS; i++)
            KS_DRIVER(event_destroy)(timeline->markers[i]);
        KS_DRIVER(stream_destroy)(timeline->stream);
    }
    timeline->prepared = timeline->awaits_end = false;
}

static bool attempt_base(struct ks_timeline *timeline) {
    const unsigned next = 1 - timeline->base_in_use;
    CUresult state;
    const int64_t before = ks_now();
    int64_t after;
    if (KS_DRIVER(event_record)(timeline->base[next], timeline->stream) != CUDA_SUCCESS)
        return false;
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
    return timeline->base_time != 0 && timeline->base_width <= BASE_GOOD_ENOUGH;
}

static void take_base(struct ks_timeline *timeline) {
    if (timeline->base_time != 0 && ks_now() - timeline->base_time < BASE_LIFETIME)
        return;
    timeline->base_width = INT64_MAX; /* any new base is better than the old one */
    for (int attempt = 0; attempt < BASE_ATTEMPTS && !attempt_base(timeline); attempt++)
        ;
}

/* False: the context is in error. */
static bool record(struct ks_timeline *timeline, CUevent event, bool *covers_all) {
    *covers_all = KS_DRIVER(context_record_event)(timeline->handle, event) == CUDA_SUCCESS;
    return *covers_all || KS_DRIVER(event_record)(event, NULL) == CUDA_SUCCESS;
}

/* Before CUDA 12.5 an event waits for the default stream and those that
 * synchronise with it; this waits for the work of the others, and then records the event again. */
static void cover_other_streams(struct ks_timeline *timeline) {
    const int64_t before = ks_now();
    KS_DRIVER(context_synchronize)();
    if (ks_now() - before > KS_MILLISECOND / 5 &&
        KS_DRIVER(event_record)(timeline->end, NULL) == CUDA_SUCCESS)
        KS_DRIVER(event_synchronize)(timeline->end);
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

void ks_timeline_finish_begin(struct ks_timeline *timeline) {
    timeline->awaits_end = false;
    if (!enter(timeline))
        return;
    timeline->awaits_end =
        prepare(timeline) && record(timeline, timeline->end, &timeline->covers_all);
    if (timeline->awaits_end)
        take_base(timeline);
    else
        KS_DRIVER(context_synchronize)(); /* returns at once for a context in error */
    leave();
}

bool ks_timeline_finish_end(struct ks_timeline *timeline, int64_t *end) {
    *end = 0;
    if (!timeline->awaits_end)
        return true;
    if (KS_DRIVER(event_query)(timeline->end) == CUDA_ERROR_NOT_READY || !enter(timeline))
        return false;
    if (!timeline->covers_all)
        cover_other_streams(timeline);
    *end = time_of_end(timeline);
    leave();
    return true;
}

void ks_timeline_mark(struct ks_timeline *timeline, unsigned marker) {
    bool covers_all;
    if (!enter(timeline))
        return;
    timeline->marked[marker] =
        prepare(timeline) && record(timeline, timeline->markers[marker], &covers_all);
    leave();
}

bool ks_timeline_has_passed(struct ks_timeline *timeline, unsigned marker) {
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
