/* Each thread's stack of contexts, and what can be asked of the one on top. */
#include "capture.h"
#include "pool.h"

#define STACK_DEPTH 64

static _Thread_local struct {
    struct CUctx_st *context[STACK_DEPTH];
    int depth;
} stack;

CUresult current_context(struct CUctx_st **context) {
    TRY(driver_ready());
    REQUIRE(stack.depth > 0, CUDA_ERROR_INVALID_CONTEXT);
    *context = stack.context[stack.depth - 1];
    REQUIRE(context_is_alive(*context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return context_fault(*context);
}

const struct model *current_model(void) {
    uint32_t gpu = stack.depth > 0 ? stack.context[stack.depth - 1]->device->gpu : 0;
    return &driver.engine.profile.models[gpu];
}

bool context_stack_has_room(void) {
    return stack.depth < STACK_DEPTH;
}

void context_leave(const struct CUctx_st *context) {
    if (stack.depth > 0 && stack.context[stack.depth - 1] == context)
        stack.depth--;
}

/* A primary context may be current before it begins, and after it was reset. */
static CUresult find_usable(CUcontext handle, struct CUctx_st **context) {
    CUresult result = find_living_context(handle, context);
    if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED && handle == &handle->device->primary) {
        *context = handle;
        return CUDA_SUCCESS;
    }
    return result;
}

API cuCtxPushCurrent_v2(CUcontext handle) {
    struct CUctx_st *context;
    REQUIRE(handle != NULL, CUDA_ERROR_INVALID_CONTEXT);
    TRY(find_usable(handle, &context));
    REQUIRE(stack.depth < STACK_DEPTH, CUDA_ERROR_OUT_OF_MEMORY);
    stack.context[stack.depth++] = context;
    return CUDA_SUCCESS;
}

API cuCtxPopCurrent_v2(CUcontext *context) {
    TRY(driver_ready());
    REQUIRE(stack.depth > 0, CUDA_ERROR_INVALID_CONTEXT);
    stack.depth--;
    if (context != NULL)
        *context = stack.context[stack.depth];
    return CUDA_SUCCESS;
}

API cuCtxSetCurrent(CUcontext handle) {
    struct CUctx_st *context;
    TRY(driver_ready());
    if (handle == NULL) {
        if (stack.depth > 0)
            stack.depth--;
        return CUDA_SUCCESS;
    }
    TRY(find_usable(handle, &context));
    if (stack.depth == 0)
        stack.depth = 1;
    stack.context[stack.depth - 1] = context;
    return CUDA_SUCCESS;
}

API cuCtxGetCurrent(CUcontext *context) {
    TRY(driver_ready());
    REQUIRE(context != NULL, CUDA_ERROR_INVALID_VALUE);
    *context = stack.depth > 0 ? stack.context[stack.depth - 1] : NULL;
    return CUDA_SUCCESS;
}

/* ---- questions --------------------------------------------------------------- */

API cuCtxGetDevice_v2(CUdevice *ordinal, CUcontext handle) {
    struct CUctx_st *context;
    TRY(find_context(handle, &context));
    REQUIRE(ordinal != NULL, CUDA_ERROR_INVALID_VALUE);
    *ordinal = (CUdevice)(context->device - driver.devices);
    return CUDA_SUCCESS;
}

API cuCtxGetDevice(CUdevice *ordinal) {
    return cuCtxGetDevice_v2(ordinal, NULL);
}

API cuCtxGetFlags(unsigned int *flags) {
    struct CUctx_st *context;
    TRY(current_context(&context));
    REQUIRE(flags != NULL, CUDA_ERROR_INVALID_VALUE);
    *flags = context->flags;
    return CUDA_SUCCESS;
}

API cuCtxGetId(CUcontext handle, unsigned long long *id) {
    struct CUctx_st *context;
    TRY(find_context(handle, &context));
    REQUIRE(id != NULL, CUDA_ERROR_INVALID_VALUE);
    *id = context->id;
    return CUDA_SUCCESS;
}

API cuCtxGetApiVersion(CUcontext handle, unsigned int *version) {
    struct CUctx_st *context;
    TRY(find_context(handle, &context));
    REQUIRE(version != NULL, CUDA_ERROR_INVALID_VALUE);
    *version = 3020;
    return CUDA_SUCCESS;
}

API cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    struct CUctx_st *context;
    TRY(current_context(&context));
    if (least != NULL)
        *least = 0;
    if (greatest != NULL)
        *greatest = -5;
    return CUDA_SUCCESS;
}

API cuCtxSynchronize_v2(CUcontext handle) {
    struct CUctx_st *context;
    TRY(find_context(handle, &context));
    TRY(whole_context_call(context));
    context_wait(context);
    sync_slowly();
    pools_synchronized(context->device);
    return context_fault(context);
}

API cuCtxSynchronize(void) {
    return cuCtxSynchronize_v2(NULL);
}
