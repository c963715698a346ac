/* Nodes of graphs by the calls that all kinds share, and those that have to do with memory. */
#include <string.h>

#include "graph_memory.h"
#include "node.h"

/* ---- memory ------------------------------------------------------------------------------- */

/* The node's own hold on its addresses is in the operation; the one made here goes. */
static CUresult add_allocation(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                               size_t count, const CUmemPoolProps *properties, size_t bytes,
                               CUdeviceptr *pointer) {
    struct operation operation;
    TRY(driver_ready());
    TRY(node_from_allocation(&operation, device_at(&properties->location), bytes));
    CUresult result = node_add(node, graph, dependencies, count, &operation);
    *pointer = operation.memory->base;
    operation_clear(&operation);
    return result;
}

API cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *form) {
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    return add_allocation(node, graph, dependencies, count, &form->poolProps, form->bytesize,
                          &form->dptr);
}

API cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *form) {
    TRY(node_check(node, OPERATION_ALLOCATE));
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    const struct graph_memory *memory = node->operation.memory;
    *form = (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                   .id = (int)(memory->device - driver.devices)}},
        .bytesize = memory->bytes,
        .dptr = memory->base
    };
    return CUDA_SUCCESS;
}

API cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                          size_t count, CUdeviceptr pointer) {
    struct operation operation;
    TRY(node_from_free(&operation, pointer));
    return node_add(node, graph, dependencies, count, &operation);
}

API cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *pointer) {
    TRY(node_check(node, OPERATION_FREE));
    REQUIRE(pointer != NULL, CUDA_ERROR_INVALID_VALUE);
    *pointer = node->operation.freed;
    return CUDA_SUCCESS;
}

/* ---- all kinds by one call ------------------------------------------------------------------ */

API cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                      const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *form) {
    struct operation operation;
    (void)edges;
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    if (form->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return add_allocation(node, graph, dependencies, count, &form->alloc.poolProps,
                              form->alloc.bytesize, &form->alloc.dptr);
    TRY(node_operation(&operation, form));
    return node_add(node, graph, dependencies, count, &operation);
}

API cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                   CUgraphNodeParams *form) {
    return cuGraphAddNode_v2(node, graph, dependencies, NULL, count, form);
}

API cuGraphNodeGetParams(CUgraphNode node, CUgraphNodeParams *form) {
    CUDA_KERNEL_NODE_PARAMS kernel;
    TRY(driver_ready());
    REQUIRE(node != NULL && form != NULL, CUDA_ERROR_INVALID_VALUE);
    const struct operation *operation = &node->operation;
    memset(form, 0, sizeof *form);
    TRY(cuGraphNodeGetType(node, &form->type));
    switch (operation->kind) {
    case OPERATION_KERNEL:
        TRY(cuGraphKernelNodeGetParams_v2(node, &kernel));
        memcpy(&form->kernel, &kernel, sizeof kernel);
        return CUDA_SUCCESS;
    case OPERATION_COPY:
        form->memcpy.copyParams = operation->copy;
        return CUDA_SUCCESS;
    case OPERATION_FILL:
        memcpy(&form->memset, &operation->fill, sizeof operation->fill);
        return CUDA_SUCCESS;
    case OPERATION_HOST:
        form->host.fn = operation->host.fn;
        form->host.userData = operation->host.userData;
        return CUDA_SUCCESS;
    case OPERATION_GRAPH:
        form->graph.graph = operation->graph;
        return CUDA_SUCCESS;
    case OPERATION_VALUES:
        form->memOp.count = operation->values.count;
        form->memOp.paramArray = operation->values.value;
        return CUDA_SUCCESS;
    case OPERATION_WAIT:
    case OPERATION_RECORD:
        form->eventWait.event = operation->event;
        return CUDA_SUCCESS;
    case OPERATION_ALLOCATE:
        return cuGraphMemAllocNodeGetParams(node, (CUDA_MEM_ALLOC_NODE_PARAMS *)&form->alloc);
    case OPERATION_FREE:
        form->free.dptr = operation->freed;
        return CUDA_SUCCESS;
    default:
        return CUDA_SUCCESS;
    }
}

API cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *form) {
    struct operation operation;
    TRY(node_operation(&operation, form));
    return node_change(node, &operation);
}
