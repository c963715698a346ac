/*
 * What this process has allocated: how much each pointer was charged, on which cell, in which
 * context.
 */
#ifndef KS_ALLOCATIONS_H
#define KS_ALLOCATIONS_H

#include "driver.h"

#include <stdbool.h>

struct ks_allocation {
    CUdeviceptr pointer;
    uint64_t bytes;
    CUcontext context;
    unsigned cell;
};

/* Remembers an allocation; false when there is no memory to do so. */
bool ks_allocations_add(const struct ks_allocation *allocation);

/* Forgets and gives the allocation of a pointer; false where it is not known. */
bool ks_allocations_take(CUdeviceptr pointer, struct ks_allocation *allocation);

/* Gives back all that was allocated in a context that has ended. */
void ks_allocations_drop(CUcontext context);

/* In a forked child: nothing was allocated. */
void ks_allocations_forget(void);

#endif
