/* What the fake driver does not have. */
#ifndef FAKEGPU_DEBUG_H
#define FAKEGPU_DEBUG_H

/**
 * CUDA_ERROR_NOT_SUPPORTED; with FAKEGPU_DEBUG=1 also a line that says so, the
 * first time: `said` is 0 then.
 */
int not_modelled(const char *what, int *said);

#endif
