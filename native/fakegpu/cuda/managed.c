/*
 * Advice about managed memory, and where it is to be. It is charged in full
 * when it is allocated and never moves, so advice is kept for queries,
 * for a whole allocation at a time.
 */
#include "managed.h"

/* ---- advice ---------------------------------------------------------------------- */

static CUmemLocation location_of(CUdevice ordinal) {
    CUmemLocation location = {ordinal == MANAGED_AT_HOST ? CU_MEM_LOCATION_TYPE_HOST
                                                         : CU_MEM_LOCATION_TYPE_DEVICE,
                              {ordinal == MANAGED_AT_HOST ? 0 : ordinal}};
    return location;
}

/* A location's ordinal. */
static CUresult ordinal_at(const CUmemLocation *location, int *ordinal) {
    const struct device *device = device_at(location);
    REQUIRE(device != NULL || is_host(location), CUDA_ERROR_INVALID_DEVICE);
    *ordinal = device == NULL ? MANAGED_AT_HOST : (int)(device - driver.devices);
    return CUDA_SUCCESS;
}

CUresult managed_at(uint64_t pointer, uint64_t bytes, struct allocation **found) {
    *found = allocation_at(pointer, bytes);
    REQUIRE(bytes > 0 && *found != NULL && (*found)->kind == MEMORY_MANAGED,
            CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

static CUresult advise(struct managed *managed, CUmem_advise advice, int ordinal) {
    uint32_t bit = ordinal == MANAGED_AT_HOST ? UINT32_C(1) << GPUS_MAX : UINT32_C(1) << ordinal;
    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        managed->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        managed->preferred =
            advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ? ordinal : MANAGED_AT_NOWHERE;
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        managed->accessed_by |= bit;
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        managed->accessed_by &= ~bit;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

API cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes, CUmem_advise advice, CUmemLocation location) {
    struct allocation *found;
    int ordinal = MANAGED_AT_HOST;
    TRY(driver_ready());
    /* What is not about a place ignores the one that is given. */
    if (advice != CU_MEM_ADVISE_SET_READ_MOSTLY && advice != CU_MEM_ADVISE_UNSET_READ_MOSTLY &&
        advice != CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION)
        TRY(ordinal_at(&location, &ordinal));
    pthread_mutex_lock(&driver.lock);
    CUresult result = managed_at(pointer, bytes, &found);
    if (result == CUDA_SUCCESS)
        result = advise(&found->managed, advice, ordinal);
    pthread_mutex_unlock(&driver.lock);
    return result;
}

API cuMemAdvise(CUdeviceptr pointer, size_t bytes, CUmem_advise advice, CUdevice ordinal) {
    return cuMemAdvise_v2(pointer, bytes, advice, location_of(ordinal));
}

/* ---- where it is to be -------------------------------------------------------------- */

API cuMemPrefetchAsync_v2(CUdeviceptr pointer, size_t bytes, CUmemLocation location,
                          unsigned int flags, CUstream handle) {
    struct CUstream_st *stream;
    struct allocation *found;
    int ordinal;
    TRY(find_stream(handle, &stream));
    REQUIRE(flags == 0, CUDA_ERROR_INVALID_VALUE);
    TRY(ordinal_at(&location, &ordinal));
    pthread_mutex_lock(&driver.lock);
    CUresult result = managed_at(pointer, bytes, &found);
    if (result == CUDA_SUCCESS)
        found->managed.prefetched = ordinal;
    pthread_mutex_unlock(&driver.lock);
    return result;
}

API cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice ordinal, CUstream stream) {
    return cuMemPrefetchAsync_v2(pointer, bytes, location_of(ordinal), 0, stream);
}

API cuMemPrefetchBatchAsync(CUdeviceptr *pointers, size_t *sizes, size_t count,
                            CUmemLocation *locations, size_t *first, size_t location_count,
                            unsigned long long flags, CUstream stream) {
    TRY(driver_ready());
    REQUIRE(pointers != NULL && sizes != NULL && count > 0 && locations != NULL && first != NULL &&
                location_count > 0 && location_count <= count && first[0] == 0 && flags == 0,
            CUDA_ERROR_INVALID_VALUE);
    size_t location = 0;
    for (size_t i = 0; i < count; i++) {
        while (location + 1 < location_count && first[location + 1] <= i)
            location++;
        TRY(cuMemPrefetchAsync_v2(pointers[i], sizes[i], locations[location], 0, stream));
    }
    return CUDA_SUCCESS;
}

/* What is discarded need not be kept: here it is. */
API cuMemDiscardBatchAsync(CUdeviceptr *pointers, size_t *sizes, size_t count,
                           unsigned long long flags, CUstream handle) {
    struct CUstream_st *stream;
    struct allocation *found;
    CUresult result = CUDA_SUCCESS;
    TRY(find_stream(handle, &stream));
    REQUIRE(pointers != NULL && sizes != NULL && count > 0 && flags == 0, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = managed_at(pointers[i], sizes[i], &found);
    pthread_mutex_unlock(&driver.lock);
    return result;
}

API cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *pointers, size_t *sizes, size_t count,
                                      CUmemLocation *locations, size_t *first,
                                      size_t location_count, unsigned long long flags,
                                      CUstream stream) {
    TRY(cuMemDiscardBatchAsync(pointers, sizes, count, flags, stream));
    return cuMemPrefetchBatchAsync(pointers, sizes, count, locations, first, location_count, flags,
                                   stream);
}

/* Memory that is attached to a stream is as usable as any here. */
API cuStreamAttachMemAsync(CUstream handle, CUdeviceptr pointer, size_t bytes, unsigned int flags) {
    struct CUstream_st *stream;
    struct allocation *found;
    TRY(find_stream(handle, &stream));
    REQUIRE(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST ||
                flags == CU_MEM_ATTACH_SINGLE,
            CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    CUresult result = managed_at(pointer, bytes == 0 ? 1 : bytes, &found);
    pthread_mutex_unlock(&driver.lock);
    return result;
}
