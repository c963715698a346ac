/* Stream-ordered allocation: the calls. */
#include "capture.h"
#include "pool.h"

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

/* After which kernel the memory is free: of its own GPU's queue, whoever's stream frees it. */
static uint64_t free_after(const struct allocation *allocation, const struct CUstream_st *stream) {
    struct device *device = stream->context->device;
    if (allocation->device != device) {
        device_wait_all(device);
        return 0;
    }
    pthread_mutex_lock(&driver.engine.mutex[device->gpu]);
    uint64_t number = stream_pending(stream);
    pthread_mutex_unlock(&driver.engine.mutex[device->gpu]);
    return number;
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
    const struct operation freeing = {.kind = OPERATION_FREE, .freed = pointer};
    if (captures_any())
        TRY(capture_operation(stream, &freeing, &captured));
    if (captured)
        return CUDA_SUCCESS;
    if (found.kind != MEMORY_POOL)
        return cuMemFree_v2(pointer);
    uint64_t number = free_after(&found, stream);
    pthread_mutex_lock(&driver.lock);
    struct allocation *still = allocation_at(pointer, 0);
    bool there = still != NULL && still->id == found.id;
    if (there)
        pool_free(still, number == 0 ? POOL_NO_STREAM : stream->id, number);
    pthread_mutex_unlock(&driver.lock);
    return there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- twins with the thread's own default stream ------------------------------ */

API cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
    return cuMemAllocFromPoolAsync(pointer, bytes, pool, per_thread(stream));
}

API cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
    return cuMemAllocAsync(pointer, bytes, per_thread(stream));
}

API cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
    return cuMemFreeAsync(pointer, per_thread(stream));
}
