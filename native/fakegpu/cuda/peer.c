/* GPUs that use each other's memory. Copies between them work without, at the same speed. */
#include "driver.h"

API cuDeviceCanAccessPeer(int *can, CUdevice ordinal, CUdevice peer) {
    struct device *a, *b;
    TRY(find_device(ordinal, &a));
    TRY(find_device(peer, &b));
    REQUIRE(can != NULL, CUDA_ERROR_INVALID_VALUE);
    *can = a != b;
    return CUDA_SUCCESS;
}

API cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice ordinal,
                            CUdevice peer) {
    struct device *a, *b;
    TRY(find_device(ordinal, &a));
    TRY(find_device(peer, &b));
    REQUIRE(value != NULL && a != b, CUDA_ERROR_INVALID_VALUE);
    bool nvlink = driver.engine.profile.nvlinks[a->gpu][b->gpu] > 0;
    switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *value = !nvlink;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = 1;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = nvlink;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static uint32_t bit_of(const struct CUctx_st *context) {
    return 1u << (context->device - driver.devices);
}

API cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags) {
    struct CUctx_st *context, *peer;
    TRY(current_context(&context));
    REQUIRE(handle != NULL, CUDA_ERROR_INVALID_CONTEXT);
    TRY(find_context(handle, &peer));
    REQUIRE(flags == 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(peer->device != context->device, CUDA_ERROR_INVALID_DEVICE);
    uint32_t before = __atomic_fetch_or(&context->peers, bit_of(peer), __ATOMIC_RELAXED);
    REQUIRE((before & bit_of(peer)) == 0, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    return CUDA_SUCCESS;
}

API cuCtxDisablePeerAccess(CUcontext handle) {
    struct CUctx_st *context, *peer;
    TRY(current_context(&context));
    REQUIRE(handle != NULL, CUDA_ERROR_INVALID_CONTEXT);
    TRY(find_context(handle, &peer));
    uint32_t before = __atomic_fetch_and(&context->peers, ~bit_of(peer), __ATOMIC_RELAXED);
    REQUIRE((before & bit_of(peer)) != 0, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    return CUDA_SUCCESS;
}
