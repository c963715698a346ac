/*
 * The pools of this process for stream-ordered allocation.
 */
#ifndef KS_MEMORY_POOLS_H
#define KS_MEMORY_POOLS_H

#include "driver.h"
#include "memory/allocations.h"
#include "memory/reserve.h"

#include <stdatomic.h>
#include <stdbool.h>

enum ks_pool_state {
    KS_POOL_LIVES = 0,
    KS_POOL_ENDS, /* it is being destroyed: the driver is not called for it any more */
    KS_POOL_ENDED /* it keeps all its memory until the last allocation is freed */
};

struct ks_pool {
    struct ks_reserve reserve;    /* first, so that its address is the pool's */
    _Atomic(CUmemoryPool) handle; /* NULL: this entry is free */
    atomic_int state;             /* changed with the lock of the reserve held */
    bool charged;                 /* false for a pool of another process or of host memory */
};

/* The pool that a device allocates from; NULL if the list is full. */
struct ks_pool *ks_pool_of_device(CUmemoryPool handle, CUdevice device);

/* The pool that was found for a device before; NULL if it has to be asked for again. `*seen` is for
 * ks_pool_remember(). */
struct ks_pool *ks_pool_known(CUdevice device, uint64_t *seen);

/* Remembers what was found after ks_pool_known(), unless another pool may have been chosen since.
 */
void ks_pool_remember(CUdevice device, uint64_t seen, const struct ks_pool *pool);

/* A pool that the application names; NULL if there is no such pool. */
struct ks_pool *ks_pool_of_handle(CUmemoryPool handle);

/* Before the driver is called to free: takes the allocation; false if it is not memory of a pool.
 */
bool ks_pool_frees(CUdeviceptr pointer, struct ks_allocation *allocation);

/* After that call, with the driver's result. */
CUresult ks_pool_freed(const struct ks_allocation *allocation, CUresult result);

/* The same, if the memory is freed when a stream gets there: the pool gives none of it back before
 * the next synchronisation. */
CUresult ks_pool_frees_later(const struct ks_allocation *allocation, CUresult result);

/* After a synchronisation, at which the driver returns what pools do not use. */
void ks_pools_synchronized(void);

/* After a context has ended: pools may have lost all that was allocated from them. `in_use`: the
 * cells that still have a context, as bits. */
void ks_pools_context_ended(uint64_t in_use);

/* Charges the driver's figure for each pool of a cell. With `trim` the driver first returns what it
 * does not use. */
void ks_pools_visit(unsigned cell, bool trim);

/* In a forked child: there are none. */
void ks_pools_forget(void);

#endif
