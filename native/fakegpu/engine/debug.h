/* What the fake GPU does not have. */
#ifndef FAKEGPU_DEBUG_H
#define FAKEGPU_DEBUG_H

/**
 * Returns the result for "not modelled"; with FAKEGPU_DEBUG=1 also prints a line, the
 * first time: `said` is 0 then.
 */
int not_modelled(const char *what, int *said, int result);

#endif
