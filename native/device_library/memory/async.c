/*
 * Stream-ordered allocation. The driver takes memory for a pool in chunks, and
 * keeps it when it is freed: so the pool is charged, and of a pointer only its
 * pool is recorded.
 */
#include "account.h"
#include "context.h"
#include "gate/capture.h"
#include "lookup/driver_calls.h"
#include "lookup/real.h"
#include "memory/charge.h"
#include "memory/pools.h"
#include "memory/spill.h"
#include "session.h"

/* The device on which a stream of the application runs. */
static bool device_of_stream(CUstream stream, CUdevice *device) {
    CUcontext context, popped;
    if (ks_session_cells() == 1 || stream == NULL || stream == CU_STREAM_PER_THREAD ||
        KS_DRIVER(stream_get_context)(stream, &context) != CUDA_SUCCESS ||
        KS_DRIVER(context_push)(context) != CUDA_SUCCESS)
        return KS_DRIVER(context_get_device)(device) == CUDA_SUCCESS;
    const CUresult result = KS_DRIVER(context_get_device)(device);
    KS_DRIVER(context_pop)(&popped);
    return result == CUDA_SUCCESS;
}

/* The driver is asked as seldom as can be: each question takes as long as all else here. Where the
 * session has one GPU, all contexts are on that one, and its pool is remembered as that of device
 * 0. */
static struct ks_pool *pool_of_stream(CUstream stream) {
    const bool is_only = ks_session_cells() == 1;
    CUdevice device = 0;
    CUmemoryPool handle;
    uint64_t seen;
    if (!is_only && !device_of_stream(stream, &device))
        return NULL;
    struct ks_pool *pool = ks_pool_known(device, &seen);
    if (pool != NULL)
        return pool;
    const CUdevice place = device;
    if ((is_only && !device_of_stream(stream, &device)) ||
        KS_DRIVER(pool_of_device)(&handle, device) != CUDA_SUCCESS)
        return NULL;
    pool = ks_pool_of_device(handle, device);
    if (pool != NULL)
        ks_pool_remember(place, seen, pool);
    return pool;
}

/* At the limit, an allocation may still use room that the pool has; `promised` is how much of it.
 */
static CUresult begin(struct ks_pool *pool, uint64_t bytes, uint64_t *promised) {
    *promised = 0;
    if (ks_session_is_revoked())
        return CUDA_ERROR_NOT_PERMITTED;
    ks_reserve_gives(&pool->reserve);
    if (ks_reserve_begin(&pool->reserve, ks_round_up(bytes, KS_CHUNK_BYTES)) == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    *promised = ks_round_up(bytes, KS_MEMORY_UNIT);
    const CUresult result = ks_reserve_begin_within(&pool->reserve, *promised);
    if (result != CUDA_SUCCESS)
        ks_reserve_has_less(&pool->reserve);
    return result;
}

/* The memory returns to the pool only when the stream has reached the free. */
static void undo(struct ks_pool *pool, CUdeviceptr pointer, CUstream stream) {
    ks_reserve_frees(&pool->reserve);
    if (KS_DRIVER(memory_free_async)(pointer, stream) == CUDA_SUCCESS)
        KS_DRIVER(stream_synchronize)(stream);
    ks_reserve_has_less(&pool->reserve);
    KS_DRIVER(pool_trim)(atomic_load(&pool->handle), 0);
    ks_reserve_look(&pool->reserve);
}

static CUresult finish(struct ks_pool *pool, uint64_t bytes, uint64_t promised,
                       CUdeviceptr *pointer, CUstream stream, CUresult result) {
    const bool fits = ks_reserve_end(&pool->reserve, promised);
    if (result != CUDA_SUCCESS) {
        ks_reserve_has_less(&pool->reserve);
        return result;
    }
    const struct ks_allocation allocation = {
        .kind = KS_POOL_MEMORY,
        .handle = *pointer,
        .bytes = ks_round_up(bytes, KS_MEMORY_UNIT),
        .owner = (uint64_t)(uintptr_t)pool,
        .cell = (uint16_t)pool->reserve.cell,
    };
    if (fits && ks_allocations_add(&allocation))
        return CUDA_SUCCESS;
    undo(pool, *pointer, stream);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* A pool that is not charged, and a stream that is being captured, only concern the driver. */
#define KS_ALLOCATE_ASYNC(find_pool, stream, call)                                                 \
    struct ks_pool *const from =                                                                   \
        ks_session_is_open() && !ks_is_captured(stream) ? (find_pool) : NULL;                      \
    if (from == NULL || !from->charged)                                                            \
        return (call);                                                                             \
    uint64_t promised;                                                                             \
    const CUresult begun = begin(from, bytes, &promised);                                          \
    return begun == CUDA_SUCCESS ? finish(from, bytes, promised, pointer, stream, call)            \
                                 : ks_refused(begun, pointer == NULL)

int cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
    KS_ALLOCATE_ASYNC(pool_of_stream(stream), stream,
                      KS_REAL(cuMemAllocAsync)(pointer, bytes, stream));
}

int cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
    KS_ALLOCATE_ASYNC(pool_of_stream(stream), KS_STREAM_PER_THREAD(stream),
                      KS_REAL(cuMemAllocAsync_ptsz)(pointer, bytes, stream));
}

int cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                            CUstream stream) {
    KS_ALLOCATE_ASYNC(ks_pool_of_handle(pool), stream,
                      KS_REAL(cuMemAllocFromPoolAsync)(pointer, bytes, pool, stream));
}

int cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
    KS_ALLOCATE_ASYNC(ks_pool_of_handle(pool), KS_STREAM_PER_THREAD(stream),
                      KS_REAL(cuMemAllocFromPoolAsync_ptsz)(pointer, bytes, pool, stream));
}

/* ---- free ------------------------------------------------------------------------------ */

/* Also frees memory that was allocated without a stream; in a capture nothing is freed now. */
#define KS_FREE_ASYNC(stream, call)                                                                \
    struct ks_allocation allocation;                                                               \
    if (!ks_session_is_open() || ks_is_captured(stream))                                           \
        return (call);                                                                             \
    if (ks_pool_frees(pointer, &allocation))                                                       \
        return ks_pool_frees_later(&allocation, call);                                             \
    if (ks_allocations_take(KS_MEMORY, pointer, &allocation))                                      \
        return ks_freed(&allocation, call);                                                        \
    if (ks_allocations_find(KS_SPILLED, pointer, &allocation))                                     \
        return ks_spill_free_in_stream(&allocation, stream);                                       \
    if (ks_spill_is_freed(pointer))                                                                \
        return CUDA_ERROR_INVALID_VALUE;                                                           \
    return (call)

int cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
    KS_FREE_ASYNC(stream, KS_REAL(cuMemFreeAsync)(pointer, stream));
}

int cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
    KS_FREE_ASYNC(KS_STREAM_PER_THREAD(stream), KS_REAL(cuMemFreeAsync_ptsz)(pointer, stream));
}
