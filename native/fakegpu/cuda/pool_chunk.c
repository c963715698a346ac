/* What a pool has of its GPU: chunks, and the blocks that they are divided into. */
#include "pool.h"

#include <stdlib.h>
#include <sys/mman.h>

/* ---- blocks ------------------------------------------------------------------ */

bool block_is_over(const struct block *block) {
    const struct device *device = block->chunk->pool->device;
    return block->stream == POOL_NO_STREAM || device == NULL ||
           engine_completed(&driver.engine, device->gpu, device->client, block->number);
}

void block_list(struct block *block) {
    struct CUmemPoolHandle_st *pool = block->chunk->pool;
    block->free_previous = NULL;
    block->free_next = pool->free;
    if (pool->free != NULL)
        pool->free->free_previous = block;
    pool->free = block;
}

void block_unlist(struct block *block) {
    if (block->free_previous != NULL)
        block->free_previous->free_next = block->free_next;
    else
        block->chunk->pool->free = block->free_next;
    if (block->free_next != NULL)
        block->free_next->free_previous = block->free_previous;
}

/* A free one, and not a chunk's first. */
static void unlink_block(struct block *block) {
    block_unlist(block);
    block->previous->next = block->next;
    if (block->next != NULL)
        block->next->previous = block->previous;
    free(block);
}

/* Two free neighbours become one where the same streams may have both. */
bool block_merge(struct block *first, struct block *second) {
    if (first == NULL || second == NULL || first->used || second->used ||
        first->stream != second->stream)
        return false;
    first->size += second->size;
    if (second->number > first->number)
        first->number = second->number;
    unlink_block(second);
    return true;
}

/* Notes which frees the GPU has got to. */
void pool_settle(struct CUmemPoolHandle_st *pool) {
    for (struct block *block = pool->free; block != NULL; block = block->free_next)
        if (block_is_over(block))
            block->stream = POOL_NO_STREAM;
    for (struct block *block = pool->free; block != NULL; block = block->free_next)
        while (block_merge(block, block->next))
            ;
}

/* Splits what is more than asked for off a block. */
bool block_shorten(struct block *block, uint64_t bytes) {
    if (block->size == bytes)
        return true;
    struct block *rest = malloc(sizeof *rest);
    if (rest == NULL)
        return false;
    *rest = *block;
    rest->base += bytes;
    rest->size -= bytes;
    rest->previous = block;
    if (rest->next != NULL)
        rest->next->previous = rest;
    block->next = rest;
    block->size = bytes;
    block_list(rest);
    return true;
}

/* ---- chunks ------------------------------------------------------------------ */

/* How many there are, of all pools: none, and a synchronisation has nothing to do. */
static unsigned chunks; /* atomic */

static void end_chunk(struct chunk **place) {
    struct chunk *chunk = *place;
    struct CUmemPoolHandle_st *pool = chunk->pool;
    *place = chunk->next;
    munmap((void *)chunk->base, chunk->size);
    if (pool->backing.fd >= 0)
        backing_give(&pool->backing, chunk->offset, chunk->size);
    if (pool->device != NULL)
        device_uncharge(pool->device, chunk->size);
    pool->reserved -= chunk->size;
    while (chunk->blocks->next != NULL)
        unlink_block(chunk->blocks->next);
    block_unlist(chunk->blocks);
    free(chunk->blocks);
    free(chunk);
    __atomic_fetch_sub(&chunks, 1, __ATOMIC_RELAXED);
}

static uint64_t map(struct CUmemPoolHandle_st *pool, uint64_t bytes, uint64_t *offset) {
    if (pool->backing.fd >= 0)
        return backing_take(&pool->backing, bytes, offset)
                   ? backing_map(pool->backing.fd, *offset, bytes, 0)
                   : 0;
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return mapped == MAP_FAILED ? 0 : (uint64_t)mapped;
}

struct block *pool_add_chunk(struct CUmemPoolHandle_st *pool, uint64_t bytes) {
    uint64_t most = pool->properties.maxSize;
    if (most != 0 && (bytes > most || pool->reserved > most - bytes))
        return NULL;
    struct chunk *chunk = calloc(1, sizeof *chunk);
    struct block *block = calloc(1, sizeof *block);
    bool charged = chunk != NULL && block != NULL &&
                   (pool->device == NULL || device_charge(pool->device, bytes));
    if (!charged || (chunk->base = map(pool, bytes, &chunk->offset)) == 0) {
        if (charged && pool->device != NULL)
            device_uncharge(pool->device, bytes);
        free(block);
        free(chunk);
        return NULL;
    }
    *block = (struct block){.chunk = chunk, .base = chunk->base, .size = bytes};
    chunk->pool = pool;
    chunk->size = bytes;
    chunk->blocks = block;
    chunk->next = pool->chunks;
    pool->chunks = chunk;
    block_list(block);
    pool->reserved += bytes;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    __atomic_fetch_add(&chunks, 1, __ATOMIC_RELAXED);
    return block;
}

void pool_trim(struct CUmemPoolHandle_st *pool, uint64_t keep) {
    pool_settle(pool);
    for (struct chunk **place = &pool->chunks; *place != NULL;) {
        const struct block *first = (*place)->blocks;
        bool unused = (*place)->used == 0 && first->next == NULL && first->stream == POOL_NO_STREAM;
        if (unused && pool->reserved >= keep + (*place)->size)
            end_chunk(place);
        else
            place = &(*place)->next;
    }
}

void pool_empty(struct CUmemPoolHandle_st *pool) {
    for (struct block *block = pool->free; block != NULL; block = block->free_next)
        block->stream = POOL_NO_STREAM;
    pool_trim(pool, 0);
}

void pools_synchronized(const struct device *device) {
    if (__atomic_load_n(&chunks, __ATOMIC_RELAXED) == 0)
        return;
    pthread_mutex_lock(&driver.lock);
    for (struct CUmemPoolHandle_st *pool = pools; pool != NULL; pool = pool->next)
        if (pool->device == device && pool->reserved > pool->threshold)
            pool_trim(pool, pool->threshold);
    pthread_mutex_unlock(&driver.lock);
}
