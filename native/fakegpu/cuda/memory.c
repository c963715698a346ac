/*
 * Memory. What counts is the account: a GPU's memory runs out over all
 * processes. The bytes themselves are this process's own, mapped but not
 * touched until it is written, so that gigabytes cost nothing.
 *
 * Charged are whole units: 512 bytes below 1 MiB, 2 MiB pages above. (A real
 * driver also takes 2 MiB at once for its first small allocation.)
 */
#include "capture.h"
#include "graph_memory.h"
#include "managed.h"
#include "pool.h"

#include <stdatomic.h>
#include <sys/mman.h>

#define SMALL_LIMIT (UINT64_C(1) << 20)
#define PITCH_UNIT  UINT64_C(512)

#define LOW_FIRST UINT64_C(0x20000000)
#define LOW_END   UINT64_C(0x100000000)

/* With `low` below 4 GiB, where the addresses of the oldest ABIs end. */
static void *map(uint64_t bytes, bool low) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
#ifdef MAP_32BIT
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | (low ? MAP_32BIT : 0), -1, 0);
#else
    static _Atomic uint64_t next = LOW_FIRST;
    if (!low)
        return mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    const uint64_t wanted = atomic_fetch_add(&next, round_up(bytes, UNIT_PAGE));
    void *mapped = mmap((void *)wanted, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (mapped == MAP_FAILED || (uint64_t)mapped + bytes <= LOW_END)
        return mapped;
    munmap(mapped, bytes);
    return MAP_FAILED;
#endif
}

CUresult memory_allocate(uint64_t bytes, enum memory_kind kind, unsigned flags, bool low,
                         uint64_t *base) {
    struct CUctx_st *context;
    TRY(current_context(&context));
    TRY(unsafe_call());
    REQUIRE(bytes > 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(bytes <= UINT64_C(1) << 46, CUDA_ERROR_OUT_OF_MEMORY);
    struct device *device = context->device;
    uint64_t charged =
        kind == MEMORY_HOST ? 0 : round_up(bytes, bytes < SMALL_LIMIT ? UNIT_SMALL : UNIT_PAGE);
    if (charged > 0 && !device_charge(device, charged)) {
        /* Managed memory that finds no room on the GPU stays in that of the host. */
        REQUIRE(kind == MEMORY_MANAGED, CUDA_ERROR_OUT_OF_MEMORY);
        charged = 0;
    }
    void *mapped = map(bytes, low);
    struct allocation allocation = {.base = (uint64_t)mapped,
                                    .size = bytes,
                                    .charged = charged,
                                    .kind = kind,
                                    .flags = flags,
                                    .context = owning_context(context),
                                    .device = device};
    if (kind == MEMORY_MANAGED)
        allocation.managed.preferred = allocation.managed.prefetched = MANAGED_AT_NOWHERE;
    bool inserted = false;
    if (mapped != MAP_FAILED) {
        pthread_mutex_lock(&driver.lock);
        inserted = allocation_add(&allocation);
        pthread_mutex_unlock(&driver.lock);
        if (!inserted)
            munmap(mapped, bytes);
    }
    if (!inserted && charged > 0)
        device_uncharge(device, charged);
    REQUIRE(inserted, CUDA_ERROR_OUT_OF_MEMORY);
    *base = allocation.base;
    return CUDA_SUCCESS;
}

static bool can_be_freed(const struct allocation *allocation, bool host) {
    switch (allocation->kind) {
    case MEMORY_HOST:
        return host;
    case MEMORY_DEVICE:
    case MEMORY_MANAGED:
    case MEMORY_POOL:
    case MEMORY_IMPORTED:
    case MEMORY_GRAPH:
        return !host;
    default:
        return false;
    }
}

/* Work that may still use the memory ends first, as with the real driver. */
static CUresult release(uint64_t base, bool host) {
    struct allocation found;
    TRY(driver_ready());
    TRY(unsafe_call());
    REQUIRE(find_allocation(base, 0, &found) && found.base == base && can_be_freed(&found, host),
            CUDA_ERROR_INVALID_VALUE);
    if (found.context != NULL) {
        context_wait(found.context);
        TRY(context_fault(found.context));
    } else if (found.device != NULL) {
        device_wait_all(found.device);
    }
    if (found.kind == MEMORY_GRAPH)
        return graph_memory_give(base) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    struct allocation *still = allocation_at(base, 0);
    if (still != NULL && still->id == found.id) {
        if (still->kind == MEMORY_POOL)
            pool_free(still, POOL_NO_STREAM, 0);
        else
            allocation_drop(still);
    }
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

API cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    uint64_t base;
    REQUIRE(pointer != NULL, CUDA_ERROR_INVALID_VALUE);
    TRY(memory_allocate(bytes, MEMORY_DEVICE, 0, false, &base));
    *pointer = base;
    return CUDA_SUCCESS;
}

API cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                       unsigned int element) {
    uint64_t base;
    REQUIRE(pointer != NULL && pitch != NULL && width > 0 && height > 0 &&
                (element == 4 || element == 8 || element == 16),
            CUDA_ERROR_INVALID_VALUE);
    uint64_t row = round_up(width, PITCH_UNIT);
    REQUIRE(row >= width && height <= UINT64_MAX / row, CUDA_ERROR_OUT_OF_MEMORY);
    TRY(memory_allocate(row * height, MEMORY_DEVICE, 0, false, &base));
    *pointer = base;
    *pitch = row;
    return CUDA_SUCCESS;
}

API cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags) {
    uint64_t base;
    REQUIRE(pointer != NULL && (flags == 1 || flags == 2), CUDA_ERROR_INVALID_VALUE);
    TRY(memory_allocate(bytes, MEMORY_MANAGED, 0, false, &base));
    *pointer = base;
    return CUDA_SUCCESS;
}

API cuMemFree_v2(CUdeviceptr pointer) {
    TRY(driver_ready());
    return pointer == 0 ? CUDA_SUCCESS : release(pointer, false);
}

API cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags) {
    uint64_t base;
    REQUIRE(pointer != NULL && flags < 8, CUDA_ERROR_INVALID_VALUE);
    TRY(memory_allocate(bytes, MEMORY_HOST, flags, false, &base));
    *pointer = (void *)base;
    return CUDA_SUCCESS;
}

API cuMemAllocHost_v2(void **pointer, size_t bytes) {
    return cuMemHostAlloc(pointer, bytes, 0);
}

API cuMemFreeHost(void *pointer) {
    return release((uint64_t)pointer, true);
}

API cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags) {
    struct CUctx_st *context;
    struct allocation found;
    TRY(current_context(&context));
    REQUIRE(pointer != NULL && bytes > 0 && flags < 16, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(!find_allocation((uint64_t)pointer, 1, &found),
            CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    struct allocation added = {.base = (uint64_t)pointer,
                               .size = bytes,
                               .kind = MEMORY_REGISTERED,
                               .flags = flags,
                               .context = owning_context(context),
                               .device = context->device};
    pthread_mutex_lock(&driver.lock);
    bool inserted = allocation_add(&added);
    pthread_mutex_unlock(&driver.lock);
    return inserted ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuMemHostUnregister(void *pointer) {
    TRY(driver_ready());
    pthread_mutex_lock(&driver.lock);
    struct allocation *found = allocation_at((uint64_t)pointer, 0);
    bool registered =
        found != NULL && found->base == (uint64_t)pointer && found->kind == MEMORY_REGISTERED;
    if (registered)
        allocation_drop(found);
    pthread_mutex_unlock(&driver.lock);
    return registered ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

API cuMemGetInfo_v2(size_t *free, size_t *total) {
    struct CUctx_st *context;
    TRY(current_context(&context));
    uint32_t gpu = context->device->gpu;
    engine_enter(&driver.engine, gpu);
    engine_reap(&driver.engine, gpu);
    uint64_t bytes = driver.engine.state->gpu[gpu].memory_bytes;
    uint64_t used = engine_memory_used(&driver.engine, gpu);
    engine_leave(&driver.engine, gpu);
    if (free != NULL)
        *free = bytes - used;
    if (total != NULL)
        *total = bytes;
    return CUDA_SUCCESS;
}
