/*
 * The contexts of this process: on which GPU of the session they are, and when the GPU is done with
 * them.
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

/* The cell of a device by the application's ordinal, or KS_NO_CELL. */
int ks_cell_of_device(CUdevice device);

/* Begins to wait for the end of all work that this process gave a GPU; false while that cannot be
 * done, because a graph is being captured. */
bool ks_finish_begin(unsigned cell);

/* Whether the GPU has come to the end of that work; *end is then the time of it, on the GPU's own
 * clock where it says (CLOCK_MONOTONIC ns). */
bool ks_finish_end(unsigned cell, int64_t *end);

/* The cells on whose GPU this process has a context: bit n is cell n. */
uint64_t ks_cells_in_use(void);

/* Puts a marker behind all work of this process on a cell; there are KS_MARKERS of them. False
 * when that cannot be done just now. */
bool ks_mark(unsigned cell, unsigned marker);

/* Whether the GPU is known to have come past it in all contexts. */
bool ks_has_passed(unsigned cell, unsigned marker);

/* When it did, in the context where that was last (CLOCK_MONOTONIC ns); 0 where it is not known. */
int64_t ks_passed_at(unsigned cell, unsigned marker);

/* GPU time between two markers that were passed, in the context where it is longest; 0 where it is
 * not known. ns. */
int64_t ks_between(unsigned cell, unsigned earlier, unsigned later);

/* Until ks_contexts_release() no event is recorded or asked for. Not for long: whoever ends a
 * context waits. */
void ks_contexts_hold(void);
void ks_contexts_release(void);

/* Told of a context that has ended, with no lock of the library held. */
typedef void ks_context_listener(CUcontext context);

/* Sets those that are called, in this order, when a context has ended; NULL ends the list. */
void ks_contexts_set_listeners(ks_context_listener *const *listeners);

/* From now on, until the process ends, the agent leaves the driver alone. */
void ks_contexts_close(void);

/* In a forked child: the parent's contexts are not usable. */
void ks_contexts_forget(void);

#endif
