/*
 * What this process holds of GPUs' memory: the charge and the owner of each pointer and handle.
 */
#ifndef KS_ALLOCATIONS_H
#define KS_ALLOCATIONS_H

#include "driver.h"

#include <stdbool.h>

enum ks_kind {
    KS_NOTHING = 0,
    /* End with their context. */
    KS_MEMORY,
    KS_SPILLED,       /* linear memory that managed memory serves, because the GPU had none left */
    KS_SPILLED_FREED, /* such memory until its stream has reached the free: see spill.c */
    KS_ARRAY,
    KS_MIPMAPPED_ARRAY,
    KS_EXTERNAL_MEMORY,
    KS_HOST_MEMORY,     /* `bytes` is of the host, not a charge */
    KS_HOST_REGISTERED, /* likewise */
    KS_CONTEXT_LIMIT,   /* handle: see limits.c */
    KS_LAST_OF_CONTEXT = KS_CONTEXT_LIMIT,
    /* Outlive their context. */
    KS_POOL_MEMORY, /* owner: the struct ks_pool, which is charged for it */
    KS_PHYSICAL,    /* owner: see imports.h */
    KS_MAPPING,     /* owner: the physical memory; `bytes` is the length, not a charge */
    KS_TILE,        /* owner: the physical memory; `bytes` is the array, not a charge */
    KS_GRAPH,       /* an executable graph; `bytes` is what its nodes allocate, not a charge */
};

struct ks_allocation {
    uint64_t handle; /* from the driver */
    uint64_t bytes;  /* charged */
    uint64_t owner;  /* the context, or as the kind says */
    uint64_t since;  /* when it was recorded, by ks_allocations_tick() */
    uint32_t uses;   /* of KS_PHYSICAL: handles and mappings; else see graphs.c and spill.c */
    uint16_t kind;
    uint16_t cell;
};

/* Records an allocation, since now; false if there is no memory for the entry. */
bool ks_allocations_add(const struct ks_allocation *allocation);

/* Finds the allocation of a handle; false if it is unknown. */
bool ks_allocations_find(enum ks_kind kind, uint64_t handle, struct ks_allocation *allocation);

/* Finds and removes it. */
bool ks_allocations_take(enum ks_kind kind, uint64_t handle, struct ks_allocation *allocation);

/* Whether an entry is what is wanted, and better than the best one so far, which may be NULL. */
typedef bool ks_allocation_order(const struct ks_allocation *entry,
                                 const struct ks_allocation *best,
                                 const struct ks_allocation *wanted);

/* Finds the best of all entries; false if none is wanted. Takes as long as there are entries. */
bool ks_allocations_search(ks_allocation_order *is_better, const struct ks_allocation *wanted,
                           struct ks_allocation *best);

/* Changes kind, charge, owner and cell of an entry; false if it is gone, or its charge or owner is
 * no longer what was seen. */
bool ks_allocations_change(const struct ks_allocation *seen, const struct ks_allocation *next);

/* Adds a use, if the handle is known. */
void ks_allocations_use(enum ks_kind kind, uint64_t handle);

/* Finds and removes it if it has so many uses: its handle may be that of a newer one. */
bool ks_allocations_take_marked(enum ks_kind kind, uint64_t handle, uint32_t uses,
                                struct ks_allocation *allocation);

/* Sets the number of uses, if the handle is known. */
void ks_allocations_mark(enum ks_kind kind, uint64_t handle, uint32_t uses);

/* Removes a use; true if it was the last, and the allocation is found and removed. */
bool ks_allocations_leave(enum ks_kind kind, uint64_t handle, struct ks_allocation *allocation);

/* Gives back what an allocation that has ended, and ends with its context, was charged or counted.
 */
void ks_allocations_settle(const struct ks_allocation *allocation);

/* The clock of the table: a new time, later than that of all entries so far. */
uint64_t ks_allocations_tick(void);

/* Settles all that was recorded in a context before a time at which it had ended, or was about to:
 * what is newer may be in another context with the same handle. */
void ks_allocations_drop(CUcontext context, uint64_t before);

/* Finds and removes one KS_TILE of an array; false if there is none. */
bool ks_allocations_take_tile(uint64_t array, struct ks_allocation *allocation);

/* Removes all KS_POOL_MEMORY of a pool; returns how many entries that were. */
unsigned ks_allocations_drop_pool(uint64_t pool);

/* In a forked child: nothing was allocated. */
void ks_allocations_forget(void);

#endif
