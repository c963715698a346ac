/* Nodes of graphs, a call a kind: added, asked about, changed. */
#include <string.h>

#include "node.h"

/* ---- kernels ---------------------------------------------------------------------------- */

API cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                            size_t count, const CUDA_KERNEL_NODE_PARAMS *form) {
    struct operation operation;
    TRY(node_from_kernel(&operation, form));
    return node_add(node, graph, dependencies, count, &operation);
}

API cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                         size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *form) {
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    const CUDA_KERNEL_NODE_PARAMS same = newest_kernel_form(form);
    return cuGraphAddKernelNode_v2(node, graph, dependencies, count, &same);
}

API cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *form) {
    TRY(node_check(node, OPERATION_KERNEL));
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    struct kernel_operation *kernel = &node->operation.kernel;
    kernel->parameter = &kernel->argument;
    *form = (CUDA_KERNEL_NODE_PARAMS){
        .func = kernel->function,
        .gridDimX = kernel->shape[0],
        .gridDimY = kernel->shape[1],
        .gridDimZ = kernel->shape[2],
        .blockDimX = kernel->shape[3],
        .blockDimY = kernel->shape[4],
        .blockDimZ = kernel->shape[5],
        .sharedMemBytes = kernel->shared_bytes,
        .kernelParams = kernel->function->argument_ns > 0 ? &kernel->parameter : NULL};
    return CUDA_SUCCESS;
}

API cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *form) {
    CUDA_KERNEL_NODE_PARAMS same;
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    TRY(cuGraphKernelNodeGetParams_v2(node, &same));
    memcpy(form, &same, sizeof *form);
    return CUDA_SUCCESS;
}

API cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *form) {
    struct operation operation;
    TRY(node_from_kernel(&operation, form));
    return node_change(node, &operation);
}

API cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *form) {
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    const CUDA_KERNEL_NODE_PARAMS same = newest_kernel_form(form);
    return cuGraphKernelNodeSetParams_v2(node, &same);
}

/* ---- copies and fills --------------------------------------------------------------------- */

API cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                         size_t count, const CUDA_MEMCPY3D *form, CUcontext context) {
    struct operation operation;
    (void)context;
    TRY(node_from_copy(&operation, form));
    return node_add(node, graph, dependencies, count, &operation);
}

API cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *form) {
    TRY(node_check(node, OPERATION_COPY));
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    *form = node->operation.copy;
    return CUDA_SUCCESS;
}

API cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *form) {
    struct operation operation;
    TRY(node_from_copy(&operation, form));
    return node_change(node, &operation);
}

API cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                         size_t count, const CUDA_MEMSET_NODE_PARAMS *form, CUcontext context) {
    struct operation operation;
    (void)context;
    TRY(node_from_fill(&operation, form));
    return node_add(node, graph, dependencies, count, &operation);
}

API cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *form) {
    TRY(node_check(node, OPERATION_FILL));
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    *form = node->operation.fill;
    return CUDA_SUCCESS;
}

API cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *form) {
    struct operation operation;
    TRY(node_from_fill(&operation, form));
    return node_change(node, &operation);
}

/* ---- the program's functions, values ---------------------------------------------------- */

API cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                       size_t count, const CUDA_HOST_NODE_PARAMS *form) {
    struct operation operation;
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    TRY(node_from_host(&operation, form->fn, form->userData));
    return node_add(node, graph, dependencies, count, &operation);
}

API cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *form) {
    TRY(node_check(node, OPERATION_HOST));
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    *form = node->operation.host;
    return CUDA_SUCCESS;
}

API cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *form) {
    struct operation operation;
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    TRY(node_from_host(&operation, form->fn, form->userData));
    return node_change(node, &operation);
}

API cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                             size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS *form) {
    struct operation operation;
    TRY(node_from_values(&operation, form));
    return node_add(node, graph, dependencies, count, &operation);
}

API cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *form) {
    TRY(node_check(node, OPERATION_VALUES));
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    *form = (CUDA_BATCH_MEM_OP_NODE_PARAMS){.count = node->operation.values.count,
                                            .paramArray = node->operation.values.value};
    return CUDA_SUCCESS;
}

API cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *form) {
    struct operation operation;
    TRY(node_from_values(&operation, form));
    return node_change(node, &operation);
}

/* ---- events, graphs in graphs, nothing ----------------------------------------------------- */

API cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t count, CUevent event) {
    struct operation operation;
    TRY(node_from_event(&operation, OPERATION_RECORD, event));
    return node_add(node, graph, dependencies, count, &operation);
}

API cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event) {
    TRY(node_check(node, OPERATION_RECORD));
    REQUIRE(event != NULL, CUDA_ERROR_INVALID_VALUE);
    *event = node->operation.event;
    return CUDA_SUCCESS;
}

API cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
    struct operation operation;
    TRY(node_from_event(&operation, OPERATION_RECORD, event));
    return node_change(node, &operation);
}

API cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                            size_t count, CUevent event) {
    struct operation operation;
    TRY(node_from_event(&operation, OPERATION_WAIT, event));
    return node_add(node, graph, dependencies, count, &operation);
}

API cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event) {
    TRY(node_check(node, OPERATION_WAIT));
    REQUIRE(event != NULL, CUDA_ERROR_INVALID_VALUE);
    *event = node->operation.event;
    return CUDA_SUCCESS;
}

API cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
    struct operation operation;
    TRY(node_from_event(&operation, OPERATION_WAIT, event));
    return node_change(node, &operation);
}

API cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                             size_t count, CUgraph child) {
    struct operation operation;
    TRY(node_from_graph(&operation, child));
    return node_add(node, graph, dependencies, count, &operation);
}

API cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph) {
    TRY(node_check(node, OPERATION_GRAPH));
    REQUIRE(graph != NULL, CUDA_ERROR_INVALID_VALUE);
    *graph = node->operation.graph;
    return CUDA_SUCCESS;
}

API cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                        size_t count) {
    TRY(driver_ready());
    return node_add(node, graph, dependencies, count, &(struct operation){.kind = OPERATION_EMPTY});
}
