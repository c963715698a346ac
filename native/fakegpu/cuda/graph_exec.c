/*
 * Executable graphs. A launched one runs its nodes one after another in an
 * order that keeps every dependency: parallel branches do not overlap, as
 * streams of one process do not. Kernels that follow each other go to the
 * engine as one piece of work of the sum of their times: as with the real
 * driver a launch of many nodes takes one place of the queue.
 */
#include <stdlib.h>

#include "capture.h"
#include "deferred.h"
#include "graph.h"
#include "graph_memory.h"

struct CUgraphExec_st {
    struct CUgraph_st *graph; /* a copy of its own */
    struct CUgraphNode_st **order;
    unsigned id;
    uint64_t flags;
};

/* ---- made and ended ------------------------------------------------------------------- */

/* graphs_lock held. */
static CUresult compile(CUgraphExec *executable, CUgraph graph, uint64_t flags) {
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
    REQUIRE((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) == 0, CUDA_ERROR_NOT_SUPPORTED);
    pthread_mutex_lock(&graphs_lock);
    CUresult result = compile(executable, graph, flags);
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

API cuGraphInstantiateWithParams_ptsz(CUgraphExec *executable, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
    return cuGraphInstantiateWithParams(executable, graph, parameters);
}

API cuGraphInstantiate_v2(CUgraphExec *executable, CUgraph graph, CUgraphNode *node, char *log,
                          size_t size) {
    if (node != NULL)
        *node = NULL;
    if (log != NULL && size > 0)
        *log = '\0';
    return cuGraphInstantiateWithFlags(executable, graph, 0);
}

API cuGraphInstantiate(CUgraphExec *executable, CUgraph graph, CUgraphNode *node, char *log,
                       size_t size) {
    return cuGraphInstantiate_v2(executable, graph, node, log, size);
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
    const struct operation whole = {.kind = OPERATION_GRAPH, .graph = executable->graph};
    if (captures_any())
        TRY(capture_operation(stream, &whole, &captured));
    if (captured)
        return CUDA_SUCCESS;
    TRY(settle_memory(executable));
    TRY(run_nodes(stream, executable->order, executable->graph->nodes, &span_ns));
    return flush(stream, &span_ns);
}

API cuGraphLaunch_ptsz(CUgraphExec executable, CUstream stream) {
    return cuGraphLaunch(executable, per_thread(stream));
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

API cuGraphUpload_ptsz(CUgraphExec executable, CUstream stream) {
    return cuGraphUpload(executable, per_thread(stream));
}

/* ---- changed ----------------------------------------------------------------------------- */

static struct CUgraphNode_st *find(CUgraphExec executable, CUgraphNode node) {
    struct CUgraphNode_st *copy = executable->graph->first;
    while (copy != NULL && copy->origin != node)
        copy = copy->next;
    return copy;
}

static CUresult change(CUgraphExec executable, CUgraphNode node, CUgraphNodeParams *form) {
    struct operation operation;
    TRY(driver_ready());
    REQUIRE(executable != NULL && node != NULL, CUDA_ERROR_INVALID_VALUE);
    struct CUgraphNode_st *copy = find(executable, node);
    REQUIRE(copy != NULL, CUDA_ERROR_INVALID_VALUE);
    TRY(node_operation(&operation, form));
    return node_change(copy, &operation);
}

API cuGraphExecNodeSetParams(CUgraphExec executable, CUgraphNode node, CUgraphNodeParams *form) {
    return change(executable, node, form);
}

API cuGraphExecKernelNodeSetParams_v2(CUgraphExec executable, CUgraphNode node,
                                      const CUDA_KERNEL_NODE_PARAMS *parameters) {
    CUgraphNodeParams form = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    REQUIRE(parameters != NULL, CUDA_ERROR_INVALID_VALUE);
    form.kernel = (CUDA_KERNEL_NODE_PARAMS_v3){.func = parameters->func,
                                               .gridDimX = parameters->gridDimX,
                                               .gridDimY = parameters->gridDimY,
                                               .gridDimZ = parameters->gridDimZ,
                                               .blockDimX = parameters->blockDimX,
                                               .blockDimY = parameters->blockDimY,
                                               .blockDimZ = parameters->blockDimZ,
                                               .sharedMemBytes = parameters->sharedMemBytes,
                                               .kernelParams = parameters->kernelParams,
                                               .extra = parameters->extra,
                                               .kern = parameters->kern};
    return change(executable, node, &form);
}

API cuGraphExecKernelNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                   const CUDA_KERNEL_NODE_PARAMS_v1 *parameters) {
    REQUIRE(parameters != NULL, CUDA_ERROR_INVALID_VALUE);
    const CUDA_KERNEL_NODE_PARAMS same = {.func = parameters->func,
                                          .gridDimX = parameters->gridDimX,
                                          .gridDimY = parameters->gridDimY,
                                          .gridDimZ = parameters->gridDimZ,
                                          .blockDimX = parameters->blockDimX,
                                          .blockDimY = parameters->blockDimY,
                                          .blockDimZ = parameters->blockDimZ,
                                          .sharedMemBytes = parameters->sharedMemBytes,
                                          .kernelParams = parameters->kernelParams,
                                          .extra = parameters->extra};
    return cuGraphExecKernelNodeSetParams_v2(executable, node, &same);
}

API cuGraphExecMemcpyNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                   const CUDA_MEMCPY3D *parameters, CUcontext context) {
    CUgraphNodeParams form = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    REQUIRE(parameters != NULL, CUDA_ERROR_INVALID_VALUE);
    form.memcpy.copyCtx = context;
    form.memcpy.copyParams = *parameters;
    return change(executable, node, &form);
}

API cuGraphExecMemsetNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                   const CUDA_MEMSET_NODE_PARAMS *parameters, CUcontext context) {
    CUgraphNodeParams form = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    REQUIRE(parameters != NULL, CUDA_ERROR_INVALID_VALUE);
    form.memset = (CUDA_MEMSET_NODE_PARAMS_v2){parameters->dst,
                                               parameters->pitch,
                                               parameters->value,
                                               parameters->elementSize,
                                               parameters->width,
                                               parameters->height,
                                               context};
    return change(executable, node, &form);
}

API cuGraphExecHostNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                 const CUDA_HOST_NODE_PARAMS *parameters) {
    CUgraphNodeParams form = {.type = CU_GRAPH_NODE_TYPE_HOST};
    REQUIRE(parameters != NULL, CUDA_ERROR_INVALID_VALUE);
    form.host.fn = parameters->fn;
    form.host.userData = parameters->userData;
    return change(executable, node, &form);
}

API cuGraphExecBatchMemOpNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                       const CUDA_BATCH_MEM_OP_NODE_PARAMS *parameters) {
    CUgraphNodeParams form = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
    REQUIRE(parameters != NULL, CUDA_ERROR_INVALID_VALUE);
    form.memOp = (CUDA_BATCH_MEM_OP_NODE_PARAMS_v2){parameters->ctx, parameters->count,
                                                    parameters->paramArray, parameters->flags};
    return change(executable, node, &form);
}

API cuGraphExecChildGraphNodeSetParams(CUgraphExec executable, CUgraphNode node, CUgraph child) {
    CUgraphNodeParams form = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    form.graph.graph = child;
    return change(executable, node, &form);
}

API cuGraphExecEventRecordNodeSetEvent(CUgraphExec executable, CUgraphNode node, CUevent event) {
    CUgraphNodeParams form = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD};
    form.eventRecord.event = event;
    return change(executable, node, &form);
}

API cuGraphExecEventWaitNodeSetEvent(CUgraphExec executable, CUgraphNode node, CUevent event) {
    CUgraphNodeParams form = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT};
    form.eventWait.event = event;
    return change(executable, node, &form);
}

API cuGraphNodeSetEnabled(CUgraphExec executable, CUgraphNode node, unsigned int enabled) {
    TRY(driver_ready());
    REQUIRE(executable != NULL && node != NULL, CUDA_ERROR_INVALID_VALUE);
    struct CUgraphNode_st *copy = find(executable, node);
    REQUIRE(copy != NULL &&
                (copy->operation.kind == OPERATION_KERNEL ||
                 copy->operation.kind == OPERATION_COPY || copy->operation.kind == OPERATION_FILL),
            CUDA_ERROR_INVALID_VALUE);
    copy->disabled = enabled == 0;
    return CUDA_SUCCESS;
}

API cuGraphNodeGetEnabled(CUgraphExec executable, CUgraphNode node, unsigned int *enabled) {
    TRY(driver_ready());
    REQUIRE(executable != NULL && node != NULL && enabled != NULL, CUDA_ERROR_INVALID_VALUE);
    const struct CUgraphNode_st *copy = find(executable, node);
    REQUIRE(copy != NULL, CUDA_ERROR_INVALID_VALUE);
    *enabled = !copy->disabled;
    return CUDA_SUCCESS;
}

/* ---- updated as a whole -----------------------------------------------------------------------
 */

/* The nodes of two graphs are paired by the order in which they were added. */
static CUgraphExecUpdateResult compare(const struct CUgraph_st *now, const struct CUgraph_st *then,
                                       CUgraphNode *node) {
    if (now->nodes != then->nodes)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    unsigned place = 0;
    struct CUgraphNode_st *b = then->first;
    for (struct CUgraphNode_st *a = now->first; a != NULL; a = a->next, b = b->next)
        a->place = b->place = place++;
    b = then->first;
    for (struct CUgraphNode_st *a = now->first; a != NULL; a = a->next, b = b->next) {
        *node = a;
        if (a->operation.kind != b->operation.kind)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (a->follows.count != b->follows.count)
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        for (size_t i = 0; i < a->follows.count; i++)
            if (a->follows.node[i]->place != b->follows.node[i]->place)
                return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }
    *node = NULL;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* graphs_lock held. */
static CUresult update(CUgraphExec executable, CUgraph graph, CUgraphExecUpdateResultInfo *info) {
    info->result = compare(graph, executable->graph, &info->errorNode);
    if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    struct CUgraphExec_st *fresh;
    TRY(compile(&fresh, graph, executable->flags));
    struct CUgraphNode_st *to = executable->graph->first;
    for (struct CUgraphNode_st *from = fresh->graph->first; from != NULL; from = from->next) {
        struct operation before = to->operation;
        to->operation = from->operation;
        from->operation = before;
        to = to->next;
    }
    graph_free(fresh->graph);
    free(fresh->order);
    free(fresh);
    return CUDA_SUCCESS;
}

API cuGraphExecUpdate_v2(CUgraphExec executable, CUgraph graph, CUgraphExecUpdateResultInfo *info) {
    TRY(driver_ready());
    REQUIRE(executable != NULL && graph != NULL && info != NULL, CUDA_ERROR_INVALID_VALUE);
    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    pthread_mutex_lock(&graphs_lock);
    CUresult result = update(executable, graph, info);
    pthread_mutex_unlock(&graphs_lock);
    return result;
}

API cuGraphExecUpdate(CUgraphExec executable, CUgraph graph, CUgraphNode *node,
                      CUgraphExecUpdateResult *outcome) {
    CUgraphExecUpdateResultInfo info;
    CUresult result = cuGraphExecUpdate_v2(executable, graph, &info);
    if (node != NULL)
        *node = info.errorNode;
    if (outcome != NULL)
        *outcome = info.result;
    return result;
}
