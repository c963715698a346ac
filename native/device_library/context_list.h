/*
 * The list of contexts, for those that go through all of them or change it. Everything about one
 * happens while they are held: a context must not end while the agent asks the driver about it.
 */
#ifndef KS_CONTEXT_LIST_H
#define KS_CONTEXT_LIST_H

#include "driver.h"
#include "timeline.h"

#include <stdbool.h>
#include <stdint.h>

typedef bool ks_context_visitor(struct ks_timeline *timeline, void *data);

/* Does `visit` for each context of a cell, until one answers false; then false. The caller holds
 * them. */
bool ks_contexts_visit(unsigned cell, ks_context_visitor *visit, void *data);

/* As ks_contexts_hold(), but false where that would mean to wait. */
bool ks_contexts_try_hold(void);

/* Whether the driver is to be left alone. */
bool ks_contexts_are_closed(void);

/* When a context of a cell was last ended, CLOCK_MONOTONIC ns: its work was done by then. 0: never.
 * The caller holds them. */
int64_t ks_contexts_last_end(unsigned cell);

/* Notes a new context; false where there is no place for it. */
bool ks_context_track(CUcontext handle, int cell);

/* Has the driver end a context, and forgets what was in it. */
CUresult ks_context_end(CUresult (*real)(CUcontext), CUcontext handle);

/* One more use of a context (1), or one less (-1); false when that is its last, or it is unknown.
 */
bool ks_context_change_uses(CUcontext handle, int change);

/* Has the driver release or reset a primary context. */
CUresult ks_context_end_primary(CUresult (*real)(CUdevice), CUdevice device);

#endif
