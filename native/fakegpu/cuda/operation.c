/* Operations as values, and their way into a stream. */
#include "operation.h"

#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "deferred.h"
#include "graph.h"
#include "graph_memory.h"

bool operation_clone(struct operation *copy, const struct operation *operation) {
    *copy = *operation;
    if (operation->kind == OPERATION_GRAPH)
        return (copy->graph = graph_clone(operation->graph)) != NULL;
    if (operation->kind == OPERATION_ALLOCATE)
        graph_memory_hold(operation->memory);
    if (operation->kind != OPERATION_VALUES)
        return true;
    size_t bytes = operation->values.count * sizeof *operation->values.value;
    copy->values.value = malloc(bytes);
    if (copy->values.value == NULL)
        return false;
    memcpy(copy->values.value, operation->values.value, bytes);
    return true;
}

void operation_clear(struct operation *operation) {
    if (operation->kind == OPERATION_GRAPH)
        graph_free(operation->graph);
    if (operation->kind == OPERATION_ALLOCATE)
        graph_memory_drop(operation->memory);
    if (operation->kind == OPERATION_VALUES)
        free(operation->values.value);
    operation->kind = OPERATION_EMPTY;
}

void operation_submit(struct CUstream_st *stream, const struct operation *operation) {
    uint64_t number = stream_submit(stream, operation->duration_ns);
    uint64_t none = 0;
    if (operation->kind != OPERATION_KERNEL || !operation->kernel.breaks)
        return;
    __atomic_store_n(&stream->context->doom, operation->kernel.argument, __ATOMIC_RELAXED);
    __atomic_compare_exchange_n(&stream->context->doomed, &none, number, false, __ATOMIC_RELEASE,
                                __ATOMIC_RELAXED);
}

CUresult stream_do_now(struct CUstream_st *stream, const struct operation *operation) {
    bool taken = false;
    if (operation_needs_quiet(operation) || operation->kind == OPERATION_WAIT || deferred_any())
        TRY(defer(stream, operation, &taken));
    if (taken)
        return CUDA_SUCCESS;
    operation_move_bytes(operation);
    if (operation->kind == OPERATION_RECORD)
        event_record(operation->event, stream);
    else if (operation->kind == OPERATION_WAIT)
        return event_hold_up(operation->event, stream);
    else if (operation->duration_ns > 0)
        operation_submit(stream, operation);
    return CUDA_SUCCESS;
}

CUresult stream_do(struct CUstream_st *stream, const struct operation *operation) {
    bool captured = false;
    if (captures_any())
        TRY(capture_operation(stream, operation, &captured));
    return captured ? CUDA_SUCCESS : stream_do_now(stream, operation);
}
