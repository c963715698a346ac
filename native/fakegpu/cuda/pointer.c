/* What can be asked of an address. */
#include "pool.h"
#include "virtual.h"

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

API cuMemHostGetFlags(unsigned int *flags, void *pointer) {
    struct allocation found;
    TRY(driver_ready());
    REQUIRE(flags != NULL && find_allocation((uint64_t)pointer, 0, &found) &&
                (found.kind == MEMORY_HOST || found.kind == MEMORY_REGISTERED),
            CUDA_ERROR_INVALID_VALUE);
    *flags = found.flags;
    return CUDA_SUCCESS;
}

/* ---- attributes -------------------------------------------------------------- */

static bool is_hosts(const struct allocation *found) {
    return found->kind == MEMORY_HOST || found->kind == MEMORY_REGISTERED || found->device == NULL;
}

static bool is_managed(const struct allocation *found) {
    return found->kind == MEMORY_MANAGED ||
           (found->kind == MEMORY_POOL &&
            found->block->chunk->pool->properties.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED);
}

static int ordinal_of(const struct allocation *found) {
    return found->device == NULL ? -1 : (int)(found->device - driver.devices);
}

/* Which handles the memory can be given to another process by. */
static unsigned handle_types(const struct allocation *found) {
    bool exported = (found->kind == MEMORY_POOL && found->block->chunk->pool->backing.fd >= 0) ||
                    (found->kind == MEMORY_MAPPED &&
                     found->mapping->physical->properties.requestedHandleTypes != 0);
    return exported ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
}

/* What this thread's GPU may do with the memory. */
static unsigned access_flags(const struct allocation *found) {
    struct CUctx_st *context;
    if (found->kind != MEMORY_MAPPED || current_context(&context) != CUDA_SUCCESS)
        return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return found->mapping->access[context->device - driver.devices];
}

/* Addresses: of the memory, of the range that it lies in, of its mapping. */
static bool answer_address(void *data, CUpointer_attribute attribute, uint64_t pointer,
                           const struct allocation *found) {
    bool reserved = found->kind == MEMORY_MAPPED;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = pointer;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = reserved ? found->mapping->range_base : found->base;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = reserved ? found->mapping->range_size : found->size;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)data = found->base;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)data = found->size;
        return true;
    default:
        return false;
    }
}

/* Identities: whose the memory is. */
static bool answer_identity(void *data, CUpointer_attribute attribute,
                            const struct allocation *found) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = found->context;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = ordinal_of(found);
        return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = found->id;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)data =
            found->kind == MEMORY_MAPPED ? found->mapping->physical->id : found->id;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = found->kind == MEMORY_POOL ? found->block->chunk->pool : NULL;
        return true;
    default:
        return false;
    }
}

/* Answers of yes, no or a set of flags. */
static bool answer_kind(void *data, CUpointer_attribute attribute, const struct allocation *found) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = is_hosts(found) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned *)data = found->sync_memops;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)data = is_managed(found);
        return true;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned *)data = found->kind == MEMORY_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned *)data = 1;
        return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)data = handle_types(found);
        return true;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(unsigned *)data = 0;
        return true;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned *)data = access_flags(found);
        return true;
    default:
        return false;
    }
}

static CUresult answer(void *data, CUpointer_attribute attribute, uint64_t pointer,
                       const struct allocation *found) {
    if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER) {
        REQUIRE(is_hosts(found) || is_managed(found), CUDA_ERROR_INVALID_VALUE);
        *(void **)data = (void *)pointer;
        return CUDA_SUCCESS;
    }
    MODELLED(answer_address(data, attribute, pointer, found) ||
                 answer_identity(data, attribute, found) || answer_kind(data, attribute, found),
             "an attribute of a pointer");
    return CUDA_SUCCESS;
}

API cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer) {
    TRY(driver_ready());
    REQUIRE(data != NULL, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    const struct allocation *found = allocation_at(pointer, 0);
    CUresult result =
        found == NULL ? CUDA_ERROR_INVALID_VALUE : answer(data, attribute, pointer, found);
    pthread_mutex_unlock(&driver.lock);
    return result;
}

/* Of an address that is not the driver's, and for what an address does not have: zeroes. */
static void answer_nothing(void *data, CUpointer_attribute attribute) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = -2;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned *)data = 0;
        break;
    default:
        *(uint64_t *)data = 0;
    }
}

API cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
                           CUdeviceptr pointer) {
    TRY(driver_ready());
    REQUIRE(count > 0 && attributes != NULL && data != NULL, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    const struct allocation *found = allocation_at(pointer, 0);
    for (unsigned i = 0; i < count; i++)
        if (found == NULL || answer(data[i], attributes[i], pointer, found) != CUDA_SUCCESS)
            answer_nothing(data[i], attributes[i]);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

API cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr pointer) {
    TRY(driver_ready());
    REQUIRE(value != NULL && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
            CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    struct allocation *found = allocation_at(pointer, 0);
    if (found != NULL)
        found->sync_memops = *(const unsigned *)value != 0;
    pthread_mutex_unlock(&driver.lock);
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
