/*
 * What cannot go to the engine yet: work behind a function of the program, a
 * value that is still to be written, another GPU's event.
 *
 * The engine's queue of a process runs in the order of submission and waits
 * for nothing. So an operation that must wait, and all that has to follow it,
 * stands in a list here in the order in which it was asked for; a thread of
 * the driver submits what has become ready, another runs the program's
 * functions. As long as the list is empty, which is nearly always, a launch
 * pays for it with one load.
 *
 * The list has its own lock, taken before a GPU's (engine_enter) and after
 * driver.lock; it is never held while waiting or while a function runs.
 */
#ifndef FAKEGPU_DEFERRED_H
#define FAKEGPU_DEFERRED_H

#include "operation.h"

extern unsigned deferred_count; /* atomic */

/** Whether anything waits here. */
static inline bool deferred_any(void) {
    return __atomic_load_n(&deferred_count, __ATOMIC_ACQUIRE) != 0;
}

/**
 * Puts an operation into the list unless it may be done at once: then `taken`
 * stays false. Waits while the list is full (QUEUE_DEPTH).
 */
CUresult defer(struct CUstream_st *stream, const struct operation *operation, bool *taken);

/** Records an event after all streams of a context; false: nothing of it waits here. */
CUresult defer_context_record(struct CUctx_st *context, CUevent event, bool *taken);

/** Waits until nothing is left here of what a stream has to wait for, a context or a device. */
void deferred_wait_stream(const struct CUstream_st *stream);
void deferred_wait_context(const struct CUctx_st *context);
void deferred_wait_device(const struct device *device);

/** Whether something is left here that a stream has to wait for. */
bool deferred_holds_stream(const struct CUstream_st *stream);

/** Waits until the recording of an event is no longer here. */
void deferred_wait_event(const struct CUevent_st *event);

/** Whether the recording of an event is still here. */
bool deferred_holds_event(const struct CUevent_st *event);

/** An event that ends: its recording will not touch it. */
void deferred_forget_event(const struct CUevent_st *event);

/** Frees a stream that its context no longer lists, once nothing of it is left here. */
void deferred_free_stream(struct CUstream_st *stream);

#endif
