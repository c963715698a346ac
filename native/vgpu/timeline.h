/*
 * When the GPU was done with the work of one context.
 */
#ifndef KS_TIMELINE_H
#define KS_TIMELINE_H

#include "driver.h"

#include <stdbool.h>
#include <stdint.h>

/* A context, with what is needed to see the end of its work. */
struct ks_timeline {
    CUcontext handle;
    unsigned long long id; /* tells the context from an earlier one with the same handle */
    bool prepared;         /* the following exist */
    CUstream stream;
    CUevent end;
    CUevent base[2]; /* the one in use, and the one for the next attempt */
    unsigned base_in_use;
    int64_t base_time;  /* CLOCK_MONOTONIC ns; 0 = never taken */
    int64_t base_width; /* ns between which the base event happened */
};

/* Waits until the GPU has done all that was given to the context, and gives
 * the time at which it was done (CLOCK_MONOTONIC ns); 0 where the context
 * cannot be used any more. */
int64_t ks_timeline_finish(struct ks_timeline *timeline);

/* Before the context ends. What is still needed is prepared again if it lives on. */
void ks_timeline_discard(struct ks_timeline *timeline);

#endif
