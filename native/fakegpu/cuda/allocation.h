/*
 * The table of all memory that the driver has given out or that is registered, in
 * the order of addresses; driver.lock guards it.
 */
#ifndef FAKEGPU_ALLOCATION_H
#define FAKEGPU_ALLOCATION_H

#include "account.h"

enum memory_kind {
    MEMORY_DEVICE,
    MEMORY_MANAGED,
    MEMORY_HOST,       /* allocated by the driver */
    MEMORY_REGISTERED, /* the program's own */
    MEMORY_POOL,       /* stream-ordered */
    MEMORY_MAPPED,     /* physical memory, mapped at reserved addresses */
    MEMORY_IMPORTED,   /* another pool's or another interface's; freed as if it were one's own */
    MEMORY_OPENED,     /* another process's, until it is closed */
    MEMORY_GRAPH,      /* of nodes that allocate; live or not */
};

/* What managed memory was advised: by ordinal, one bit more for the host. */
struct managed {
    bool read_mostly;
    int preferred, prefetched;
    uint32_t accessed_by;
};

struct allocation {
    uint64_t base;
    uint64_t size;    /* as asked for */
    uint64_t charged; /* to the GPU */
    enum memory_kind kind;
    bool shared;              /* its pages are a file's */
    bool hidden;              /* no access to it has been allowed yet */
    bool sync_memops;         /* copies wait; kept, and of no effect */
    unsigned flags;           /* of the host's memory, as asked for */
    struct CUctx_st *context; /* it ends with this one; NULL: with none */
    struct device *device;    /* NULL: the host's */
    uint64_t id;              /* never used twice */
    union {
        struct managed managed; /* MEMORY_MANAGED */
        struct {                /* MEMORY_OPENED */
            uint64_t process, number;
            unsigned times;
        } opened;
        struct block *block;     /* MEMORY_POOL */
        struct mapping *mapping; /* MEMORY_MAPPED */
        struct graph_memory *graph_memory;
    };
};

/* ---- with driver.lock held ---- */

/** The allocation that holds [address, address + bytes), or NULL. */
struct allocation *allocation_at(uint64_t address, uint64_t bytes);

/** Adds one, giving it its id; false when this process has no memory left for the table. */
bool allocation_add(const struct allocation *allocation);

/** Takes one out of the table, which frees it, and does no more. */
void allocation_remove(struct allocation *allocation);

/** Removes one, with its bytes and its charge. */
void allocation_drop(struct allocation *allocation);

/** The first allocation for which `chosen` returns true, or NULL. */
struct allocation *allocation_where(bool (*chosen)(const struct allocation *, const void *),
                                    const void *context);

/* ---- without ---- */

/** Allocates memory of the current context; `low`: where 32 bits are enough for its address. */
CUresult memory_allocate(uint64_t bytes, enum memory_kind kind, unsigned flags, bool low,
                         uint64_t *base);

/** Finds the allocation that holds [address, address + bytes); false if none does. */
bool find_allocation(uint64_t address, uint64_t bytes, struct allocation *copy);

/** Whether all of [address, address + bytes) may be read and written, be it of several pieces. */
bool memory_usable(uint64_t address, uint64_t bytes);

#endif
