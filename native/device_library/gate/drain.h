/*
 * When the GPU was last done with this process.
 */
#ifndef KS_DRAIN_H
#define KS_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the GPU has done all that was launched on a cell. Then *end is the time of its last end
 * (CLOCK_MONOTONIC ns; 0 where nothing was ever launched). Never waits: work may itself be waiting
 * for something that only comes when a gate opens again. No call of the driver where nothing was
 * launched since the last time. */
bool ks_settle(unsigned cell, int64_t *end);

/* Before a capture begins: until it ends it can only be seen when the work launched so far is done.
 */
void ks_settle_what_was_launched(void);

/* In a forked child: nothing was launched. */
void ks_drain_forget(void);

#endif
