/* Which CUDA a branch of the driver brings. */
#ifndef FAKEGPU_RELEASE_H
#define FAKEGPU_RELEASE_H

#include <stdint.h>

#define OLDEST_DRIVER 525u
#define NEWEST_DRIVER 615u

/* What follows the branch in the number of a release. */
#define RELEASE "71.05"

/** The newest CUDA version of a branch from OLDEST_DRIVER on: 1000 * major + 10 * minor. */
int release_cuda(uint32_t driver);

#endif
