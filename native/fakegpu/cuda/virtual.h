/*
 * Physical memory, and addresses that it is mapped at. Physical memory lives
 * until its last handle is released and its last mapping is undone.
 */
#ifndef FAKEGPU_VIRTUAL_H
#define FAKEGPU_VIRTUAL_H

#include "allocation.h"
#include "backing.h"

struct physical {
    struct device *device; /* NULL: the host's memory */
    uint64_t size;
    uint64_t charged; /* 0 where another process or the host pays */
    unsigned handles, mappings;
    unsigned imports;        /* handles of its memory that this process imported */
    struct physical *origin; /* of an import: whose memory it is; NULL: another process's */
    CUmemAllocationProp properties;
    struct backing backing; /* its own file where it may leave the process; else fd -1 */
    uint64_t offset;        /* in its file, or in the one that all others share */
    uint32_t slot;
    uint64_t id; /* never used twice */
};

/* One mapping: what an allocation of kind MEMORY_MAPPED has beside its addresses. */
struct mapping {
    struct physical *physical;
    uint64_t range_base, range_size;    /* of the reservation */
    unsigned char access[GPUS_MAX + 1]; /* of each device by ordinal, then of the host */
};

/* ---- with driver.lock held ---- */

/** The physical memory of a handle, or NULL. */
struct physical *physical_of(CUmemGenericAllocationHandle handle);

/** One use fewer; the last one frees it. */
void physical_put(struct physical *physical);

/** The file that its bytes are in. */
int physical_file(const struct physical *physical);

#endif
