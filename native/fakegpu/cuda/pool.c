/* Which block a stream gets of a pool, and what becomes of it when it is freed. */
#include "pool.h"

#include "queue.h"

enum reuse { REUSE_NOT, REUSE_AFTER_WAITING, REUSE_AT_ONCE };

/* Whether a stream may have a block that another one freed, and at what price. */
static enum reuse reusable(const struct block *block, const struct CUstream_st *stream,
                           uint64_t progress) {
    const struct CUmemPoolHandle_st *pool = block->chunk->pool;
    if (block->stream == POOL_NO_STREAM || (pool->opportunistic && block_is_over(block)))
        return REUSE_AT_ONCE;
    if (stream == NULL || stream->context->device != pool->device)
        return REUSE_NOT;
    if (block->stream == stream->id || (pool->follow_events && progress >= block->number))
        return REUSE_AT_ONCE;
    return pool->internal_dependencies && !driver.has_hardware_queues ? REUSE_AFTER_WAITING
                                                                      : REUSE_NOT;
}

static struct block *best(const struct CUmemPoolHandle_st *pool, uint64_t bytes,
                          const struct CUstream_st *stream, uint64_t progress, enum reuse *price) {
    struct block *found = NULL;
    *price = REUSE_NOT;
    for (struct block *block = pool->free; block != NULL; block = block->free_next) {
        if (block->size < bytes)
            continue;
        enum reuse reuse = reusable(block, stream, progress);
        if (reuse > *price || (found != NULL && reuse == *price && block->size < found->size)) {
            found = block;
            *price = reuse;
        }
    }
    return found;
}

/* What a stream is known to come after; with several queues that is no one number. In one's own
 * process no other lock is needed for that. */
static uint64_t progress_of(const struct CUstream_st *stream) {
    struct front pending;
    if (stream == NULL || driver.has_hardware_queues)
        return 0;
    pthread_mutex_t *mutex = &driver.engine.mutex[stream->context->device->gpu];
    pthread_mutex_lock(mutex);
    stream_pending(stream, &pending);
    pthread_mutex_unlock(mutex);
    return front_greatest(&pending);
}

static void wait_in_stream(struct CUstream_st *stream, uint64_t number) {
    uint32_t gpu = stream->context->device->gpu;
    engine_enter(&driver.engine, gpu);
    stream_busy(stream, number);
    engine_leave(&driver.engine, gpu);
}

struct block *pool_take(struct CUmemPoolHandle_st *pool, uint64_t bytes,
                        struct CUstream_st *stream) {
    enum reuse price;
    uint64_t progress = progress_of(stream);
    /* Another process maps whole pages. */
    uint64_t asked = round_up(bytes, pool->backing.fd >= 0 ? BACKING_PAGE : UNIT_SMALL);
    struct block *block = best(pool, asked, stream, progress, &price);
    if (block == NULL && pool->opportunistic) {
        pool_settle(pool);
        block = best(pool, asked, stream, progress, &price);
    }
    if (block == NULL)
        block = pool_add_chunk(pool, round_up(asked, POOL_CHUNK));
    if (block == NULL)
        block = pool_add_chunk(pool, round_up(asked, UNIT_PAGE));
    if (block == NULL || !block_shorten(block, asked))
        return NULL;
    if (price == REUSE_AFTER_WAITING)
        wait_in_stream(stream, block->number);
    block->used = true;
    block->chunk->used++;
    block_unlist(block);
    pool->used += block->size;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    return block;
}

void pool_give(struct block *block, uint64_t stream, uint64_t number) {
    struct chunk *chunk = block->chunk;
    chunk->pool->used -= block->size;
    chunk->used--;
    block->used = false;
    block->stream = stream;
    block->number = number;
    block_list(block);
    block_merge(block, block->next);
    block_merge(block->previous, block);
}

void pool_free(struct allocation *allocation, uint64_t stream, uint64_t number) {
    struct block *block = allocation->block;
    struct CUmemPoolHandle_st *pool = block->chunk->pool;
    allocation_remove(allocation);
    pool_give(block, stream, number);
    if (pool->destroyed && pool->used == 0)
        pool_end(pool);
}
