/* The attributes of a pool, and the access to its memory. */
#include "pool.h"

/* An attribute's value has one of two types. */
struct place {
    int *integer;
    uint64_t *bytes;
};

static struct place place_of(struct CUmemPoolHandle_st *pool, CUmemPool_attribute attribute) {
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        return (struct place){.integer = &pool->follow_events};
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        return (struct place){.integer = &pool->opportunistic};
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        return (struct place){.integer = &pool->internal_dependencies};
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return (struct place){.bytes = &pool->threshold};
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return (struct place){.bytes = &pool->reserved};
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return (struct place){.bytes = &pool->reserved_high};
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return (struct place){.bytes = &pool->used};
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return (struct place){.bytes = &pool->used_high};
    default:
        return (struct place){NULL, NULL};
    }
}

/* What a pool was made with. */
static CUresult made_with(const CUmemPoolProps *properties, CUmemPool_attribute attribute,
                          void *value) {
    switch (attribute) {
    case CU_MEMPOOL_ATTR_ALLOCATION_TYPE:
        *(CUmemAllocationType *)value = properties->allocType;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES:
        *(CUmemAllocationHandleType *)value = properties->handleTypes;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_LOCATION_ID:
        *(int *)value = properties->location.id;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_LOCATION_TYPE:
        *(CUmemLocationType *)value = properties->location.type;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_MAX_POOL_SIZE:
        *(uint64_t *)value = properties->maxSize;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED:
        *(int *)value = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

API cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
    struct CUmemPoolHandle_st *pool;
    TRY(find_pool(handle, &pool));
    REQUIRE(value != NULL, CUDA_ERROR_INVALID_VALUE);
    struct place place = place_of(pool, attribute);
    if (place.integer == NULL && place.bytes == NULL)
        return made_with(&pool->properties, attribute, value);
    pthread_mutex_lock(&driver.lock);
    if (place.integer != NULL)
        *(int *)value = *place.integer;
    else
        *(uint64_t *)value = *place.bytes;
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

/* The high-water marks can only be set back, to what there is now. */
static CUresult set(struct CUmemPoolHandle_st *pool, CUmemPool_attribute attribute,
                    const void *value) {
    struct place place = place_of(pool, attribute);
    if (place.integer != NULL) {
        *place.integer = *(const int *)value != 0;
        return CUDA_SUCCESS;
    }
    REQUIRE(place.bytes != NULL && place.bytes != &pool->reserved && place.bytes != &pool->used,
            CUDA_ERROR_INVALID_VALUE);
    uint64_t asked = *(const uint64_t *)value;
    if (place.bytes == &pool->threshold) {
        pool->threshold = asked;
        return CUDA_SUCCESS;
    }
    REQUIRE(asked == 0, CUDA_ERROR_INVALID_VALUE);
    *place.bytes = place.bytes == &pool->reserved_high ? pool->reserved : pool->used;
    return CUDA_SUCCESS;
}

API cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
    struct CUmemPoolHandle_st *pool;
    TRY(find_pool(handle, &pool));
    REQUIRE(value != NULL, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    CUresult result = set(pool, attribute, value);
    pthread_mutex_unlock(&driver.lock);
    return result;
}

/* ---- access -------------------------------------------------------------------- */

static bool is_access(CUmemAccess_flags flags) {
    return flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
           flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

API cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *wanted, size_t count) {
    struct CUmemPoolHandle_st *pool;
    TRY(find_pool(handle, &pool));
    REQUIRE(wanted != NULL || count == 0, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        const struct device *device = device_at(&wanted[i].location);
        REQUIRE(device != NULL && is_access(wanted[i].flags), CUDA_ERROR_INVALID_VALUE);
        /* A GPU's access to its own memory cannot be taken away. */
        REQUIRE(device != pool->device || wanted[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                CUDA_ERROR_INVALID_DEVICE);
    }
    pthread_mutex_lock(&driver.lock);
    for (size_t i = 0; i < count; i++)
        pool->access[device_at(&wanted[i].location) - driver.devices] =
            (unsigned char)wanted[i].flags;
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

API cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *location) {
    struct CUmemPoolHandle_st *pool;
    TRY(find_pool(handle, &pool));
    REQUIRE(flags != NULL && location != NULL, CUDA_ERROR_INVALID_VALUE);
    const struct device *device = device_at(location);
    REQUIRE(device != NULL, CUDA_ERROR_INVALID_DEVICE);
    pthread_mutex_lock(&driver.lock);
    *flags = device == pool->device ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                    : (CUmemAccess_flags)pool->access[device - driver.devices];
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}
