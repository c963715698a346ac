/* Contexts: primary and created ones. */
#include <limits.h>
#include <stdlib.h>

#include "../runtime/context_storage.h"
#include "array.h"
#include "capture.h"
#include "deferred.h"
#include "ended.h"
#include "external.h"
#include "graph_memory.h"
#include "overhead.h"
#include "pool.h"
#include "queue.h"

void context_wait(const struct CUctx_st *context) {
    deferred_wait_context(context);
    /* What is this process's own needs no lock among processes. */
    pthread_mutex_t *mutex = &driver.engine.mutex[context->device->gpu];
    pthread_mutex_lock(mutex);
    struct front last = context->last;
    pthread_mutex_unlock(mutex);
    device_wait_front(context->device, &last);
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

CUresult find_living_context(CUcontext handle, struct CUctx_st **context) {
    TRY(driver_ready());
    REQUIRE(known(handle), CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(context_is_alive(handle), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    *context = handle;
    return CUDA_SUCCESS;
}

CUresult find_context(CUcontext handle, struct CUctx_st **context) {
    if (handle == NULL)
        return current_context(context);
    TRY(find_living_context(handle, context));
    return context_fault(handle);
}

/* ---- beginning and end (driver.lock held) ------------------------------- */

static CUresult begin(struct CUctx_st *context, struct device *device, unsigned flags) {
    const struct gpu *gpu = &driver.engine.state->gpu[device->gpu];
    REQUIRE(!__atomic_load_n(&gpu->lost, __ATOMIC_RELAXED), CUDA_ERROR_DEVICE_UNAVAILABLE);
    REQUIRE(device_attach(device), CUDA_ERROR_OUT_OF_MEMORY);
    if (context->device != device) /* read without the lock by who clears a primary's last events */
        context->device = device;
    REQUIRE(context_charge(context, context_price()), CUDA_ERROR_OUT_OF_MEMORY);
    context_limits(context);
    context->flags = flags;
    context->id = ++driver.last_id;
    context->last = context->last_legacy = context->last_blocking = (struct front){0};
    context->legacy = (struct CUstream_st){
        .context = context, .id = ++driver.last_id, .queue = queue_next(device)};
    context->peers = 0;
    context->xids = __atomic_load_n(&gpu->xids, __ATOMIC_ACQUIRE);
    context->doomed = 0;
    context->broken = 0;
    context_set_alive(context, true);
    return CUDA_SUCCESS;
}

static bool any_alive_on(const struct device *device) {
    const struct CUctx_st *created = driver.contexts;
    while (created != NULL && !(created->alive && created->device == device))
        created = created->next;
    return created != NULL || device->primary.alive;
}

static void end_alone(struct CUctx_st *context, struct ended *ended) {
    context_set_alive(context, false);
    ended_take(ended, context);
    release_memory_of(context);
    release_external_of(context);
    release_mipmaps_of(context);
    release_arrays_of(context);
    context_uncharge(context, context->overhead);
}

/* A primary context takes its green ones along. */
static void end(struct CUctx_st *context, struct ended *ended) {
    end_alone(context, ended);
    for (struct CUctx_st *green = driver.contexts; green != NULL; green = green->next)
        if (green->primary == context)
            end_alone(green, ended);
    if (!any_alive_on(context->device)) {
        pools_forget(context->device);
        graph_memory_forget(context->device);
    }
}

/* Without driver.lock. */
static void finish_end(struct CUctx_st *context, struct ended *ended) {
    ended_keep(ended);
    context_storage_end(context);
}

/* ---- primary contexts ---------------------------------------------------- */

API cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal) {
    struct device *device;
    CUresult result = CUDA_SUCCESS;
    TRY(find_device(ordinal, &device));
    REQUIRE(context != NULL, CUDA_ERROR_INVALID_VALUE);
    call_costs(&driver.engine.profile.costs.context_retain, &device->primary);
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

/* What is under way in a context ends before it does; so it is where this many holders are left. */
static void quiesce(const struct CUctx_st *context, unsigned holders) {
    pthread_mutex_lock(&driver.lock);
    bool ends = context->alive && context->references <= holders;
    pthread_mutex_unlock(&driver.lock);
    if (ends)
        context_wait(context);
}

API cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
    struct device *device;
    struct ended ended = {0};
    CUresult result = CUDA_SUCCESS;
    TRY(find_device(ordinal, &device));
    quiesce(&device->primary, 1);
    pthread_mutex_lock(&driver.lock);
    if (device->primary.references == 0)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if (--device->primary.references == 0)
        end(&device->primary, &ended);
    bool is_over = !device->primary.alive;
    pthread_mutex_unlock(&driver.lock);
    if (is_over)
        finish_end(&device->primary, &ended);
    return result;
}

API cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
    struct device *device;
    struct ended ended = {0};
    TRY(find_device(ordinal, &device));
    quiesce(&device->primary, UINT_MAX);
    pthread_mutex_lock(&driver.lock);
    if (device->primary.alive)
        end(&device->primary, &ended);
    device->primary.references = 0;
    pthread_mutex_unlock(&driver.lock);
    finish_end(&device->primary, &ended);
    return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags) {
    struct device *device;
    TRY(find_device(ordinal, &device));
    REQUIRE((flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    device->primary.flags = flags;
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int *flags, int *active) {
    struct device *device;
    TRY(find_device(ordinal, &device));
    REQUIRE(flags != NULL && active != NULL, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    *flags = device->primary.flags;
    *active = device->primary.alive;
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

/* ---- created contexts ----------------------------------------------------- */

API cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice ordinal) {
    struct device *device;
    TRY(find_device(ordinal, &device));
    REQUIRE(context != NULL && (flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0,
            CUDA_ERROR_INVALID_VALUE);
    REQUIRE(context_stack_has_room(), CUDA_ERROR_OUT_OF_MEMORY);
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
    *context = created;
    return cuCtxPushCurrent_v2(created);
}

API cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *parameters, int count,
                   unsigned int flags, CUdevice ordinal) {
    REQUIRE(parameters == NULL && count == 0, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    return cuCtxCreate_v2(context, flags, ordinal);
}

API cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *parameters, unsigned int flags,
                   CUdevice ordinal) {
    if (parameters != NULL) {
        /* Parts of a GPU, and graphics interoperation: the fake has neither. */
        REQUIRE(parameters->execAffinityParams == NULL && parameters->cigParams == NULL,
                CUDA_ERROR_NOT_SUPPORTED);
        REQUIRE(parameters->numExecAffinityParams == 0, CUDA_ERROR_INVALID_VALUE);
    }
    return cuCtxCreate_v2(context, flags, ordinal);
}

API cuCtxDestroy_v2(CUcontext handle) {
    struct CUctx_st *context;
    struct ended ended = {0};
    REQUIRE(handle != NULL, CUDA_ERROR_INVALID_CONTEXT);
    TRY(find_living_context(handle, &context));
    REQUIRE(context != &context->device->primary, CUDA_ERROR_INVALID_CONTEXT);
    context_wait(context);
    pthread_mutex_lock(&driver.lock);
    end(context, &ended);
    pthread_mutex_unlock(&driver.lock);
    finish_end(context, &ended);
    context_leave(context);
    return CUDA_SUCCESS;
}
