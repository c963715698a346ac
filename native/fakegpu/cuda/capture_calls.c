/* Stream capture as programs ask for it. */
#include <stdlib.h>

#include "capture.h"
#include "graph.h"

static CUresult begin(struct CUstream_st *stream, CUstreamCaptureMode mode,
                      struct CUgraph_st *graph, const struct node_set *tips) {
    static uint64_t last_id;
    REQUIRE(stream->capture == NULL, CUDA_ERROR_ILLEGAL_STATE);
    struct capture *capture = calloc(1, sizeof *capture);
    REQUIRE(capture != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    *capture = (struct capture){.id = ++last_id,
                                .thread = this_thread(),
                                .mode = mode,
                                .graph = graph == NULL ? graph_new() : graph,
                                .own_graph = graph == NULL,
                                .origin = stream,
                                .next = captures};
    if (capture->graph == NULL) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    captures = capture;
    __atomic_add_fetch(&capture_count, 1, __ATOMIC_RELEASE);
    capture_join(stream, capture);
    return node_set_copy(&stream->tips, tips) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult begin_capture(CUstream handle, CUstreamCaptureMode mode, struct CUgraph_st *graph,
                              const struct node_set *tips) {
    struct CUstream_st *stream;
    TRY(find_stream(handle, &stream));
    REQUIRE(mode <= CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(stream != &stream->context->legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    pthread_mutex_lock(&graphs_lock);
    CUresult result = begin(stream, mode, graph, tips);
    pthread_mutex_unlock(&graphs_lock);
    return result;
}

/* Whether all that was captured leads to where the capture ends. */
static bool joined(const struct capture *capture) {
    for (const struct CUstream_st *stream = capture->streams; stream != NULL; stream = stream->also)
        if (!nodes_joined(capture->graph, &stream->tips, &capture->origin->tips))
            return false;
    return true;
}

static CUresult end(struct CUstream_st *stream, CUgraph *graph) {
    struct capture *capture = stream->capture;
    REQUIRE(capture != NULL, CUDA_ERROR_ILLEGAL_STATE);
    REQUIRE(capture->origin == stream, capture_break(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED));
    REQUIRE(capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED || capture->thread == this_thread(),
            capture_break(capture, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD));
    CUresult result = capture->broken    ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                      : !joined(capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                         : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        *graph = capture->graph;
    else if (capture->own_graph)
        graph_free(capture->graph);
    capture_leave(capture);
    return result;
}

/* ---- the API --------------------------------------------------------------------------------- */

API cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    return begin_capture(stream, mode, NULL, &(struct node_set){0});
}

API cuStreamBeginCapture(CUstream stream) {
    return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

API cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                                const CUgraphEdgeData *edges, size_t count,
                                CUstreamCaptureMode mode) {
    (void)edges;
    REQUIRE(graph != NULL && (count == 0 || dependencies != NULL), CUDA_ERROR_INVALID_VALUE);
    struct node_set tips = {(CUgraphNode *)dependencies, count, count};
    return begin_capture(stream, mode, graph, &tips);
}

API cuStreamEndCapture(CUstream handle, CUgraph *graph) {
    struct CUstream_st *stream;
    REQUIRE(graph != NULL, CUDA_ERROR_INVALID_VALUE);
    TRY(find_stream(handle, &stream));
    *graph = NULL;
    pthread_mutex_lock(&graphs_lock);
    CUresult result = end(stream, graph);
    pthread_mutex_unlock(&graphs_lock);
    return result;
}

API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    REQUIRE(mode != NULL && *mode <= CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
    CUstreamCaptureMode before = capture_thread_mode;
    capture_thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* The legacy stream is never captured, but may not be asked while one that waits for it is. */
API cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
                              CUgraph *graph, const CUgraphNode **dependencies,
                              const CUgraphEdgeData **edges, size_t *count) {
    struct CUstream_st *stream;
    CUresult result = CUDA_SUCCESS;
    REQUIRE(status != NULL, CUDA_ERROR_INVALID_VALUE);
    TRY(find_stream(handle, &stream));
    pthread_mutex_lock(&graphs_lock);
    const struct capture *capture = stream->capture;
    *status = capture == NULL   ? CU_STREAM_CAPTURE_STATUS_NONE
              : capture->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (*status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        if (id != NULL)
            *id = capture->id;
        if (graph != NULL)
            *graph = capture->graph;
        if (dependencies != NULL)
            *dependencies = stream->tips.node;
        if (edges != NULL)
            *edges = NULL;
        if (count != NULL)
            *count = stream->tips.count;
    }
    if (stream == &stream->context->legacy)
        for (const struct capture *other = captures; other != NULL; other = other->next)
            for (const struct CUstream_st *at = other->streams; at != NULL; at = at->also)
                if (at->context == stream->context && (at->flags & CU_STREAM_NON_BLOCKING) == 0)
                    result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    pthread_mutex_unlock(&graphs_lock);
    return result;
}

API cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode *dependencies,
                                         const CUgraphEdgeData *edges, size_t count,
                                         unsigned int flags) {
    struct CUstream_st *stream;
    (void)edges;
    REQUIRE(flags <= CU_STREAM_SET_CAPTURE_DEPENDENCIES && (count == 0 || dependencies != NULL),
            CUDA_ERROR_INVALID_VALUE);
    TRY(find_stream(handle, &stream));
    pthread_mutex_lock(&graphs_lock);
    CUresult result = stream->capture == NULL   ? CUDA_ERROR_ILLEGAL_STATE
                      : stream->capture->broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                                                : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        stream->tips.count = 0;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        if (!node_set_add(&stream->tips, dependencies[i]))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&graphs_lock);
    return result;
}

/* ---- older ABIs, and twins with the thread's own default stream
 * ----------------------------------- */

API cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                              CUgraph *graph, const CUgraphNode **dependencies, size_t *count) {
    return cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, NULL, count);
}

API cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id) {
    return cuStreamGetCaptureInfo_v3(stream, status, id, NULL, NULL, NULL, NULL);
}

API cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    return cuStreamGetCaptureInfo_v3(stream, status, NULL, NULL, NULL, NULL, NULL);
}

API cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *dependencies, size_t count,
                                      unsigned int flags) {
    return cuStreamUpdateCaptureDependencies_v2(stream, dependencies, NULL, count, flags);
}
