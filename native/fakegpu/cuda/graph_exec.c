/*
 * Executable graphs. A launched one runs its nodes one after another in an
 * order that keeps every dependency: parallel branches do not overlap. Kernels
 * that follow each other go to the
 * engine as one piece of work of the sum of their times: as with the real
 * driver a launch of many nodes takes one place of the queue.
 */
#include <stdlib.h>

#include "capture.h"
#include "deferred.h"
#include "graph.h"
#include "graph_memory.h"

/* ---- made and ended ------------------------------------------------------------------- */

/* graphs_lock held. */
CUresult graph_compile(CUgraphExec *executable, CUgraph graph, uint64_t flags) {
    static unsigned last_id;
    struct CUgraphExec_st *compiled = calloc(1, sizeof *compiled);
    REQUIRE(compiled != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    compiled->graph = graph_clone(graph);
    compiled->order = compiled->graph == NULL ? NULL : graph_order(compiled->graph);
    compiled->flags = flags;
    compiled->id = ++last_id;
    if (compiled->order != NULL) {
        *executable = compiled;
        return CUDA_SUCCESS;
    }
    CUresult result = compiled->graph == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    graph_free(compiled->graph);
    free(compiled);
    return result;
}

API cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags) {
    TRY(driver_ready());
    REQUIRE(executable != NULL && graph != NULL && flags < 16, CUDA_ERROR_INVALID_VALUE);
    MODELLED((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) == 0,
             "a graph that kernels launch");
    pthread_mutex_lock(&graphs_lock);
    CUresult result = graph_compile(executable, graph, flags);
    pthread_mutex_unlock(&graphs_lock);
    return result;
}

API cuGraphInstantiateWithParams(CUgraphExec *executable, CUgraph graph,
                                 CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
    REQUIRE(parameters != NULL, CUDA_ERROR_INVALID_VALUE);
    CUresult result = cuGraphInstantiateWithFlags(executable, graph, parameters->flags);
    parameters->hErrNode_out = NULL;
    parameters->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                             : result == CUDA_ERROR_INVALID_VALUE
                                 ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
                                 : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

API cuGraphInstantiate_v2(CUgraphExec *executable, CUgraph graph, CUgraphNode *node, char *log,
                          size_t size) {
    if (node != NULL)
        *node = NULL;
    if (log != NULL && size > 0)
        *log = '\0';
    return cuGraphInstantiateWithFlags(executable, graph, 0);
}

/* What was launched goes on: it is in the engine's queue or in the list, not here. */
API cuGraphExecDestroy(CUgraphExec executable) {
    TRY(driver_ready());
    REQUIRE(executable != NULL, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&graphs_lock);
    graph_free(executable->graph);
    free(executable->order);
    free(executable);
    pthread_mutex_unlock(&graphs_lock);
    return CUDA_SUCCESS;
}

API cuGraphExecGetFlags(CUgraphExec executable, cuuint64_t *flags) {
    TRY(driver_ready());
    REQUIRE(executable != NULL && flags != NULL, CUDA_ERROR_INVALID_VALUE);
    *flags = executable->flags;
    return CUDA_SUCCESS;
}

API cuGraphExecGetId(CUgraphExec executable, unsigned int *id) {
    TRY(driver_ready());
    REQUIRE(executable != NULL && id != NULL, CUDA_ERROR_INVALID_VALUE);
    *id = executable->id;
    return CUDA_SUCCESS;
}

/* ---- launched --------------------------------------------------------------------------- */

static CUresult flush(struct CUstream_st *stream, uint64_t *span_ns) {
    const struct operation span = {.kind = OPERATION_SPAN, .duration_ns = *span_ns};
    *span_ns = 0;
    return span.duration_ns == 0 ? CUDA_SUCCESS : stream_do_now(stream, &span);
}

static CUresult run_nodes(struct CUstream_st *stream, struct CUgraphNode_st *const *order,
                          size_t count, uint64_t *span_ns);

static CUresult run_child(struct CUstream_st *stream, struct CUgraph_st *graph, uint64_t *span_ns) {
    pthread_mutex_lock(&graphs_lock);
    struct CUgraphNode_st **order = graph_order(graph);
    pthread_mutex_unlock(&graphs_lock);
    REQUIRE(order != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = run_nodes(stream, order, graph->nodes, span_ns);
    free(order);
    return result;
}

static CUresult run_nodes(struct CUstream_st *stream, struct CUgraphNode_st *const *order,
                          size_t count, uint64_t *span_ns) {
    for (size_t i = 0; i < count; i++) {
        const struct operation *operation = &order[i]->operation;
        if (order[i]->disabled || operation->kind == OPERATION_EMPTY ||
            operation->kind == OPERATION_ALLOCATE || operation->kind == OPERATION_FREE)
            continue;
        if (operation->kind == OPERATION_KERNEL && !operation->kernel.breaks) {
            *span_ns += operation->duration_ns;
        } else if (operation->kind == OPERATION_GRAPH) {
            TRY(run_child(stream, operation->graph, span_ns));
        } else {
            TRY(flush(stream, span_ns));
            TRY(stream_do_now(stream, operation));
        }
    }
    return CUDA_SUCCESS;
}

/* Gives a launch its memory, and takes what its nodes free; what it got goes back where there is
 * not enough. */
static CUresult settle_memory(CUgraphExec executable) {
    bool again = (executable->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
    CUresult result = CUDA_SUCCESS;
    size_t i = 0;
    for (; i < executable->graph->nodes && result == CUDA_SUCCESS; i++) {
        const struct operation *operation = &executable->order[i]->operation;
        if (operation->kind == OPERATION_FREE)
            graph_memory_give(operation->freed);
        if (operation->kind != OPERATION_ALLOCATE)
            continue;
        if (again)
            graph_memory_give(operation->memory->base);
        result = graph_memory_take(operation->memory);
    }
    for (; result != CUDA_SUCCESS && i > 1; i--)
        if (executable->order[i - 2]->operation.kind == OPERATION_ALLOCATE)
            graph_memory_give(executable->order[i - 2]->operation.memory->base);
    return result;
}

API cuGraphLaunch(CUgraphExec executable, CUstream handle) {
    struct CUstream_st *stream;
    bool captured = false;
    uint64_t span_ns = 0;
    TRY(find_stream(handle, &stream));
    REQUIRE(executable != NULL, CUDA_ERROR_INVALID_VALUE);
    call_costs(&driver.engine.profile.costs.launch, stream->context);
    const struct operation whole = {.kind = OPERATION_GRAPH, .graph = executable->graph};
    if (captures_any())
        TRY(capture_operation(stream, &whole, &captured));
    if (captured)
        return CUDA_SUCCESS;
    TRY(settle_memory(executable));
    TRY(run_nodes(stream, executable->order, executable->graph->nodes, &span_ns));
    return flush(stream, &span_ns);
}

/* What is left to do for a graph that is made is to reserve what it will allocate. */
API cuGraphUpload(CUgraphExec executable, CUstream handle) {
    struct CUstream_st *stream;
    TRY(find_stream(handle, &stream));
    REQUIRE(executable != NULL, CUDA_ERROR_INVALID_VALUE);
    bool lives = false;
    for (size_t i = 0; i < executable->graph->nodes; i++)
        lives = lives || (executable->order[i]->operation.kind == OPERATION_ALLOCATE &&
                          executable->order[i]->operation.memory->live);
    if (lives)
        return CUDA_SUCCESS;
    TRY(settle_memory(executable));
    for (size_t i = 0; i < executable->graph->nodes; i++)
        if (executable->order[i]->operation.kind == OPERATION_ALLOCATE)
            graph_memory_give(executable->order[i]->operation.memory->base);
    return CUDA_SUCCESS;
}
