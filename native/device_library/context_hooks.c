/*
 * The functions that create and end contexts. A context on a GPU outside the session is refused, so
 * a launch need not check its GPU.
 */
#include "context.h"

#include "account.h"
#include "agent.h"
#include "context_list.h"
#include "lookup/driver_calls.h"
#include "lookup/real.h"
#include "session.h"
#include "streams.h"
#include "system.h"

static CUresult may_have_context(CUdevice device) {
    const int cell = ks_cell_of_device(device);
    if (cell == KS_NO_CELL && !ks_device_exists(device))
        return CUDA_SUCCESS;
    if (cell == KS_NO_CELL) {
        ks_debug("device %d is not of this session", device);
        return CUDA_ERROR_NOT_PERMITTED;
    }
    ks_account_join();
    return ks_agent_start() ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;
}

/* A context that cannot be drained is ended at once. */
static CUresult keep(CUcontext handle, CUdevice device) {
    if (ks_context_track(handle, ks_cell_of_device(device))) {
        ks_contexts_prepare(device);
        return CUDA_SUCCESS;
    }
    KS_REAL(cuCtxDestroy_v2)(handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

#define KS_CREATE_CONTEXT(call)                                                                    \
    CUresult result = may_have_context(device);                                                    \
    if (result == CUDA_SUCCESS)                                                                    \
        result = (call);                                                                           \
    return result == CUDA_SUCCESS ? keep(*context, device) : result

int cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device) {
    KS_CREATE_CONTEXT(KS_REAL(cuCtxCreate)(context, flags, device));
}

int cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
    KS_CREATE_CONTEXT(KS_REAL(cuCtxCreate_v2)(context, flags, device));
}

int cuCtxCreate_v3(CUcontext *context, void *affinities, int count, unsigned int flags,
                   CUdevice device) {
    KS_CREATE_CONTEXT(KS_REAL(cuCtxCreate_v3)(context, affinities, count, flags, device));
}

int cuCtxCreate_v4(CUcontext *context, void *options, unsigned int flags, CUdevice device) {
    KS_CREATE_CONTEXT(KS_REAL(cuCtxCreate_v4)(context, options, flags, device));
}

int cuGLCtxCreate(CUcontext *context, unsigned int flags, CUdevice device) {
    KS_CREATE_CONTEXT(KS_REAL(cuGLCtxCreate)(context, flags, device));
}

int cuGLCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
    KS_CREATE_CONTEXT(KS_REAL(cuGLCtxCreate_v2)(context, flags, device));
}

int cuVDPAUCtxCreate(CUcontext *context, unsigned int flags, CUdevice device, uint32_t display,
                     void *get) {
    KS_CREATE_CONTEXT(KS_REAL(cuVDPAUCtxCreate)(context, flags, device, display, get));
}

int cuVDPAUCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device, uint32_t display,
                        void *get) {
    KS_CREATE_CONTEXT(KS_REAL(cuVDPAUCtxCreate_v2)(context, flags, device, display, get));
}

/* The end of a context waits for its work. Waiting here holds no lock of the library. */
static void wait_for_work(CUcontext handle) {
    CUcontext popped;
    if (KS_DRIVER(context_push)(handle) != CUDA_SUCCESS)
        return;
    KS_DRIVER(context_synchronize)();
    KS_DRIVER(context_pop)(&popped);
}

static CUresult destroy(CUresult (*real)(CUcontext), CUcontext handle) {
    wait_for_work(handle);
    return ks_context_end(real, handle);
}

int cuCtxDestroy(CUcontext context) {
    return destroy(KS_REAL(cuCtxDestroy), context);
}

int cuCtxDestroy_v2(CUcontext context) {
    return destroy(KS_REAL(cuCtxDestroy_v2), context);
}

int cuCtxAttach(CUcontext *context, unsigned int flags) {
    const CUresult result = KS_REAL(cuCtxAttach)(context, flags);
    if (result == CUDA_SUCCESS)
        ks_context_change_uses(*context, 1);
    return result;
}

int cuCtxDetach(CUcontext context) {
    if (ks_context_change_uses(context, -1))
        return KS_REAL(cuCtxDetach)(context);
    return destroy(KS_REAL(cuCtxDetach), context);
}

/* Retains the primary context of its GPU, whose events also cover its work. Where the driver has no
 * such events, its default stream is followed like other streams. */
int cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc resources, CUdevice device,
                     unsigned int flags) {
    CUresult result = may_have_context(device);
    if (result != CUDA_SUCCESS)
        return result;
    ks_contexts_expect_green();
    result = KS_REAL(cuGreenCtxCreate)(context, resources, device, flags);
    if (result != CUDA_SUCCESS || ks_driver_has(KS_CALL_context_record_event) ||
        ks_context_track_green(*context))
        return result;
    ks_debug("more than %u streams at once", KS_STREAMS_MAX);
    KS_REAL(cuGreenCtxDestroy)(*context);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

int cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    CUresult result = may_have_context(device);
    if (result != CUDA_SUCCESS)
        return result;
    result = KS_REAL(cuDevicePrimaryCtxRetain)(context, device);
    if (result == CUDA_SUCCESS)
        ks_contexts_prepare(device);
    return result;
}

int cuDevicePrimaryCtxRelease(CUdevice device) {
    return ks_context_end_primary(KS_REAL(cuDevicePrimaryCtxRelease), device);
}

int cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return ks_context_end_primary(KS_REAL(cuDevicePrimaryCtxRelease_v2), device);
}

int cuDevicePrimaryCtxReset(CUdevice device) {
    return ks_context_end_primary(KS_REAL(cuDevicePrimaryCtxReset), device);
}

int cuDevicePrimaryCtxReset_v2(CUdevice device) {
    return ks_context_end_primary(KS_REAL(cuDevicePrimaryCtxReset_v2), device);
}

/* The CUDA runtime retains primary contexts by a function of an export table. That is not hooked,
 * so a context is also checked when a thread makes it its own. */
static CUresult check_current(void) {
    CUdevice device;
    if (KS_DRIVER(context_get_device)(&device) != CUDA_SUCCESS)
        return CUDA_SUCCESS;
    const CUresult result = may_have_context(device);
    if (result == CUDA_SUCCESS)
        ks_contexts_prepare(device);
    return result;
}

static CUresult push(CUresult (*real)(CUcontext), CUcontext context) {
    CUcontext popped;
    const CUresult result = real(context);
    if (result != CUDA_SUCCESS)
        return result;
    const CUresult refusal = check_current();
    if (refusal != CUDA_SUCCESS)
        KS_DRIVER(context_pop)(&popped);
    return refusal;
}

int cuCtxPushCurrent(CUcontext context) {
    return push(KS_REAL(cuCtxPushCurrent), context);
}

int cuCtxPushCurrent_v2(CUcontext context) {
    return push(KS_REAL(cuCtxPushCurrent_v2), context);
}

int cuCtxSetCurrent(CUcontext context) {
    const CUcontext previous = ks_current_context();
    const CUresult result = KS_REAL(cuCtxSetCurrent)(context);
    if (result != CUDA_SUCCESS || context == NULL)
        return result;
    const CUresult refusal = check_current();
    if (refusal != CUDA_SUCCESS)
        KS_REAL(cuCtxSetCurrent)(previous);
    return refusal;
}
