/*
 * The list of contexts, for code that visits all of them or changes it. Callers hold the list (see
 * ks_contexts_hold()): a context must not end while the agent is inside the driver with it.
 */
#ifndef KS_CONTEXT_LIST_H
#define KS_CONTEXT_LIST_H

#include "driver.h"
#include "timeline.h"

#include <stdbool.h>
#include <stdint.h>

typedef bool ks_context_visitor(struct ks_timeline *timeline, void *data);

/* Calls `visit` for each context of a cell until one call returns false, and returns that; false
 * also where a context is being released, which is not visited then. The caller holds the list. */
bool ks_contexts_visit(unsigned cell, ks_context_visitor *visit, void *data);

/* Before the driver does what may end the primary contexts of these devices, a bit for each: they
 * are not visited until ks_contexts_end_release(), which gets what this returns. The caller holds
 * the list, and releases it meanwhile. It must not be cancelled. */
uint64_t ks_contexts_begin_release(uint64_t devices);

/* Releases the list, and calls the listeners for those that have ended. */
void ks_contexts_end_release(uint64_t devices);

/* Like ks_contexts_hold(), but returns false instead of waiting. */
bool ks_contexts_try_hold(void);

/* Whether the library must make no calls of its own to the driver. */
bool ks_contexts_are_closed(void);

/* When a context of a cell last ended, CLOCK_MONOTONIC ns: its work was done by then. 0: never. The
 * caller holds the list. */
int64_t ks_contexts_last_end(unsigned cell);

/* Records a new context; false if the list is full. */
bool ks_context_track(CUcontext handle, int cell);

/* Has the driver end a context, and calls the listeners if it did. */
CUresult ks_context_end(CUresult (*real)(CUcontext), CUcontext handle);

/* Adds a use of a context (1) or removes one (-1); false if that is its last, or it is unknown. */
bool ks_context_change_uses(CUcontext handle, int change);

/* Has the driver release or reset a primary context, and calls the listeners if that ended it. */
CUresult ks_context_end_primary(CUresult (*real)(CUdevice), CUdevice device);

#endif
