/*
 * Synchronisation with the GPU: the driver then returns what pools have reserved
 * beyond their threshold, and other processes of the session may have it at once.
 */
#include "lookup/real.h"
#include "memory/pools.h"
#include "memory/spill.h"

static CUresult synchronized(CUresult result) {
    if (result == CUDA_SUCCESS)
        ks_pools_synchronized();
    return result;
}

static CUresult context_synchronized(CUresult result) {
    if (result == CUDA_SUCCESS)
        ks_spill_free_reached();
    return synchronized(result);
}

int cuCtxSynchronize(void) {
    return context_synchronized(KS_REAL(cuCtxSynchronize)());
}

int cuCtxSynchronize_v2(CUcontext context) {
    return context_synchronized(KS_REAL(cuCtxSynchronize_v2)(context));
}

int cuStreamSynchronize(CUstream stream) {
    return synchronized(KS_REAL(cuStreamSynchronize)(stream));
}

int cuStreamSynchronize_ptsz(CUstream stream) {
    return synchronized(KS_REAL(cuStreamSynchronize_ptsz)(stream));
}

int cuEventSynchronize(CUevent event) {
    return synchronized(KS_REAL(cuEventSynchronize)(event));
}
