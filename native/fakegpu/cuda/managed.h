/* Managed memory: what it was advised. */
#ifndef FAKEGPU_MANAGED_H
#define FAKEGPU_MANAGED_H

#include "allocation.h"

/* Where it may be: at a GPU, by ordinal, or one of these. */
#define MANAGED_AT_HOST    CU_DEVICE_CPU
#define MANAGED_AT_NOWHERE CU_DEVICE_INVALID

/** The managed memory that holds a range; driver.lock held. */
CUresult managed_at(uint64_t pointer, uint64_t bytes, struct allocation **found);

#endif
