/*
 * Without a daemon: the claim keeps to its request by the clock.
 */
#ifndef KS_DUTY_H
#define KS_DUTY_H

#include <stdint.h>

/* Opens and closes the local gates until `deadline` (CLOCK_MONOTONIC ns),
 * and somewhat longer where a part is just open. Called by the agent alone; the
 * gates stay local, and closed, afterwards. */
void ks_duty_until(int64_t deadline);

#endif
