/* What can be asked of an address. */
#include "allocation.h"

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
