/* Which pool is current: of a GPU, of the host, of managed memory. */
#include "pool.h"

/* The pools that are there without being made, and those that the program chose instead: of pinned
 * and of managed memory, by a device's ordinal or for the host. driver.lock. */
struct place {
    struct CUmemPoolHandle_st *usual, *chosen;
};

static struct place places[2][GPUS_MAX + 1];

/* Managed memory that prefers no GPU is charged to the current one. */
static struct device *charged_device(const CUmemLocation *location, CUmemAllocationType type) {
    struct CUctx_st *context;
    struct device *device = device_at(location);
    if (device == NULL && type == CU_MEM_ALLOCATION_TYPE_MANAGED)
        device = current_context(&context) == CUDA_SUCCESS ? context->device : &driver.devices[0];
    return device;
}

static bool is_anywhere(const CUmemLocation *location, CUmemAllocationType type) {
    return is_host(location) || (type == CU_MEM_ALLOCATION_TYPE_MANAGED &&
                                 location->type == CU_MEM_LOCATION_TYPE_INVALID);
}

static CUresult find_place(const CUmemLocation *location, CUmemAllocationType type,
                           struct place **place) {
    TRY(driver_ready());
    REQUIRE(location != NULL &&
                (type == CU_MEM_ALLOCATION_TYPE_PINNED || type == CU_MEM_ALLOCATION_TYPE_MANAGED),
            CUDA_ERROR_INVALID_VALUE);
    const struct device *device = device_at(location);
    REQUIRE(device != NULL || is_anywhere(location, type), CUDA_ERROR_INVALID_VALUE);
    size_t index = device == NULL ? GPUS_MAX : (size_t)(device - driver.devices);
    *place = &places[type == CU_MEM_ALLOCATION_TYPE_MANAGED][index];
    return CUDA_SUCCESS;
}

/* driver.lock held. */
static struct CUmemPoolHandle_st *usual_pool(struct place *place, const CUmemLocation *location,
                                             CUmemAllocationType type) {
    const CUmemPoolProps properties = {.allocType = type, .location = *location};
    struct device *device = charged_device(location, type);
    if (place->usual == NULL && (device == NULL || device_attach(device))) {
        place->usual = pool_make(&properties, device);
        if (place->usual != NULL)
            place->usual->is_default = true;
    }
    return place->usual;
}

static CUresult pool_at(const CUmemLocation *location, CUmemAllocationType type, bool chosen,
                        struct CUmemPoolHandle_st **pool) {
    struct place *place;
    TRY(find_place(location, type, &place));
    REQUIRE(pool != NULL, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    *pool = chosen && place->chosen != NULL ? place->chosen : usual_pool(place, location, type);
    pthread_mutex_unlock(&driver.lock);
    return *pool == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUmemLocation at_device(CUdevice ordinal) {
    return (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, {ordinal}};
}

CUresult current_pool(struct device *device, struct CUmemPoolHandle_st **pool) {
    CUmemLocation location = at_device((CUdevice)(device - driver.devices));
    return pool_at(&location, CU_MEM_ALLOCATION_TYPE_PINNED, true, pool);
}

CUresult pool_device(const CUmemPoolProps *properties, struct device **device) {
    struct place *place;
    TRY(find_place(&properties->location, properties->allocType, &place));
    *device = charged_device(&properties->location, properties->allocType);
    return CUDA_SUCCESS;
}

void pool_unchoose(const struct CUmemPoolHandle_st *pool) {
    for (size_t type = 0; type < 2; type++)
        for (size_t index = 0; index <= GPUS_MAX; index++)
            if (places[type][index].chosen == pool)
                places[type][index].chosen = NULL;
}

/* ---- the calls ------------------------------------------------------------------------ */

API cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    return pool_at(location, type, false, pool);
}

API cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    return pool_at(location, type, true, pool);
}

API cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool handle) {
    struct CUmemPoolHandle_st *pool;
    struct place *place, *own;
    TRY(find_place(location, type, &place));
    TRY(find_pool(handle, &pool));
    TRY(find_place(&pool->properties.location, pool->properties.allocType, &own));
    REQUIRE(place == own && !pool->imported, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    place->chosen = pool;
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

API cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice ordinal) {
    struct device *device;
    CUmemLocation location = at_device(ordinal);
    TRY(find_device(ordinal, &device));
    return cuMemGetDefaultMemPool(pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED);
}

API cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice ordinal) {
    struct device *device;
    CUmemLocation location = at_device(ordinal);
    TRY(find_device(ordinal, &device));
    return cuMemGetMemPool(pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED);
}

API cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool pool) {
    struct device *device;
    CUmemLocation location = at_device(ordinal);
    TRY(find_device(ordinal, &device));
    return cuMemSetMemPool(&location, CU_MEM_ALLOCATION_TYPE_PINNED, pool);
}
