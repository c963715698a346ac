/*
 * When the GPU was last done with this process.
 */
#ifndef KS_DRAIN_H
#define KS_DRAIN_H

#include <stdint.h>

/* Waits until the GPU has done what was launched on a cell, and gives the time
 * of its last end (CLOCK_MONOTONIC ns; 0 where nothing was ever launched). No
 * call of the driver where nothing was launched since the last time. Called by
 * the agent alone. */
int64_t ks_settle(unsigned cell);

/* In a forked child: nothing was launched. */
void ks_drain_forget(void);

#endif
