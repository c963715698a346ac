/* What is known of managed memory: the answers to cuMemRangeGetAttribute. */
#include "managed.h"

static int type_of(int ordinal) {
    return ordinal == MANAGED_AT_NOWHERE ? CU_MEM_LOCATION_TYPE_INVALID
           : ordinal == MANAGED_AT_HOST  ? CU_MEM_LOCATION_TYPE_HOST
                                         : CU_MEM_LOCATION_TYPE_DEVICE;
}

static int id_of(int ordinal) {
    return ordinal >= 0 ? ordinal : 0;
}

/* The devices advised to access it, as many as there is room for. */
static void answer_accessed_by(int *places, size_t room, uint32_t bits) {
    size_t used = 0;
    for (int i = 0; i <= (int)GPUS_MAX && used < room; i++)
        if ((bits >> i & 1) != 0)
            places[used++] = i == (int)GPUS_MAX ? MANAGED_AT_HOST : i;
    while (used < room)
        places[used++] = MANAGED_AT_NOWHERE;
}

static CUresult answer(void *data, size_t size, CUmem_range_attribute attribute,
                       const struct managed *managed) {
    REQUIRE(data != NULL && size >= sizeof(int) && size % sizeof(int) == 0,
            CUDA_ERROR_INVALID_VALUE);
    int *value = data;
    REQUIRE(size == sizeof *value || attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY,
            CUDA_ERROR_INVALID_VALUE);
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        *value = managed->read_mostly;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        *value = managed->preferred;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        answer_accessed_by(value, size / sizeof *value, managed->accessed_by);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        *value = managed->prefetched;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        *value = type_of(managed->preferred);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        *value = id_of(managed->preferred);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        *value = type_of(managed->prefetched);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        *value = id_of(managed->prefetched);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

API cuMemRangeGetAttributes(void **data, size_t *sizes, CUmem_range_attribute *attributes,
                            size_t count, CUdeviceptr pointer, size_t bytes) {
    struct allocation *found;
    TRY(driver_ready());
    REQUIRE(data != NULL && sizes != NULL && attributes != NULL && count > 0,
            CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    CUresult result = managed_at(pointer, bytes, &found);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = answer(data[i], sizes[i], attributes[i], &found->managed);
    pthread_mutex_unlock(&driver.lock);
    return result;
}

API cuMemRangeGetAttribute(void *data, size_t size, CUmem_range_attribute attribute,
                           CUdeviceptr pointer, size_t bytes) {
    return cuMemRangeGetAttributes(&data, &size, &attribute, 1, pointer, bytes);
}
