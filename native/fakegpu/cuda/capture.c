#include "capture.h"

#include <stdlib.h>

#include "graph.h"
#include "graph_memory.h"

unsigned capture_count;
struct capture *captures;

__attribute__((tls_model("initial-exec"))) _Thread_local CUstreamCaptureMode capture_thread_mode;

/* ---- what breaks a capture ---------------------------------------------------------- */

CUresult capture_break(struct capture *capture, CUresult error) {
    CUresult answer = capture->broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : error;
    capture->broken = true;
    return answer;
}

static bool forbids(const struct capture *capture, uint64_t thread) {
    if (capture->thread == thread)
        return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return capture_thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult unsafe_call(void) {
    CUresult answer = CUDA_SUCCESS;
    if (!captures_any() || capture_thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    uint64_t thread = this_thread();
    pthread_mutex_lock(&graphs_lock);
    for (struct capture *capture = captures; capture != NULL; capture = capture->next)
        if (forbids(capture, thread))
            answer = capture_break(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    pthread_mutex_unlock(&graphs_lock);
    return answer;
}

/* Breaks the captures with a stream of this context, or with one that waits for its legacy stream.
 * graphs_lock held. */
static CUresult break_in(const struct CUctx_st *context, bool all, CUresult error) {
    CUresult answer = CUDA_SUCCESS;
    for (struct capture *capture = captures; capture != NULL; capture = capture->next) {
        const struct CUstream_st *stream = capture->streams;
        while (stream != NULL && (stream->context != context ||
                                  (!all && (stream->flags & CU_STREAM_NON_BLOCKING) != 0)))
            stream = stream->also;
        if (stream != NULL)
            answer = capture_break(capture, error);
    }
    return answer;
}

CUresult whole_context_call(const struct CUctx_st *context) {
    if (!captures_any())
        return CUDA_SUCCESS;
    pthread_mutex_lock(&graphs_lock);
    CUresult answer = break_in(context, true, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    pthread_mutex_unlock(&graphs_lock);
    return answer == CUDA_SUCCESS ? unsafe_call() : answer;
}

static CUresult legacy_use(const struct CUstream_st *stream) {
    if (stream != &stream->context->legacy)
        return CUDA_SUCCESS;
    return break_in(stream->context, false, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

CUresult progress_call(const struct CUstream_st *stream) {
    if (!captures_any())
        return CUDA_SUCCESS;
    pthread_mutex_lock(&graphs_lock);
    CUresult answer = stream->capture != NULL
                          ? capture_break(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
                          : legacy_use(stream);
    pthread_mutex_unlock(&graphs_lock);
    return answer == CUDA_SUCCESS ? unsafe_call() : answer;
}

/* graphs_lock held. */
static struct capture *find(uint64_t id) {
    struct capture *capture = captures;
    while (capture != NULL && capture->id != id)
        capture = capture->next;
    return capture;
}

bool capture_holds(const struct CUevent_st *event) {
    return __atomic_load_n(&event->capture, __ATOMIC_RELAXED) != 0;
}

CUresult event_call(const struct CUevent_st *event) {
    if (capture_holds(event)) {
        pthread_mutex_lock(&graphs_lock);
        struct capture *capture = find(event->capture);
        if (capture != NULL)
            capture->broken = true;
        pthread_mutex_unlock(&graphs_lock);
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    return unsafe_call();
}

/* ---- what goes into one ------------------------------------------------------------------ */

void capture_forget(struct CUevent_st *event) {
    __atomic_store_n(&event->capture, 0, __ATOMIC_RELAXED);
}

static CUresult add(struct CUstream_st *stream, const struct operation *operation) {
    struct CUgraphNode_st *node = graph_add(stream->capture->graph, operation, &stream->tips);
    REQUIRE(node != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    stream->tips.count = 0;
    return node_set_add(&stream->tips, node) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult capture_operation(struct CUstream_st *stream, const struct operation *operation,
                           bool *captured) {
    CUresult answer = CUDA_SUCCESS;
    pthread_mutex_lock(&graphs_lock);
    struct capture *capture = stream->capture;
    *captured = capture != NULL;
    if (capture == NULL)
        answer = legacy_use(stream);
    else if (capture->broken)
        answer = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (operation->kind == OPERATION_CALLBACK)
        answer = capture_break(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    else
        answer = add(stream, operation);
    pthread_mutex_unlock(&graphs_lock);
    return answer;
}

CUresult capture_allocation(struct CUstream_st *stream, struct device *device, uint64_t bytes,
                            CUdeviceptr *pointer, bool *captured) {
    struct operation operation = {.kind = OPERATION_ALLOCATE};
    pthread_mutex_lock(&graphs_lock);
    *captured = stream->capture != NULL;
    pthread_mutex_unlock(&graphs_lock);
    if (!*captured)
        return CUDA_SUCCESS;
    REQUIRE(device != NULL, CUDA_ERROR_NOT_SUPPORTED);
    TRY(graph_memory_make(device, bytes, &operation.memory));
    CUresult result = capture_operation(stream, &operation, captured);
    *pointer = operation.memory->base;
    operation_clear(&operation);
    return result;
}

CUresult capture_record(struct CUevent_st *event, struct CUstream_st *stream, bool *captured) {
    CUresult answer = CUDA_SUCCESS;
    capture_forget(event);
    if (!captures_any())
        return CUDA_SUCCESS;
    pthread_mutex_lock(&graphs_lock);
    struct capture *capture = stream->capture;
    *captured = capture != NULL;
    if (capture == NULL)
        answer = legacy_use(stream);
    else if (capture->broken)
        answer = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!node_set_copy(&event->tips, &stream->tips))
        answer = CUDA_ERROR_OUT_OF_MEMORY;
    else
        __atomic_store_n(&event->capture, capture->id, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&graphs_lock);
    return answer;
}

/* graphs_lock held. */
void capture_join(struct CUstream_st *stream, struct capture *capture) {
    stream->capture = capture;
    stream->also = capture->streams;
    capture->streams = stream;
    stream->tips.count = 0;
}

static CUresult follow(struct CUstream_st *stream, const struct CUevent_st *event,
                       struct capture *there) {
    struct capture *here = stream->capture;
    if (here != NULL && here->broken)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (event->capture == 0)
        return here == NULL || event->state == EVENT_NEW
                   ? CUDA_SUCCESS
                   : capture_break(here, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    if (there == NULL)
        return here == NULL ? CUDA_ERROR_CAPTURED_EVENT
                            : capture_break(here, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    if (there->broken)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (here != NULL && here != there) {
        there->broken = true;
        return capture_break(here, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    if (stream == &stream->context->legacy)
        return capture_break(there, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (here == NULL)
        capture_join(stream, there);
    for (size_t i = 0; i < event->tips.count; i++)
        if (!node_set_add(&stream->tips, event->tips.node[i]))
            return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

CUresult capture_wait(struct CUstream_st *stream, struct CUevent_st *event, bool *captured) {
    CUresult answer;
    if (!captures_any() && !capture_holds(event))
        return CUDA_SUCCESS;
    pthread_mutex_lock(&graphs_lock);
    answer = follow(stream, event, find(event->capture));
    *captured = stream->capture != NULL;
    if (answer == CUDA_SUCCESS && !*captured)
        answer = legacy_use(stream);
    pthread_mutex_unlock(&graphs_lock);
    return answer;
}

/* ---- leaving one ------------------------------------------------------------------------ */

void capture_leave(struct capture *capture) {
    while (capture->streams != NULL) {
        struct CUstream_st *stream = capture->streams;
        capture->streams = stream->also;
        stream->capture = NULL;
        stream->tips.count = 0;
    }
    struct capture **place = &captures;
    while (*place != capture)
        place = &(*place)->next;
    *place = capture->next;
    __atomic_sub_fetch(&capture_count, 1, __ATOMIC_RELEASE);
    free(capture);
}

void capture_lose(struct CUstream_st *stream) {
    pthread_mutex_lock(&graphs_lock);
    struct capture *capture = stream->capture;
    if (capture != NULL) {
        struct CUstream_st **place = &capture->streams;
        while (*place != stream)
            place = &(*place)->also;
        *place = stream->also;
        capture->broken = true;
        if (capture->origin == stream) {
            if (capture->own_graph)
                graph_free(capture->graph);
            capture_leave(capture);
        }
    }
    free(stream->tips.node);
    stream->tips = (struct node_set){0};
    pthread_mutex_unlock(&graphs_lock);
}
