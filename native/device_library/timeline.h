/*
 * When the GPU finished the work of one context.
 */
#ifndef KS_TIMELINE_H
#define KS_TIMELINE_H

#include "driver.h"
#include "streams.h"

#include <stdbool.h>
#include <stdint.h>

#define KS_MARKERS 8u /* of one context at a time */

/* A context, with the events that show the end of its work. */
struct ks_timeline {
    CUcontext handle;
    unsigned long long id; /* distinguishes it from an earlier context with the same handle */
    CUstream stream;       /* on which nothing waits; NULL while there is no memory for it */
    CUstream behind; /* which waits for the work of the others, where an event cannot; likewise */
    bool prepared;   /* the events exist */
    CUevent gathered;
    CUevent end;
    bool awaits_end; /* that event is recorded */
    bool lacks_end;  /* it could not be recorded while a stream was captured */
    CUevent base[2]; /* the one in use, and the one for the next attempt */
    CUevent markers[KS_MARKERS];
    bool marked[KS_MARKERS];  /* the marker is recorded and not seen passed */
    bool lacking[KS_MARKERS]; /* as lacks_end */
    unsigned base_in_use;
    int64_t base_time;  /* CLOCK_MONOTONIC ns; 0 = never taken */
    int64_t base_width; /* the base event happened within so many ns */
};

/* Creates its events and streams, before the application takes all memory of the GPU. */
void ks_timeline_prepare(struct ks_timeline *timeline);

/* Before a capture begins: events that are recorded while it is open are behind the context's work
 * so far, also that of the streams that are captured. */
void ks_timeline_gather(struct ks_timeline *timeline);

/* Whether a stream must be followed before it ends: later events of the context are not behind its
 * work. */
bool ks_timeline_must_follow(void);

/* Before a stream ends: later events are behind its work. */
void ks_timeline_follow(struct ks_timeline *timeline, struct ks_stream *stream);

/* Records an event behind all work of the context so far. */
void ks_timeline_finish_begin(struct ks_timeline *timeline);

/* Whether the GPU has passed that event, or the work of the context has ended without one; *end is
 * then the time at which it did
 * (CLOCK_MONOTONIC ns; 0: none is recorded). */
bool ks_timeline_finish_end(struct ks_timeline *timeline, int64_t *end);

/* Records a marker behind all work of the context so far. */
void ks_timeline_mark(struct ks_timeline *timeline, unsigned marker);

/* Whether the GPU has passed a marker; true if none is recorded. */
bool ks_timeline_has_passed(struct ks_timeline *timeline, unsigned marker);

/* When the GPU passed a marker (CLOCK_MONOTONIC ns); 0 if unknown. */
int64_t ks_timeline_passed_at(struct ks_timeline *timeline, unsigned marker);

/* GPU time in ns between two markers that were passed; 0 if unknown. */
int64_t ks_timeline_between(struct ks_timeline *timeline, unsigned earlier, unsigned later);

/* Before the context ends. If it does not, the events are created again when they are needed. */
void ks_timeline_discard(struct ks_timeline *timeline);

#endif
