/* Pools as objects: made, found and ended. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool.h"

struct CUmemPoolHandle_st *pools;

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

/* ---- pools of the program ------------------------------------------------------------ */

API cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties) {
    TRY(driver_ready());
    REQUIRE(pool != NULL && properties != NULL, CUDA_ERROR_INVALID_VALUE);
    MODELLED(properties->handleTypes == CU_MEM_HANDLE_TYPE_NONE || may_be_exported(properties),
             "a pool with handles other than file descriptors");
    struct device *device;
    TRY(pool_device(properties, &device));
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
    pool_unchoose(pool);
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
