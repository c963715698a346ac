/*
 * Streams that are being captured into a graph: launches on them do not run now.
 */
#ifndef KS_CAPTURE_H
#define KS_CAPTURE_H

#include "driver.h"
#include "gate/fast_path.h"

#include <stdbool.h>

/* Whether this process is capturing a graph. An event behind all work of a context would then
 * invalidate the capture. */
static inline bool ks_is_capturing(void) {
    return (atomic_load(&ks_fast_path_blockers) & KS_CAPTURING) != 0;
}

/* Whether a stream is being captured: it is the origin, or waits for a stream that is captured. */
bool ks_is_captured(CUstream stream);

/* After a context has ended, and its streams with it. */
void ks_captures_drop(CUcontext context);

/* In a forked child: none. */
void ks_captures_forget(void);

#endif
