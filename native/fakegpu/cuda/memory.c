/*
 * Memory. What counts is the account: a GPU's memory runs out over all
 * processes. The bytes themselves are this process's own, mapped but not
 * touched until somebody writes, so that gigabytes cost nothing.
 *
 * Charged are whole units: 512 bytes below 1 MiB, 2 MiB pages above. (A real
 * driver also takes 2 MiB at once for its first small allocation.)
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "allocation.h"

#define SMALL_LIMIT (UINT64_C(1) << 20)
#define SMALL_UNIT  UINT64_C(512)
#define LARGE_UNIT  (UINT64_C(2) << 20)
#define PITCH_UNIT  UINT64_C(512)

/* By address; driver.lock. */
static struct {
    struct allocation *entry;
    size_t used, room;
} table;

static uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

/* ---- the table (driver.lock held) ---------------------------------------- */

/* The first entry whose base is above the address. */
static size_t above(uint64_t address) {
    size_t low = 0, high = table.used;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table.entry[middle].base > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static struct allocation *holding(uint64_t address, uint64_t bytes) {
    size_t next = above(address);
    if (next == 0)
        return NULL;
    struct allocation *found = &table.entry[next - 1];
    uint64_t offset = address - found->base;
    return offset < found->size && bytes <= found->size - offset ? found : NULL;
}

static bool insert(const struct allocation *allocation) {
    if (table.used == table.room) {
        size_t room = table.room == 0 ? 64 : table.room * 2;
        struct allocation *grown = realloc(table.entry, room * sizeof *grown);
        if (grown == NULL)
            return false;
        table.entry = grown;
        table.room = room;
    }
    size_t place = above(allocation->base);
    memmove(&table.entry[place + 1], &table.entry[place],
            (table.used - place) * sizeof *table.entry);
    table.entry[place] = *allocation;
    table.used++;
    return true;
}

static void drop(struct allocation *allocation) {
    struct device *device = allocation->context->device;
    if (allocation->charged > 0) {
        engine_enter(&driver.engine, device->gpu);
        engine_release(&driver.engine, device->gpu, device->client, allocation->charged);
        engine_leave(&driver.engine, device->gpu);
    }
    if (allocation->kind != MEMORY_REGISTERED)
        munmap((void *)allocation->base, allocation->size);
    size_t place = (size_t)(allocation - table.entry);
    table.used--;
    memmove(allocation, allocation + 1, (table.used - place) * sizeof *table.entry);
}

void release_memory_of(const struct CUctx_st *context) {
    for (size_t i = table.used; i > 0; i--)
        if (table.entry[i - 1].context == context)
            drop(&table.entry[i - 1]);
}

bool find_allocation(uint64_t address, uint64_t bytes, struct allocation *copy) {
    pthread_mutex_lock(&driver.lock);
    const struct allocation *found = holding(address, bytes);
    if (found != NULL)
        *copy = *found;
    pthread_mutex_unlock(&driver.lock);
    return found != NULL;
}

/* ---- allocating ------------------------------------------------------------ */

static bool charge(struct CUctx_st *context, uint64_t bytes) {
    struct device *device = context->device;
    engine_enter(&driver.engine, device->gpu);
    bool room = engine_allocate(&driver.engine, device->gpu, device->client, bytes);
    engine_leave(&driver.engine, device->gpu);
    return room;
}

static void uncharge(struct CUctx_st *context, uint64_t bytes) {
    struct device *device = context->device;
    engine_enter(&driver.engine, device->gpu);
    engine_release(&driver.engine, device->gpu, device->client, bytes);
    engine_leave(&driver.engine, device->gpu);
}

static CUresult allocate(uint64_t bytes, enum memory_kind kind, uint64_t *base) {
    struct CUctx_st *context;
    TRY(current_context(&context));
    REQUIRE(bytes > 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(bytes <= UINT64_C(1) << 46, CUDA_ERROR_OUT_OF_MEMORY);
    uint64_t charged =
        kind == MEMORY_HOST ? 0 : round_up(bytes, bytes < SMALL_LIMIT ? SMALL_UNIT : LARGE_UNIT);
    REQUIRE(charged == 0 || charge(context, charged), CUDA_ERROR_OUT_OF_MEMORY);
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct allocation allocation = {(uint64_t)mapped, bytes, charged, kind, context};
    bool inserted = false;
    if (mapped != MAP_FAILED) {
        pthread_mutex_lock(&driver.lock);
        inserted = insert(&allocation);
        pthread_mutex_unlock(&driver.lock);
        if (!inserted)
            munmap(mapped, bytes);
    }
    if (!inserted && charged > 0)
        uncharge(context, charged);
    REQUIRE(inserted, CUDA_ERROR_OUT_OF_MEMORY);
    *base = allocation.base;
    return CUDA_SUCCESS;
}

/* Work that may still use the memory ends first, as with the real driver. */
static CUresult release(uint64_t base, bool host) {
    struct allocation found;
    TRY(driver_ready());
    REQUIRE(find_allocation(base, 0, &found) && found.base == base, CUDA_ERROR_INVALID_VALUE);
    REQUIRE((found.kind == MEMORY_HOST) == host && found.kind != MEMORY_REGISTERED,
            CUDA_ERROR_INVALID_VALUE);
    context_wait(found.context);
    pthread_mutex_lock(&driver.lock);
    struct allocation *still = holding(base, 0);
    if (still != NULL && still->base == base)
        drop(still);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

API cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    uint64_t base;
    REQUIRE(pointer != NULL, CUDA_ERROR_INVALID_VALUE);
    TRY(allocate(bytes, MEMORY_DEVICE, &base));
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
    TRY(allocate(row * height, MEMORY_DEVICE, &base));
    *pointer = base;
    *pitch = row;
    return CUDA_SUCCESS;
}

API cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags) {
    uint64_t base;
    REQUIRE(pointer != NULL && (flags == 1 || flags == 2), CUDA_ERROR_INVALID_VALUE);
    TRY(allocate(bytes, MEMORY_MANAGED, &base));
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
    TRY(allocate(bytes, MEMORY_HOST, &base));
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
    struct allocation added = {(uint64_t)pointer, bytes, 0, MEMORY_REGISTERED, context};
    pthread_mutex_lock(&driver.lock);
    bool inserted = insert(&added);
    pthread_mutex_unlock(&driver.lock);
    return inserted ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuMemHostUnregister(void *pointer) {
    TRY(driver_ready());
    pthread_mutex_lock(&driver.lock);
    struct allocation *found = holding((uint64_t)pointer, 0);
    bool registered =
        found != NULL && found->base == (uint64_t)pointer && found->kind == MEMORY_REGISTERED;
    if (registered)
        drop(found);
    pthread_mutex_unlock(&driver.lock);
    return registered ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

/* ---- questions ----------------------------------------------------------------- */

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

API cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr pointer) {
    struct allocation found;
    TRY(driver_ready());
    REQUIRE(find_allocation(pointer, 0, &found), CUDA_ERROR_NOT_FOUND);
    if (base != NULL)
        *base = found.base;
    if (size != NULL)
        *size = found.size;
    return CUDA_SUCCESS;
}

API cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *pointer, unsigned int flags) {
    struct allocation found;
    TRY(driver_ready());
    REQUIRE(device != NULL && flags == 0 && find_allocation((uint64_t)pointer, 0, &found) &&
                (found.kind == MEMORY_HOST || found.kind == MEMORY_REGISTERED),
            CUDA_ERROR_INVALID_VALUE);
    *device = (uint64_t)pointer;
    return CUDA_SUCCESS;
}

static CUresult answer(void *data, CUpointer_attribute attribute, uint64_t pointer,
                       const struct allocation *found) {
    bool host = found->kind == MEMORY_HOST || found->kind == MEMORY_REGISTERED;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = found->context;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = pointer;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        REQUIRE(found->kind != MEMORY_DEVICE, CUDA_ERROR_INVALID_VALUE);
        *(void **)data = (void *)pointer;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)data = found->kind == MEMORY_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = (int)(found->context->device - driver.devices);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = found->base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = found->size;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

API cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer) {
    struct allocation found;
    TRY(driver_ready());
    REQUIRE(data != NULL && find_allocation(pointer, 0, &found), CUDA_ERROR_INVALID_VALUE);
    return answer(data, attribute, pointer, &found);
}
