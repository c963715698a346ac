/*
 * The open captures, by their origin streams.
 *
 * An event of the library in the wrong place invalidates the application's
 * capture (errors 900 to 907). So a capture only begins while the library has
 * no call of its own inside the driver, and until it ends the library's events
 * are recorded in the streams that are not captured (timeline.c). Streams that
 * join a capture by waiting for one of its events are not recorded here: the
 * driver knows whether a stream is being captured.
 */
#include "gate/capture.h"

#include "context.h"
#include "lock.h"
#include "lookup/driver_calls.h"
#include "lookup/real.h"
#include "system.h"

#include <string.h>

#define CAPTURES_MAX 256

struct capture {
    CUstream origin; /* NULL: this entry is free */
    int thread;      /* for CU_STREAM_PER_THREAD, a different stream in each thread; else 0 */
    CUcontext context;
};

static ks_lock lock;
static struct capture captures[CAPTURES_MAX];
static unsigned open_captures; /* begun and not ended */

static int thread_of(CUstream stream) {
    return stream == CU_STREAM_PER_THREAD ? (int)syscall(SYS_gettid) : 0;
}

bool ks_is_captured(CUstream stream) {
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    return ks_is_capturing() && KS_DRIVER(stream_is_capturing)(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* ---- with the lock held --------------------------------------------------- */

static struct capture *find(CUstream stream) {
    const int thread = stream != NULL ? thread_of(stream) : 0;
    for (unsigned i = 0; i < CAPTURES_MAX; i++) {
        if (captures[i].origin == stream && captures[i].thread == thread)
            return &captures[i];
    }
    return NULL;
}

static void remove_capture(struct capture *capture) {
    *capture = (struct capture){0};
    if (--open_captures == 0)
        ks_fast_path_block(KS_CAPTURING, false);
}

/* ---- begin and end --------------------------------------------------------- */

/* Records a capture before it begins, so that no call of the library comes between. */
static struct capture *announce(CUstream stream) {
    ks_acquire(&lock, KS_LOCK_CAPTURE);
    struct capture *capture = find(NULL);
    if (capture != NULL) {
        *capture = (struct capture){.origin = stream, .thread = thread_of(stream)};
        if (KS_DRIVER(stream_get_context)(stream, &capture->context) != CUDA_SUCCESS)
            capture->context = ks_current_context();
        ks_contexts_hold();
        ks_contexts_gather();
        if (open_captures++ == 0)
            ks_fast_path_block(KS_CAPTURING, true);
    }
    return capture;
}

static CUresult begun(struct capture *capture, CUresult result) {
    if (result != CUDA_SUCCESS)
        remove_capture(capture);
    ks_contexts_release();
    ks_release(&lock);
    return result;
}

static CUresult too_many(void) {
    ks_release(&lock);
    ks_debug("more than %d captures at once", CAPTURES_MAX);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* An invalidated capture stays open until it is ended, which then fails; one that is ended from the
 * wrong thread or stream stays open too. */
static CUresult ended(CUstream stream, CUresult result) {
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    ks_acquire(&lock, KS_LOCK_CAPTURE);
    struct capture *capture = find(stream);
    const CUresult asked = KS_DRIVER(stream_is_capturing)(stream, &status);
    const bool is_over =
        asked == CUDA_SUCCESS ? status == CU_STREAM_CAPTURE_STATUS_NONE : result == CUDA_SUCCESS;
    if (capture != NULL && is_over)
        remove_capture(capture);
    ks_release(&lock);
    return result;
}

static CUresult destroy(CUresult (*real)(CUstream), CUstream stream) {
    ks_acquire(&lock, KS_LOCK_CAPTURE);
    struct capture *capture = stream != NULL ? find(stream) : NULL;
    const CUresult result = ks_context_end_stream(real, stream);
    if (capture != NULL && result == CUDA_SUCCESS)
        remove_capture(capture);
    ks_release(&lock);
    return result;
}

void ks_captures_drop(CUcontext context) {
    ks_acquire(&lock, KS_LOCK_CAPTURE);
    for (unsigned i = 0; i < CAPTURES_MAX; i++) {
        if (captures[i].origin != NULL && captures[i].context == context)
            remove_capture(&captures[i]);
    }
    ks_release(&lock);
}

void ks_captures_forget(void) {
    lock = (ks_lock){0};
    memset(captures, 0, sizeof captures);
    open_captures = 0;
}

/* ---- hooks ------------------------------------------------------------------ */

#define KS_BEGIN(stream, call)                                                                     \
    struct capture *const capture = announce(stream);                                              \
    return capture != NULL ? begun(capture, call) : too_many()

int cuStreamBeginCapture(CUstream stream) {
    KS_BEGIN(stream, KS_REAL(cuStreamBeginCapture)(stream));
}

int cuStreamBeginCapture_ptsz(CUstream stream) {
    KS_BEGIN(KS_STREAM_PER_THREAD(stream), KS_REAL(cuStreamBeginCapture_ptsz)(stream));
}

int cuStreamBeginCapture_v2(CUstream stream, int mode) {
    KS_BEGIN(stream, KS_REAL(cuStreamBeginCapture_v2)(stream, mode));
}

int cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode) {
    KS_BEGIN(KS_STREAM_PER_THREAD(stream), KS_REAL(cuStreamBeginCapture_v2_ptsz)(stream, mode));
}

int cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                                const void *edges, size_t count, int mode) {
    KS_BEGIN(stream,
             KS_REAL(cuStreamBeginCaptureToGraph)(stream, graph, dependencies, edges, count, mode));
}

int cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                     const CUgraphNode *dependencies, const void *edges,
                                     size_t count, int mode) {
    KS_BEGIN(KS_STREAM_PER_THREAD(stream), KS_REAL(cuStreamBeginCaptureToGraph_ptsz)(
                                               stream, graph, dependencies, edges, count, mode));
}

int cuStreamBeginRecaptureToGraph(CUstream stream, int mode, CUgraph graph, void *callback,
                                  void *data) {
    KS_BEGIN(stream, KS_REAL(cuStreamBeginRecaptureToGraph)(stream, mode, graph, callback, data));
}

int cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, int mode, CUgraph graph, void *callback,
                                       void *data) {
    KS_BEGIN(KS_STREAM_PER_THREAD(stream),
             KS_REAL(cuStreamBeginRecaptureToGraph_ptsz)(stream, mode, graph, callback, data));
}

int cuStreamBeginCaptureToCig(CUstream stream, void *parameters) {
    KS_BEGIN(stream, KS_REAL(cuStreamBeginCaptureToCig)(stream, parameters));
}

int cuStreamBeginCaptureToCig_ptsz(CUstream stream, void *parameters) {
    KS_BEGIN(KS_STREAM_PER_THREAD(stream),
             KS_REAL(cuStreamBeginCaptureToCig_ptsz)(stream, parameters));
}

int cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    return ended(stream, KS_REAL(cuStreamEndCapture)(stream, graph));
}

int cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph) {
    return ended(KS_STREAM_PER_THREAD(stream), KS_REAL(cuStreamEndCapture_ptsz)(stream, graph));
}

int cuStreamEndCaptureToCig(CUstream stream) {
    return ended(stream, KS_REAL(cuStreamEndCaptureToCig)(stream));
}

int cuStreamEndCaptureToCig_ptsz(CUstream stream) {
    return ended(KS_STREAM_PER_THREAD(stream), KS_REAL(cuStreamEndCaptureToCig_ptsz)(stream));
}

int cuStreamDestroy(CUstream stream) {
    return destroy(KS_REAL(cuStreamDestroy), stream);
}

int cuStreamDestroy_v2(CUstream stream) {
    return destroy(KS_REAL(cuStreamDestroy_v2), stream);
}

int cuGreenCtxDestroy(CUgreenCtx context) {
    CUcontext ended;
    const CUresult result = ks_context_end_green(KS_REAL(cuGreenCtxDestroy), context, &ended);
    if (ended != NULL)
        ks_captures_drop(ended);
    return result;
}
