/* Pools as objects: which there are, which is current, and what they say of themselves. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool.h"

struct CUmemPoolHandle_st *pools;

/* By ordinal; driver.lock. */
static struct CUmemPoolHandle_st *default_pool[GPUS_MAX], *chosen_pool[GPUS_MAX];

/* ---- beginning and end (driver.lock held) ------------------------------------- */

static bool may_be_exported(const CUmemPoolProps *properties) {
    return properties->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

static bool make_backing(struct CUmemPoolHandle_st *pool) {
    struct backing_header header = {.kind = BACKING_POOL, .properties.pool = pool->properties};
    if (pool->device != NULL)
        memcpy(header.uuid, driver.engine.state->gpu[pool->device->gpu].uuid, sizeof header.uuid);
    return backing_make(&pool->backing, &header);
}

struct CUmemPoolHandle_st *pool_make(const CUmemPoolProps *properties, struct device *device) {
    struct CUmemPoolHandle_st *pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        return NULL;
    pool->device = device;
    pool->properties = *properties;
    pool->follow_events = pool->opportunistic = pool->internal_dependencies = 1;
    pool->backing.fd = -1;
    if (may_be_exported(properties) && !make_backing(pool)) {
        free(pool);
        return NULL;
    }
    pool->next = pools;
    pools = pool;
    return pool;
}

void pool_end(struct CUmemPoolHandle_st *pool) {
    struct CUmemPoolHandle_st **place = &pools;
    while (*place != pool)
        place = &(*place)->next;
    *place = pool->next;
    pool_empty(pool);
    if (pool->backing.fd >= 0)
        close(pool->backing.fd);
    free(pool);
}

static bool is_block_of(const struct allocation *allocation, const void *device) {
    return allocation->kind == MEMORY_POOL && allocation->device == device;
}

void pools_forget(const struct device *device) {
    struct allocation *left;
    while ((left = allocation_where(is_block_of, device)) != NULL)
        pool_free(left, POOL_NO_STREAM, 0);
    for (struct CUmemPoolHandle_st *pool = pools; pool != NULL; pool = pool->next)
        if (pool->device == device)
            pool_empty(pool);
}

/* ---- handles --------------------------------------------------------------------- */

static bool known(const struct CUmemPoolHandle_st *handle) {
    const struct CUmemPoolHandle_st *pool = pools;
    while (pool != NULL && pool != handle)
        pool = pool->next;
    return pool != NULL && !pool->destroyed;
}

CUresult find_pool(CUmemoryPool handle, struct CUmemPoolHandle_st **pool) {
    TRY(driver_ready());
    pthread_mutex_lock(&driver.lock);
    bool found = known(handle);
    pthread_mutex_unlock(&driver.lock);
    REQUIRE(found, CUDA_ERROR_INVALID_VALUE);
    *pool = handle;
    return CUDA_SUCCESS;
}

static CUresult pool_of(struct device *device, bool chosen, struct CUmemPoolHandle_st **pool) {
    int ordinal = (int)(device - driver.devices);
    CUmemPoolProps usual = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, {ordinal}}
    };
    pthread_mutex_lock(&driver.lock);
    *pool = chosen ? chosen_pool[ordinal] : NULL;
    if (*pool == NULL && default_pool[ordinal] == NULL && device_attach(device)) {
        default_pool[ordinal] = pool_make(&usual, device);
        if (default_pool[ordinal] != NULL)
            default_pool[ordinal]->is_default = true;
    }
    if (*pool == NULL)
        *pool = default_pool[ordinal];
    pthread_mutex_unlock(&driver.lock);
    return *pool == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult current_pool(struct device *device, struct CUmemPoolHandle_st **pool) {
    return pool_of(device, true, pool);
}

/* ---- which is current -------------------------------------------------------------- */

API cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice ordinal) {
    struct device *device;
    TRY(find_device(ordinal, &device));
    REQUIRE(pool != NULL, CUDA_ERROR_INVALID_VALUE);
    return pool_of(device, false, pool);
}

API cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice ordinal) {
    struct device *device;
    TRY(find_device(ordinal, &device));
    REQUIRE(pool != NULL, CUDA_ERROR_INVALID_VALUE);
    return pool_of(device, true, pool);
}

API cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
    struct device *device;
    struct CUmemPoolHandle_st *pool;
    TRY(find_device(ordinal, &device));
    TRY(find_pool(handle, &pool));
    REQUIRE(pool->device == device && !pool->imported, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    chosen_pool[ordinal] = pool;
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

/* The same by location. Only pinned memory of GPUs has pools of its own here. */
static CUresult pinned_on(const CUmemLocation *location, CUmemAllocationType type,
                          struct device **device) {
    TRY(driver_ready());
    REQUIRE(location != NULL, CUDA_ERROR_INVALID_VALUE);
    *device = device_at(location);
    REQUIRE(*device != NULL || is_host(location), CUDA_ERROR_INVALID_VALUE);
    MODELLED(*device != NULL, "the current pool of the host's memory");
    MODELLED(type == CU_MEM_ALLOCATION_TYPE_PINNED, "a pool of managed memory");
    return CUDA_SUCCESS;
}

API cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    struct device *device;
    TRY(pinned_on(location, type, &device));
    return cuDeviceGetDefaultMemPool(pool, (CUdevice)(device - driver.devices));
}

API cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    struct device *device;
    TRY(pinned_on(location, type, &device));
    return cuDeviceGetMemPool(pool, (CUdevice)(device - driver.devices));
}

API cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    struct device *device;
    TRY(pinned_on(location, type, &device));
    return cuDeviceSetMemPool((CUdevice)(device - driver.devices), pool);
}

/* ---- pools of the program ------------------------------------------------------------ */

API cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties) {
    TRY(driver_ready());
    REQUIRE(pool != NULL && properties != NULL, CUDA_ERROR_INVALID_VALUE);
    MODELLED(properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED, "a pool of managed memory");
    MODELLED(properties->handleTypes == CU_MEM_HANDLE_TYPE_NONE || may_be_exported(properties),
             "a pool with handles other than file descriptors");
    struct device *device = device_at(&properties->location);
    REQUIRE(device != NULL || is_host(&properties->location), CUDA_ERROR_INVALID_DEVICE);
    pthread_mutex_lock(&driver.lock);
    *pool = device == NULL || device_attach(device) ? pool_make(properties, device) : NULL;
    pthread_mutex_unlock(&driver.lock);
    return *pool == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

API cuMemPoolDestroy(CUmemoryPool handle) {
    struct CUmemPoolHandle_st *pool;
    TRY(find_pool(handle, &pool));
    REQUIRE(!pool->is_default, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    for (int i = 0; i < driver.device_count; i++)
        if (chosen_pool[i] == pool)
            chosen_pool[i] = NULL;
    pool->destroyed = true;
    if (pool->used == 0)
        pool_end(pool);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

API cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
    struct CUmemPoolHandle_st *pool;
    TRY(find_pool(handle, &pool));
    pthread_mutex_lock(&driver.lock);
    pool_trim(pool, keep);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}
