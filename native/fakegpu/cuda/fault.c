/* Errors that stick: a context whose work broke answers every call with the same error until it is
 * gone. They come from a kernel named kubeshare_fault, from the profile, or with the GPU itself. */
#include "driver.h"

static const struct gpu *gpu_of(const struct CUctx_st *context) {
    return &driver.engine.state->gpu[context->device->gpu];
}

/* The result that programs get for an error of NVIDIA's list. */
static CUresult result_of(uint32_t xid) {
    switch (xid) {
    case 31:
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    case XID_DOUBLE_BIT:
    case 94:
    case XID_UNCONTAINED:
        return CUDA_ERROR_ECC_UNCORRECTABLE;
    case 74:
        return CUDA_ERROR_NVLINK_UNCORRECTABLE;
    case XID_LOST:
    case XID_GSP_TIMED_OUT:
        return CUDA_ERROR_UNKNOWN;
    default:
        return CUDA_ERROR_LAUNCH_FAILED;
    }
}

/* Repaired rows and the like are recorded, and no work is lost. */
static bool is_harmless(uint32_t xid) {
    return xid == XID_ROW_REMAPPED || xid == XID_REMAP_FAILED;
}

/* The kernel that breaks the context has ended: the first thread to see it raises the error. */
static void meet_doom(struct CUctx_st *context, uint64_t number) {
    const struct device *device = context->device;
    engine_enter(&driver.engine, device->gpu);
    if (engine_completed(&driver.engine, device->gpu, device->client, number) &&
        __atomic_exchange_n(&context->doomed, 0, __ATOMIC_RELAXED) == number)
        engine_raise(&driver.engine, device->gpu, __atomic_load_n(&context->doom, __ATOMIC_RELAXED),
                     driver.engine.process);
    engine_leave(&driver.engine, device->gpu);
}

/* Errors since the context last looked: those of its process and those of all. */
static void look(struct CUctx_st *context, uint64_t xids) {
    const struct gpu *gpu = gpu_of(context);
    engine_enter(&driver.engine, context->device->gpu);
    uint64_t seen = __atomic_load_n(&context->xids, __ATOMIC_RELAXED);
    for (uint64_t n = xids - seen > XIDS_MAX ? xids - XIDS_MAX : seen; n < xids; n++) {
        const struct xid *xid = &gpu->xid[n % XIDS_MAX];
        if (!is_harmless(xid->number) &&
            (xid->process == 0 || xid->process == driver.engine.process))
            __atomic_store_n(&context->broken, (int)result_of(xid->number), __ATOMIC_RELAXED);
    }
    __atomic_store_n(&context->xids, xids, __ATOMIC_RELAXED);
    engine_leave(&driver.engine, context->device->gpu);
}

CUresult context_fault(struct CUctx_st *context) {
    uint64_t doomed = __atomic_load_n(&context->doomed, __ATOMIC_RELAXED);
    if (doomed != 0)
        meet_doom(context, doomed);
    uint64_t xids = __atomic_load_n(&gpu_of(context)->xids, __ATOMIC_ACQUIRE);
    if (xids != __atomic_load_n(&context->xids, __ATOMIC_RELAXED))
        look(context, xids);
    return (CUresult)__atomic_load_n(&context->broken, __ATOMIC_RELAXED);
}
