/*
 * The table of all memory that the driver has given out or been told of, in
 * the order of addresses; driver.lock guards it.
 */
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

/* ---- with driver.lock held ---- */

/** The allocation that holds [address, address + bytes), or NULL. */
struct allocation *allocation_at(uint64_t address, uint64_t bytes);

/** Adds one; false when this process has no memory left for the table. */
bool allocation_add(const struct allocation *allocation);

/** Removes one, with its bytes and its charge. */
void allocation_drop(struct allocation *allocation);

/* ---- without ---- */

/** Finds the allocation that holds [address, address + bytes); false if none does. */
bool find_allocation(uint64_t address, uint64_t bytes, struct allocation *copy);

#endif
