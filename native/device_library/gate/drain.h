/*
 * When the GPU finished the work of this process.
 */
#ifndef KS_DRAIN_H
#define KS_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the GPU has finished all that was launched on a cell; *end is then the time of the last
 * end (CLOCK_MONOTONIC ns; 0 if nothing was ever launched). Never waits: work may itself wait for a
 * launch behind a closed gate. Does not call the driver if nothing was launched since the last
 * time. */
bool ks_settle(unsigned cell, int64_t *end);

/* In a forked child: nothing was launched. */
void ks_drain_forget(void);

#endif
