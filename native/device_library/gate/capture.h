/*
 * Streams that are being captured into a graph: what is launched on them does not run now.
 */
#ifndef KS_CAPTURE_H
#define KS_CAPTURE_H

#include "driver.h"

#include <stdatomic.h>
#include <stdbool.h>

extern atomic_uint ks_captures; /* that have begun and not ended, in this process */

/* While this is so, an event that is put behind all work of a context would invalidate the
 * captures: the library records none, and asks for none. */
static inline bool ks_is_capturing(void) {
    return atomic_load(&ks_captures) != 0;
}

/* Whether a stream is being captured, as its origin or because it waits for one that is. */
bool ks_is_captured(CUstream stream);

/* After a context has ended, and its streams with it. */
void ks_captures_drop(CUcontext context);

/* In a forked child: none. */
void ks_captures_forget(void);

#endif
