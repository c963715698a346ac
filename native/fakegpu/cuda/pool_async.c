/* Stream-ordered allocation: the calls. */
#include "capture.h"
#include "deferred.h"
#include "graph.h"
#include "pool.h"
#include "queue.h"

static CUresult allocate(CUdeviceptr *pointer, uint64_t bytes, struct CUmemPoolHandle_st *pool,
                         struct CUstream_st *stream) {
    REQUIRE(!pool->imported, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(bytes <= UINT64_C(1) << 46, CUDA_ERROR_OUT_OF_MEMORY);
    pthread_mutex_lock(&driver.lock);
    struct block *block = pool_take(pool, bytes, stream);
    bool inserted = false;
    if (block != NULL) {
        struct allocation allocation = {.base = block->base,
                                        .size = bytes,
                                        .kind = MEMORY_POOL,
                                        .shared = pool->backing.fd >= 0,
                                        .device = pool->device,
                                        .block = block};
        inserted = allocation_add(&allocation);
        if (inserted)
            *pointer = block->base;
        else
            pool_give(block, POOL_NO_STREAM, 0);
    }
    pthread_mutex_unlock(&driver.lock);
    return inserted ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool handle,
                            CUstream stream_handle) {
    struct CUmemPoolHandle_st *pool;
    struct CUstream_st *stream;
    TRY(find_stream(stream_handle, &stream));
    TRY(find_pool(handle, &pool));
    REQUIRE(pointer != NULL && bytes > 0, CUDA_ERROR_INVALID_VALUE);
    bool captured = false;
    if (captures_any())
        TRY(capture_allocation(stream, pool->device, bytes, pointer, &captured));
    if (captured)
        return CUDA_SUCCESS;
    return allocate(pointer, bytes, pool, stream);
}

API cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream_handle) {
    struct CUmemPoolHandle_st *pool;
    struct CUstream_st *stream;
    TRY(find_stream(stream_handle, &stream));
    REQUIRE(pointer != NULL && bytes > 0, CUDA_ERROR_INVALID_VALUE);
    bool captured = false;
    if (captures_any())
        TRY(capture_allocation(stream, stream->context->device, bytes, pointer, &captured));
    if (captured)
        return CUDA_SUCCESS;
    TRY(current_pool(stream->context->device, &pool));
    return allocate(pointer, bytes, pool, stream);
}

/* After which kernel the memory is free: of its own GPU's queue, on whichever stream it is freed.
 */
static uint64_t free_after(const struct allocation *allocation, struct CUstream_st *stream) {
    struct device *device = stream->context->device;
    if (allocation->device != device) {
        device_wait_all(device);
        return 0;
    }
    if (driver.has_hardware_queues)
        return stream_mark(stream);
    struct front pending;
    pthread_mutex_lock(&driver.engine.mutex[device->gpu]);
    stream_pending(stream, &pending);
    pthread_mutex_unlock(&driver.engine.mutex[device->gpu]);
    return front_greatest(&pending);
}

void release_behind(CUdeviceptr pointer, uint64_t id) {
    pthread_mutex_lock(&driver.lock);
    struct allocation *found = allocation_at(pointer, 0);
    if (found != NULL && found->id == id) {
        const struct device *device = found->device;
        uint64_t number = 0;
        if (device != NULL) {
            engine_enter(&driver.engine, device->gpu);
            number = driver.engine.state->gpu[device->gpu].client[device->client].submitted;
            engine_leave(&driver.engine, device->gpu);
        }
        pool_free(found, POOL_NO_OWNER, number);
    }
    pthread_mutex_unlock(&driver.lock);
}

static CUresult free_in_stream(const struct allocation *found, struct CUstream_st *stream) {
    /* What waits in the list may still write there: the free waits with it. */
    if (deferred_holds_stream(stream)) {
        const struct operation release = {
            .kind = OPERATION_RELEASE, .release = {found->base, found->id}
        };
        return stream_do_now(stream, &release);
    }
    uint64_t number = free_after(found, stream);
    pthread_mutex_lock(&driver.lock);
    struct allocation *still = allocation_at(found->base, 0);
    bool there = still != NULL && still->id == found->id;
    if (there)
        pool_free(still, number == 0 ? POOL_NO_STREAM : stream->id, number);
    pthread_mutex_unlock(&driver.lock);
    return there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Whether a stream is captured; then only a graph's memory may be freed, by a node. */
static CUresult free_in_capture(const struct allocation *found, struct CUstream_st *stream,
                                bool *captured) {
    const struct operation freeing = {.kind = OPERATION_FREE, .freed = found->base};
    pthread_mutex_lock(&graphs_lock);
    *captured = stream->capture != NULL;
    pthread_mutex_unlock(&graphs_lock);
    REQUIRE(!*captured || found->kind == MEMORY_GRAPH, CUDA_ERROR_INVALID_VALUE);
    return *captured ? capture_operation(stream, &freeing, captured) : CUDA_SUCCESS;
}

/* What no pool gave is freed as cuMemFree frees it. */
API cuMemFreeAsync(CUdeviceptr pointer, CUstream handle) {
    struct CUstream_st *stream;
    struct allocation found;
    TRY(find_stream(handle, &stream));
    if (pointer == 0)
        return CUDA_SUCCESS;
    REQUIRE(find_allocation(pointer, 0, &found) && found.base == pointer, CUDA_ERROR_INVALID_VALUE);
    bool captured = false;
    if (captures_any())
        TRY(free_in_capture(&found, stream, &captured));
    if (captured)
        return CUDA_SUCCESS;
    return found.kind == MEMORY_POOL ? free_in_stream(&found, stream) : cuMemFree_v2(pointer);
}
