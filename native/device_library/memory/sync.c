/*
 * Synchronisation with the GPU: the driver then returns what pools have reserved
 * beyond their threshold, and other processes of the session may have it at once.
 */
#include "lookup/real.h"
#include "memory/pools.h"

static CUresult synchronized(CUresult result) {
    if (result == CUDA_SUCCESS)
        ks_pools_synchronized();
    return result;
}

int cuCtxSynchronize(void) {
    return synchronized(KS_REAL(cuCtxSynchronize)());
}

int cuCtxSynchronize_v2(CUcontext context) {
    return synchronized(KS_REAL(cuCtxSynchronize_v2)(context));
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
