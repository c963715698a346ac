/*
 * What this process holds of GPUs' memory: what each pointer and handle was charged, and on what
 * it hangs.
 */
#ifndef KS_ALLOCATIONS_H
#define KS_ALLOCATIONS_H

#include "driver.h"

#include <stdbool.h>

enum ks_kind {
    KS_NOTHING = 0,
    /* End with their context. */
    KS_MEMORY,
    KS_ARRAY,
    KS_MIPMAPPED_ARRAY,
    KS_EXTERNAL_MEMORY,
    KS_CONTEXT_LIMIT, /* handle: as memory_limits.c makes it */
    KS_LAST_OF_CONTEXT = KS_CONTEXT_LIMIT,
    /* Do not. */
    KS_POOL_MEMORY, /* owner: the struct ks_pool, which is charged for it */
    KS_PHYSICAL,    /* of cuMemCreate */
    KS_MAPPING,     /* owner: the physical memory; `bytes` is the length, not a charge */
    KS_TILE,        /* owner: the physical memory; `bytes` is the array, not a charge */
    KS_GRAPH,       /* an executable graph; `bytes` is what its nodes allocate, not a charge */
};

struct ks_allocation {
    uint64_t handle; /* as the driver gave it */
    uint64_t bytes;  /* charged */
    uint64_t owner;  /* the context, or what the kind says */
    uint32_t uses;   /* of KS_PHYSICAL: handles and mappings; see memory_graphs.c for KS_GRAPH */
    uint16_t kind;
    uint16_t cell;
};

/* Remembers an allocation; false when there is no memory to do so. */
bool ks_allocations_add(const struct ks_allocation *allocation);

/* Gives the allocation of a handle; false where it is not known. */
bool ks_allocations_find(enum ks_kind kind, uint64_t handle, struct ks_allocation *allocation);

/* The same, and forgets it. */
bool ks_allocations_take(enum ks_kind kind, uint64_t handle, struct ks_allocation *allocation);

/* One use more, of what is known. */
void ks_allocations_use(enum ks_kind kind, uint64_t handle);

/* So many uses, of what is known. */
void ks_allocations_mark(enum ks_kind kind, uint64_t handle, uint32_t uses);

/* One use less; true with the last, and the allocation is given and forgotten. */
bool ks_allocations_leave(enum ks_kind kind, uint64_t handle, struct ks_allocation *allocation);

/* Gives back all that was allocated in a context that has ended. */
void ks_allocations_drop(CUcontext context);

/* Gives one KS_TILE of an array, and forgets it; false where there is none. */
bool ks_allocations_take_tile(uint64_t array, struct ks_allocation *allocation);

/* Forgets all KS_POOL_MEMORY of a pool; how much that was. */
unsigned ks_allocations_drop_pool(uint64_t pool);

/* In a forked child: nothing was allocated. */
void ks_allocations_forget(void);

#endif
