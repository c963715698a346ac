/* Executable graphs changed: node by node, or as a whole. */
#include <stdlib.h>

#include "graph.h"

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
    TRY(graph_compile(&fresh, graph, executable->flags));
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
