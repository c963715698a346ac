/* Contexts: primary and created ones, and each thread's stack of them. */
#include <stdlib.h>

#include "driver.h"

#define STACK_DEPTH 64

static _Thread_local struct {
    struct CUctx_st *context[STACK_DEPTH];
    int depth;
} stack;

CUresult current_context(struct CUctx_st **context) {
    TRY(driver_ready());
    REQUIRE(stack.depth > 0, CUDA_ERROR_INVALID_CONTEXT);
    *context = stack.context[stack.depth - 1];
    REQUIRE((*context)->alive, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return CUDA_SUCCESS;
}

void context_wait(const struct CUctx_st *context) {
    engine_enter(&driver.engine, context->device->gpu);
    uint64_t last = context->last;
    engine_leave(&driver.engine, context->device->gpu);
    device_wait(context->device, last);
}

static bool known(const struct CUctx_st *context) {
    for (int i = 0; i < driver.device_count; i++)
        if (context == &driver.devices[i].primary)
            return true;
    pthread_mutex_lock(&driver.lock);
    const struct CUctx_st *created = driver.contexts;
    while (created != NULL && created != context)
        created = created->next;
    pthread_mutex_unlock(&driver.lock);
    return created != NULL;
}

CUresult find_context(CUcontext handle, struct CUctx_st **context) {
    TRY(driver_ready());
    if (handle == NULL)
        return current_context(context);
    REQUIRE(known(handle), CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(handle->alive, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    *context = handle;
    return CUDA_SUCCESS;
}

/* ---- beginning and end (driver.lock held) ------------------------------- */

static CUresult begin(struct CUctx_st *context, struct device *device, unsigned flags) {
    if (!device->attached) {
        REQUIRE(engine_attach(&driver.engine, device->gpu, &device->client),
                CUDA_ERROR_OUT_OF_MEMORY);
        device->attached = true;
    }
    context->device = device;
    context->flags = flags;
    context->id = ++driver.last_id;
    context->last = context->last_legacy = context->last_blocking = 0;
    context->legacy = (struct CUstream_st){.context = context, .id = ++driver.last_id};
    context->alive = true;
    return CUDA_SUCCESS;
}

static void end(struct CUctx_st *context) {
    context->alive = false;
    release_memory_of(context);
    while (context->streams != NULL) {
        struct CUstream_st *stream = context->streams;
        context->streams = stream->next;
        free(stream);
    }
}

/* ---- primary contexts ---------------------------------------------------- */

API cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal) {
    struct device *device;
    CUresult result = CUDA_SUCCESS;
    TRY(find_device(ordinal, &device));
    REQUIRE(context != NULL, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    if (!device->primary.alive)
        result = begin(&device->primary, device, device->primary.flags);
    if (result == CUDA_SUCCESS) {
        device->primary.references++;
        *context = &device->primary;
    }
    pthread_mutex_unlock(&driver.lock);
    return result;
}

API cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
    struct device *device;
    CUresult result = CUDA_SUCCESS;
    TRY(find_device(ordinal, &device));
    pthread_mutex_lock(&driver.lock);
    if (device->primary.references == 0)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if (--device->primary.references == 0)
        end(&device->primary);
    pthread_mutex_unlock(&driver.lock);
    return result;
}

API cuDevicePrimaryCtxRelease(CUdevice ordinal) {
    return cuDevicePrimaryCtxRelease_v2(ordinal);
}

API cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
    struct device *device;
    TRY(find_device(ordinal, &device));
    pthread_mutex_lock(&driver.lock);
    if (device->primary.alive)
        end(&device->primary);
    device->primary.references = 0;
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxReset(CUdevice ordinal) {
    return cuDevicePrimaryCtxReset_v2(ordinal);
}

API cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags) {
    struct device *device;
    TRY(find_device(ordinal, &device));
    REQUIRE((flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0, CUDA_ERROR_INVALID_VALUE);
    device->primary.flags = flags;
    return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned int flags) {
    return cuDevicePrimaryCtxSetFlags_v2(ordinal, flags);
}

API cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int *flags, int *active) {
    struct device *device;
    TRY(find_device(ordinal, &device));
    REQUIRE(flags != NULL && active != NULL, CUDA_ERROR_INVALID_VALUE);
    *flags = device->primary.flags;
    *active = device->primary.alive;
    return CUDA_SUCCESS;
}

/* ---- created contexts ----------------------------------------------------- */

API cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice ordinal) {
    struct device *device;
    TRY(find_device(ordinal, &device));
    REQUIRE(context != NULL && (flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0,
            CUDA_ERROR_INVALID_VALUE);
    REQUIRE(stack.depth < STACK_DEPTH, CUDA_ERROR_OUT_OF_MEMORY);
    struct CUctx_st *created = calloc(1, sizeof *created);
    REQUIRE(created != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    pthread_mutex_lock(&driver.lock);
    CUresult result = begin(created, device, flags);
    if (result == CUDA_SUCCESS) {
        created->next = driver.contexts;
        driver.contexts = created;
    }
    pthread_mutex_unlock(&driver.lock);
    if (result != CUDA_SUCCESS) {
        free(created);
        return result;
    }
    stack.context[stack.depth++] = created;
    *context = created;
    return CUDA_SUCCESS;
}

API cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice ordinal) {
    return cuCtxCreate_v2(context, flags, ordinal);
}

API cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *parameters, int count,
                   unsigned int flags, CUdevice ordinal) {
    REQUIRE(parameters == NULL && count == 0, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    return cuCtxCreate_v2(context, flags, ordinal);
}

/* The parameters ask for parts of a GPU or for graphics interoperation: the fake has neither. */
API cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *parameters, unsigned int flags,
                   CUdevice ordinal) {
    REQUIRE(parameters == NULL, CUDA_ERROR_NOT_SUPPORTED);
    return cuCtxCreate_v2(context, flags, ordinal);
}

API cuCtxDestroy_v2(CUcontext handle) {
    struct CUctx_st *context;
    REQUIRE(handle != NULL, CUDA_ERROR_INVALID_CONTEXT);
    TRY(find_context(handle, &context));
    REQUIRE(context != &context->device->primary, CUDA_ERROR_INVALID_CONTEXT);
    context_wait(context);
    pthread_mutex_lock(&driver.lock);
    end(context);
    pthread_mutex_unlock(&driver.lock);
    if (stack.depth > 0 && stack.context[stack.depth - 1] == context)
        stack.depth--;
    return CUDA_SUCCESS;
}

API cuCtxDestroy(CUcontext context) {
    return cuCtxDestroy_v2(context);
}

/* ---- the thread's stack ---------------------------------------------------- */

API cuCtxPushCurrent_v2(CUcontext handle) {
    struct CUctx_st *context;
    REQUIRE(handle != NULL, CUDA_ERROR_INVALID_CONTEXT);
    TRY(find_context(handle, &context));
    REQUIRE(stack.depth < STACK_DEPTH, CUDA_ERROR_OUT_OF_MEMORY);
    stack.context[stack.depth++] = context;
    return CUDA_SUCCESS;
}

API cuCtxPushCurrent(CUcontext context) {
    return cuCtxPushCurrent_v2(context);
}

API cuCtxPopCurrent_v2(CUcontext *context) {
    TRY(driver_ready());
    REQUIRE(stack.depth > 0, CUDA_ERROR_INVALID_CONTEXT);
    stack.depth--;
    if (context != NULL)
        *context = stack.context[stack.depth];
    return CUDA_SUCCESS;
}

API cuCtxPopCurrent(CUcontext *context) {
    return cuCtxPopCurrent_v2(context);
}

API cuCtxSetCurrent(CUcontext handle) {
    struct CUctx_st *context;
    TRY(driver_ready());
    if (handle == NULL) {
        if (stack.depth > 0)
            stack.depth--;
        return CUDA_SUCCESS;
    }
    TRY(find_context(handle, &context));
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

API cuCtxGetLimit(size_t *value, CUlimit limit) {
    static const size_t usual[] = {
        [CU_LIMIT_STACK_SIZE] = 1024,
        [CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20,
        [CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20,
    };
    struct CUctx_st *context;
    TRY(current_context(&context));
    REQUIRE(value != NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE((size_t)limit < sizeof usual / sizeof *usual, CUDA_ERROR_UNSUPPORTED_LIMIT);
    *value = usual[limit];
    return CUDA_SUCCESS;
}

API cuCtxSynchronize_v2(CUcontext handle) {
    struct CUctx_st *context;
    TRY(find_context(handle, &context));
    context_wait(context);
    return CUDA_SUCCESS;
}

API cuCtxSynchronize(void) {
    return cuCtxSynchronize_v2(NULL);
}
