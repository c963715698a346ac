/*
 * The pools of this process from which memory is allocated in the order of a stream.
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
    KS_POOL_ENDS, /* it is being destroyed: the driver is not asked about it any more */
    KS_POOL_ENDED /* what was allocated of it keeps its memory, all of it, until the last is freed
                   */
};

struct ks_pool {
    struct ks_reserve reserve;    /* first: a question about it is one about its pool */
    _Atomic(CUmemoryPool) handle; /* NULL: this place is free */
    atomic_int state;             /* changed with the lock of the reserve held */
    bool charged; /* not a pool of another process, nor one of host memory: those count as none */
};

/* The pool that a device allocates from; NULL where there are too many. */
struct ks_pool *ks_pool_of_device(CUmemoryPool handle, CUdevice device);

/* A pool that the application names; NULL where it is none. */
struct ks_pool *ks_pool_of_handle(CUmemoryPool handle);

/* Before the driver is asked to free: takes what is known, where it is memory of a pool. */
bool ks_pool_frees(CUdeviceptr pointer, struct ks_allocation *allocation);

/* After that, with the driver's result. */
CUresult ks_pool_freed(const struct ks_allocation *allocation, CUresult result);

/* After the GPU has come to the end of something: the driver returns then what pools do not use. */
void ks_pools_synchronized(void);

/* After a context has ended: pools of a GPU may have lost all that was allocated of them.
 * `in_use`: the cells that still have a context, as bits. */
void ks_pools_context_ended(uint64_t in_use);

/* Charges what the driver says of each pool of a cell; where asked for, after it has returned what
 * it does not use. */
void ks_pools_visit(unsigned cell, bool trim);

/* In a forked child: none. */
void ks_pools_forget(void);

#endif
