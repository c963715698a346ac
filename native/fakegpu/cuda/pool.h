/*
 * Pools of stream-ordered memory. A pool takes memory of its GPU in chunks
 * (POOL_CHUNK bytes, or whole pages of 2 MiB where no more fits) and gives out
 * blocks of them; what is freed stays in the pool until a synchronisation
 * finds more than the release threshold, or until it is trimmed.
 */
#ifndef FAKEGPU_POOL_H
#define FAKEGPU_POOL_H

#include "allocation.h"
#include "backing.h"

#define POOL_CHUNK     (UINT64_C(32) << 20)
#define POOL_NO_STREAM UINT64_C(0) /* the id of none */
#define POOL_NO_OWNER  UINT64_MAX  /* the id of none that may have it early */

/* A part of a chunk: given out, or freed by a stream that may not have got there yet. */
struct block {
    struct chunk *chunk;
    uint64_t base, size;
    bool used;
    uint64_t stream; /* that freed it, by id; POOL_NO_STREAM once all of them may have it */
    uint64_t number; /* the kernel of the pool's device after which it is free */
    struct block *next, *previous;           /* in the chunk, in the order of addresses */
    struct block *free_next, *free_previous; /* of the pool's free blocks */
};

struct chunk {
    struct CUmemPoolHandle_st *pool;
    uint64_t base, size;
    uint64_t offset; /* in the pool's file, where it has one */
    struct block *blocks;
    unsigned used; /* blocks given out */
    struct chunk *next;
};

struct CUmemPoolHandle_st {
    struct device *device; /* NULL: of the host's memory */
    CUmemPoolProps properties;
    bool is_default, imported;
    bool destroyed; /* by the program; goes with its last block */
    int follow_events, opportunistic, internal_dependencies;
    uint64_t threshold;
    uint64_t reserved, reserved_high;
    uint64_t used, used_high;
    unsigned char access[GPUS_MAX]; /* of each device, beside its own */
    struct backing backing;         /* of a pool that can be exported or was imported; else fd -1 */
    struct chunk *chunks;
    struct block *free;
    struct CUmemPoolHandle_st *next;
};

/* ---- with driver.lock held ---- */

/** Makes a pool; NULL when there is no memory for it. */
struct CUmemPoolHandle_st *pool_make(const CUmemPoolProps *properties, struct device *device);

/** Ends a pool with all that it has. */
void pool_end(struct CUmemPoolHandle_st *pool);

/** Gives back all unused memory, whether or not the GPU has reached the frees. */
void pool_empty(struct CUmemPoolHandle_st *pool);

/** A pool that ends is no longer current for any device. */
void pool_unchoose(const struct CUmemPoolHandle_st *pool);

/** Takes a block for a stream (NULL: for any use at once); NULL when there is no room. */
struct block *pool_take(struct CUmemPoolHandle_st *pool, uint64_t bytes,
                        struct CUstream_st *stream);

/** Gives a block back: free after kernel `number`, before that for the stream with this id. */
void pool_give(struct block *block, uint64_t stream, uint64_t number);

/** Frees an allocation of kind MEMORY_POOL. */
void pool_free(struct allocation *allocation, uint64_t stream, uint64_t number);

/** Gives unused memory back to the GPU, as long as `keep` bytes stay reserved. */
void pool_trim(struct CUmemPoolHandle_st *pool, uint64_t keep);

/** What a GPU's pools have, all of it, when its last context ends. */
void pools_forget(const struct device *device);

/* The parts of a pool, for its own files. */

/** Whether the GPU has got to the free of a block. */
bool block_is_over(const struct block *block);

/** Makes one of two free neighbours (NULL: none) where the same streams may have both. */
bool block_merge(struct block *first, struct block *second);

/** Splits what is more than asked for off a block; false when there is no memory to note that. */
bool block_shorten(struct block *block, uint64_t bytes);

/** A block is free, or no longer. */
void block_list(struct block *block);
void block_unlist(struct block *block);

/** Notes which frees the GPU has got to. */
void pool_settle(struct CUmemPoolHandle_st *pool);

/** Takes a chunk of the GPU's memory; NULL when there is no room. Returns its only block. */
struct block *pool_add_chunk(struct CUmemPoolHandle_st *pool, uint64_t bytes);

/* ---- without ---- */

/** A stream, an event or a context of a GPU was waited for: what is over the threshold goes back.
 */
void pools_synchronized(const struct device *device);

/** A pool handle given by the program. */
CUresult find_pool(CUmemoryPool handle, struct CUmemPoolHandle_st **pool);

/** The GPU that a pool of these properties is charged to, or NULL; an error for what none can have.
 */
CUresult pool_device(const CUmemPoolProps *properties, struct device **device);

/** The pool that a GPU's streams allocate from. */
CUresult current_pool(struct device *device, struct CUmemPoolHandle_st **pool);

/** All living pools. driver.lock. */
extern struct CUmemPoolHandle_st *pools;

#endif
