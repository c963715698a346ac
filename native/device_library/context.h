/*
 * The contexts of this process: their GPUs, and when a GPU has finished their work.
 */
#ifndef KS_CONTEXT_H
#define KS_CONTEXT_H

#include "driver.h"

#include <stdbool.h>
#include <stdint.h>

/* The cell of the current context's GPU, or KS_NO_CELL. False: no context is current. */
bool ks_current_cell(int *cell);

/* The current context; NULL where there is none. */
CUcontext ks_current_context(void);

/* The context with which ends what is allocated in the current one: that itself, or the primary
 * context where it is a green one; NULL where there is none. */
CUcontext ks_owning_context(void);

/* From now on contexts may be green. */
void ks_contexts_expect_green(void);

/* The cell of a device by the application's ordinal, or KS_NO_CELL. */
int ks_cell_of_device(CUdevice device);

/* After a context was made on a device: where only a stream of the library can be behind all of its
 * work, creates that while there is memory for it. */
void ks_contexts_prepare(CUdevice device);

/* Records a stream that was created; false if there are too many. */
bool ks_context_track_stream(CUstream stream, unsigned int flags);

/* The same for the default stream of a green context. */
bool ks_context_track_green(CUgreenCtx green);

/* Has the driver end a stream. Events that are recorded later are behind its work. */
CUresult ks_context_end_stream(CUresult (*real)(CUstream), CUstream stream);

/* Has the driver end a green context; *ended is its context, or NULL. Its streams are left, and no
 * work can be given to them. */
CUresult ks_context_end_green(CUresult (*real)(CUgreenCtx), CUgreenCtx handle, CUcontext *ended);

/* Before a capture begins, while the caller holds the contexts: events that are recorded until it
 * ends are behind all work so far. */
void ks_contexts_gather(void);

/* Whether this process sees such a device. If not, the driver says so. */
bool ks_device_exists(CUdevice device);

/* Records events behind all work that this process gave a GPU; false if that is not possible now.
 */
bool ks_finish_begin(unsigned cell);

/* Whether the GPU has passed those events; *end is then the time of the last, by the GPU's own
 * clock if the driver tells it (CLOCK_MONOTONIC ns). */
bool ks_finish_end(unsigned cell, int64_t *end);

/* The cells on whose GPU this process has a context: bit n for cell n. */
uint64_t ks_cells_in_use(void);

/* Records marker `marker` (of KS_MARKERS) behind all work of this process on a cell. False if that
 * is not possible now. */
bool ks_mark(unsigned cell, unsigned marker);

/* Whether the GPU is known to have passed it in all contexts. */
bool ks_has_passed(unsigned cell, unsigned marker);

/* When it passed it in the last of the contexts (CLOCK_MONOTONIC ns); 0 if unknown. */
int64_t ks_passed_at(unsigned cell, unsigned marker);

/* GPU time in ns between two markers that were passed, in the context where it is longest; 0 if
 * unknown. */
int64_t ks_between(unsigned cell, unsigned earlier, unsigned later);

/* Until ks_contexts_release() no other thread records or queries an event. Hold it briefly: a
 * thread that ends a context waits for it. */
void ks_contexts_hold(void);
void ks_contexts_release(void);

/* Called after a context has ended, with no lock of the library held. What was allocated in it is
 * older than `before` (ks_allocations_tick()), and what is not may be in another context with the
 * same handle. */
typedef void ks_context_listener(CUcontext context, uint64_t before);

/* Sets the functions that are called, in this order, after a context has ended; NULL ends the list.
 */
void ks_contexts_set_listeners(ks_context_listener *const *listeners);

/* From now until the process ends, the library makes no calls of its own to the driver. */
void ks_contexts_close(void);

/* In a forked child: the parent's contexts cannot be used. */
void ks_contexts_forget(void);

#endif
