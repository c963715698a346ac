/*
 * When the GPU was done with the work of one context.
 */
#ifndef KS_TIMELINE_H
#define KS_TIMELINE_H

#include "driver.h"

#include <stdbool.h>
#include <stdint.h>

#define KS_MARKERS 8u /* points in the work of a context that are watched at once */

/* A context, with what is needed to see the end of its work. */
struct ks_timeline {
    CUcontext handle;
    unsigned long long id; /* tells the context from an earlier one with the same handle */
    bool prepared;         /* the following exist */
    CUstream stream;
    CUevent end;
    bool awaits_end; /* that event was put */
    bool covers_all; /* behind the work of all streams */
    CUevent base[2]; /* the one in use, and the one for the next attempt */
    CUevent markers[KS_MARKERS];
    bool marked[KS_MARKERS]; /* the marker stands in the context's work */
    unsigned base_in_use;
    int64_t base_time;  /* CLOCK_MONOTONIC ns; 0 = never taken */
    int64_t base_width; /* ns between which the base event happened */
};

/* Puts an event behind all that was given to the context so far. No capture may be going on. */
void ks_timeline_finish_begin(struct ks_timeline *timeline);

/* Whether the GPU has come past that event, or none was put; *end is then the time at which it did
 * (CLOCK_MONOTONIC ns; 0: none was put). */
bool ks_timeline_finish_end(struct ks_timeline *timeline, int64_t *end);

/* Puts a marker behind all that was given to the context so far. */
void ks_timeline_mark(struct ks_timeline *timeline, unsigned marker);

/* Whether the GPU has come past a marker. Where none was put, it has. */
bool ks_timeline_has_passed(struct ks_timeline *timeline, unsigned marker);

/* When the GPU came past a marker that was passed (CLOCK_MONOTONIC ns); 0 where it is not known. */
int64_t ks_timeline_passed_at(struct ks_timeline *timeline, unsigned marker);

/* GPU time between two markers that were passed; 0 where it is not known. ns. */
int64_t ks_timeline_between(struct ks_timeline *timeline, unsigned earlier, unsigned later);

/* Before the context ends. What is still needed is prepared again if it lives on. */
void ks_timeline_discard(struct ks_timeline *timeline);

#endif
