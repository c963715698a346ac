/*
 * The functions that create streams. Those that end them are in gate/capture.c.
 */
#include "context.h"
#include "lookup/driver_calls.h"
#include "lookup/real.h"
#include "streams.h"
#include "system.h"

/* A stream whose work cannot be followed is ended at once, unless the driver has events that are
 * behind the work of all streams. */
static CUresult keep(CUstream stream, unsigned int flags) {
    if (ks_context_track_stream(stream, flags) || ks_driver_has(KS_CALL_context_record_event))
        return CUDA_SUCCESS;
    ks_debug("more than %u streams at once", KS_STREAMS_MAX);
    KS_DRIVER(stream_destroy)(stream);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

int cuStreamCreate(CUstream *stream, unsigned int flags) {
    const CUresult result = KS_REAL(cuStreamCreate)(stream, flags);
    return result == CUDA_SUCCESS ? keep(*stream, flags) : result;
}

int cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority) {
    const CUresult result = KS_REAL(cuStreamCreateWithPriority)(stream, flags, priority);
    return result == CUDA_SUCCESS ? keep(*stream, flags) : result;
}

int cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx context, unsigned int flags, int priority) {
    const CUresult result = KS_REAL(cuGreenCtxStreamCreate)(stream, context, flags, priority);
    return result == CUDA_SUCCESS ? keep(*stream, flags) : result;
}
