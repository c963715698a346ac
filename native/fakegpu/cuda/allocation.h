/* What the driver knows of a piece of memory. */
#ifndef FAKEGPU_ALLOCATION_H
#define FAKEGPU_ALLOCATION_H

#include "driver.h"

enum memory_kind {
    MEMORY_DEVICE,
    MEMORY_MANAGED,
    MEMORY_HOST,       /* allocated by the driver */
    MEMORY_REGISTERED, /* the program's own */
};

struct allocation {
    uint64_t base;
    uint64_t size;    /* as asked for */
    uint64_t charged; /* to the GPU */
    enum memory_kind kind;
    struct CUctx_st *context;
};

/** Finds the allocation that holds [address, address + bytes); false if none does. */
bool find_allocation(uint64_t address, uint64_t bytes, struct allocation *copy);

#endif
