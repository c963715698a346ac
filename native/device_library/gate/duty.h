/*
 * Without a daemon the session keeps to its request by the clock.
 */
#ifndef KS_DUTY_H
#define KS_DUTY_H

#include <stdint.h>

/* Opens and closes the local gates until `deadline` (CLOCK_MONOTONIC ns), and until a window that
 * is open then has ended. Only the agent calls this. Afterwards the gates are local and closed. */
void ks_duty_until(int64_t deadline);

#endif
