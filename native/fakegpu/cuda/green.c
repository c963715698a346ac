/*
 * Green contexts. The fake has no parts of a GPU, so one is a further context of the whole GPU
 * whose work the events of the primary context cover; which resources it is made of is not looked
 * at.
 */
#include <stdlib.h>

#include "driver.h"
#include "overhead.h"

#define DEFAULT_STREAM 1u

API cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal);
API cuDevicePrimaryCtxRelease_v2(CUdevice ordinal);

API cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice ordinal,
                     unsigned int flags) {
    struct CUctx_st *primary;
    (void)resources;
    REQUIRE(green != NULL && flags == DEFAULT_STREAM, CUDA_ERROR_INVALID_VALUE);
    TRY(cuDevicePrimaryCtxRetain(&primary, ordinal));
    struct CUctx_st *created = calloc(1, sizeof *created);
    if (created == NULL) {
        cuDevicePrimaryCtxRelease_v2(ordinal);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&driver.lock);
    created->device = primary->device;
    created->primary = primary;
    created->id = ++driver.last_id;
    created->xids = __atomic_load_n(&primary->xids, __ATOMIC_ACQUIRE);
    created->legacy = (struct CUstream_st){.context = created, .id = ++driver.last_id};
    context_limits(created);
    context_set_alive(created, true);
    created->next = driver.contexts;
    driver.contexts = created;
    pthread_mutex_unlock(&driver.lock);
    *green = (CUgreenCtx)created;
    return CUDA_SUCCESS;
}

API cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green) {
    REQUIRE(context != NULL, CUDA_ERROR_INVALID_VALUE);
    return find_living_context((CUcontext)green, context);
}

/* Its streams stay: all that can be done with them is to destroy them. */
API cuGreenCtxDestroy(CUgreenCtx green) {
    struct CUctx_st *context;
    TRY(find_living_context((CUcontext)green, &context));
    REQUIRE(context->primary != NULL, CUDA_ERROR_INVALID_CONTEXT);
    pthread_mutex_lock(&driver.lock);
    context_set_alive(context, false);
    pthread_mutex_unlock(&driver.lock);
    return cuDevicePrimaryCtxRelease_v2((CUdevice)(context->device - driver.devices));
}
