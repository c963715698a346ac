/* Nodes of graphs: added, asked about, changed. */
#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "graph_memory.h"

/* ---- what the kinds of nodes have in common ---------------------------------------- */

static CUresult add_node(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                         size_t count, const struct operation *operation) {
    REQUIRE(node != NULL && graph != NULL && (count == 0 || dependencies != NULL),
            CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++)
        REQUIRE(dependencies[i] != NULL && dependencies[i]->graph == graph,
                CUDA_ERROR_INVALID_VALUE);
    const struct node_set follows = {(CUgraphNode *)dependencies, count, count};
    pthread_mutex_lock(&graphs_lock);
    *node = graph_add(graph, operation, &follows);
    pthread_mutex_unlock(&graphs_lock);
    return *node == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult check_kind(CUgraphNode node, enum operation_kind kind) {
    TRY(driver_ready());
    REQUIRE(node != NULL && node->operation.kind == kind, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult node_change(CUgraphNode node, const struct operation *operation) {
    struct operation own;
    TRY(check_kind(node, operation->kind));
    REQUIRE(operation_clone(&own, operation), CUDA_ERROR_OUT_OF_MEMORY);
    pthread_mutex_lock(&graphs_lock);
    operation_clear(&node->operation);
    node->operation = own;
    pthread_mutex_unlock(&graphs_lock);
    return CUDA_SUCCESS;
}

/* ---- parameters as operations ---------------------------------------------------------- */

static CUresult from_kernel(struct operation *operation, const CUDA_KERNEL_NODE_PARAMS *form) {
    TRY(driver_ready());
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    const unsigned shape[6] = {form->gridDimX,  form->gridDimY,  form->gridDimZ,
                               form->blockDimX, form->blockDimY, form->blockDimZ};
    CUfunction function = form->func != NULL ? form->func : (CUfunction)form->kern;
    return kernel_operation(operation, function, shape, form->sharedMemBytes, form->kernelParams,
                            form->extra);
}

static CUDA_KERNEL_NODE_PARAMS newest(const CUDA_KERNEL_NODE_PARAMS_v1 *form) {
    CUDA_KERNEL_NODE_PARAMS same = {0};
    memcpy(&same, form, sizeof *form);
    return same;
}

static CUresult from_host(struct operation *operation, CUhostFn function, void *data) {
    TRY(driver_ready());
    REQUIRE(function != NULL, CUDA_ERROR_INVALID_VALUE);
    *operation = (struct operation){
        .kind = OPERATION_HOST, .host = {function, data}
    };
    return CUDA_SUCCESS;
}

static CUresult from_event(struct operation *operation, enum operation_kind kind, CUevent event) {
    TRY(driver_ready());
    REQUIRE(event != NULL, CUDA_ERROR_INVALID_VALUE);
    *operation = (struct operation){.kind = kind, .event = event};
    return CUDA_SUCCESS;
}

static CUresult from_graph(struct operation *operation, CUgraph graph) {
    TRY(driver_ready());
    REQUIRE(graph != NULL, CUDA_ERROR_INVALID_VALUE);
    *operation = (struct operation){.kind = OPERATION_GRAPH, .graph = graph};
    return CUDA_SUCCESS;
}

static CUresult from_fill(struct operation *operation, const CUDA_MEMSET_NODE_PARAMS *form) {
    TRY(driver_ready());
    return fill_operation(operation, form);
}

static CUresult from_copy(struct operation *operation, const CUDA_MEMCPY3D *form) {
    TRY(driver_ready());
    return copy_operation(operation, form);
}

static CUresult from_values(struct operation *operation,
                            const CUDA_BATCH_MEM_OP_NODE_PARAMS *form) {
    TRY(driver_ready());
    REQUIRE(form != NULL && form->flags == 0, CUDA_ERROR_INVALID_VALUE);
    return values_operation(operation, form->count, form->paramArray);
}

static CUresult from_allocation(struct operation *operation, struct device *device,
                                uint64_t bytes) {
    *operation = (struct operation){.kind = OPERATION_ALLOCATE};
    REQUIRE(device != NULL, CUDA_ERROR_INVALID_VALUE);
    return graph_memory_make(device, bytes, &operation->memory);
}

static CUresult from_free(struct operation *operation, CUdeviceptr pointer) {
    struct allocation found;
    TRY(driver_ready());
    REQUIRE(find_allocation(pointer, 0, &found) && found.base == pointer &&
                found.kind == MEMORY_GRAPH,
            CUDA_ERROR_INVALID_VALUE);
    *operation = (struct operation){.kind = OPERATION_FREE, .freed = pointer};
    return CUDA_SUCCESS;
}

/* A moved child is a cloned one whose original goes. */
CUresult node_operation(struct operation *operation, const CUgraphNodeParams *form) {
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUDA_MEMSET_NODE_PARAMS fill;
    CUDA_BATCH_MEM_OP_NODE_PARAMS values;
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    switch (form->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        memcpy(&kernel, &form->kernel, sizeof kernel);
        return from_kernel(operation, &kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return from_copy(operation, &form->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        memcpy(&fill, &form->memset, sizeof fill);
        return from_fill(operation, &fill);
    case CU_GRAPH_NODE_TYPE_HOST:
        return from_host(operation, form->host.fn, form->host.userData);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        REQUIRE(form->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE,
                CUDA_ERROR_NOT_SUPPORTED);
        return from_graph(operation, form->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        TRY(driver_ready());
        *operation = (struct operation){.kind = OPERATION_EMPTY};
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return from_event(operation, OPERATION_WAIT, form->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return from_event(operation, OPERATION_RECORD, form->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return from_free(operation, form->free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        memcpy(&values, &form->memOp, sizeof values);
        return from_values(operation, &values);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* ---- memory ------------------------------------------------------------------------------- */

/* The node's own hold on its addresses is in the operation; the one made here goes. */
static CUresult add_allocation(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                               size_t count, const CUmemPoolProps *properties, size_t bytes,
                               CUdeviceptr *pointer) {
    struct operation operation;
    TRY(driver_ready());
    TRY(from_allocation(&operation, device_at(&properties->location), bytes));
    CUresult result = add_node(node, graph, dependencies, count, &operation);
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
    TRY(check_kind(node, OPERATION_ALLOCATE));
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
    TRY(from_free(&operation, pointer));
    return add_node(node, graph, dependencies, count, &operation);
}

API cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *pointer) {
    TRY(check_kind(node, OPERATION_FREE));
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
    return add_node(node, graph, dependencies, count, &operation);
}

API cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                      const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *form) {
    return cuGraphAddNode_v2(node, graph, dependencies, edges, count, form);
}

API cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                   CUgraphNodeParams *form) {
    return cuGraphAddNode_v2(node, graph, dependencies, NULL, count, form);
}

API cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *form) {
    struct operation operation;
    TRY(node_operation(&operation, form));
    return node_change(node, &operation);
}

API cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams *form) {
    return cuGraphNodeSetParams(node, form);
}

/* ---- kernels ---------------------------------------------------------------------------- */

API cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                            size_t count, const CUDA_KERNEL_NODE_PARAMS *form) {
    struct operation operation;
    TRY(from_kernel(&operation, form));
    return add_node(node, graph, dependencies, count, &operation);
}

API cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                         size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *form) {
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    const CUDA_KERNEL_NODE_PARAMS same = newest(form);
    return cuGraphAddKernelNode_v2(node, graph, dependencies, count, &same);
}

API cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *form) {
    TRY(check_kind(node, OPERATION_KERNEL));
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    struct kernel_operation *kernel = &node->operation.kernel;
    kernel->parameter = &kernel->argument;
    *form = (CUDA_KERNEL_NODE_PARAMS){.func = kernel->function,
                                      .gridDimX = kernel->shape[0],
                                      .gridDimY = kernel->shape[1],
                                      .gridDimZ = kernel->shape[2],
                                      .blockDimX = kernel->shape[3],
                                      .blockDimY = kernel->shape[4],
                                      .blockDimZ = kernel->shape[5],
                                      .sharedMemBytes = kernel->shared_bytes,
                                      .kernelParams =
                                          kernel->function->spins ? &kernel->parameter : NULL};
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
    TRY(from_kernel(&operation, form));
    return node_change(node, &operation);
}

API cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *form) {
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    const CUDA_KERNEL_NODE_PARAMS same = newest(form);
    return cuGraphKernelNodeSetParams_v2(node, &same);
}

/* ---- copies and fills --------------------------------------------------------------------- */

API cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                         size_t count, const CUDA_MEMCPY3D *form, CUcontext context) {
    struct operation operation;
    (void)context;
    TRY(from_copy(&operation, form));
    return add_node(node, graph, dependencies, count, &operation);
}

API cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *form) {
    TRY(check_kind(node, OPERATION_COPY));
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    *form = node->operation.copy;
    return CUDA_SUCCESS;
}

API cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *form) {
    struct operation operation;
    TRY(from_copy(&operation, form));
    return node_change(node, &operation);
}

API cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                         size_t count, const CUDA_MEMSET_NODE_PARAMS *form, CUcontext context) {
    struct operation operation;
    (void)context;
    TRY(from_fill(&operation, form));
    return add_node(node, graph, dependencies, count, &operation);
}

API cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *form) {
    TRY(check_kind(node, OPERATION_FILL));
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    *form = node->operation.fill;
    return CUDA_SUCCESS;
}

API cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *form) {
    struct operation operation;
    TRY(from_fill(&operation, form));
    return node_change(node, &operation);
}

/* ---- the program's functions, values ---------------------------------------------------- */

API cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                       size_t count, const CUDA_HOST_NODE_PARAMS *form) {
    struct operation operation;
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    TRY(from_host(&operation, form->fn, form->userData));
    return add_node(node, graph, dependencies, count, &operation);
}

API cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *form) {
    TRY(check_kind(node, OPERATION_HOST));
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    *form = node->operation.host;
    return CUDA_SUCCESS;
}

API cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *form) {
    struct operation operation;
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    TRY(from_host(&operation, form->fn, form->userData));
    return node_change(node, &operation);
}

API cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                             size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS *form) {
    struct operation operation;
    TRY(from_values(&operation, form));
    return add_node(node, graph, dependencies, count, &operation);
}

API cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *form) {
    TRY(check_kind(node, OPERATION_VALUES));
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    *form = (CUDA_BATCH_MEM_OP_NODE_PARAMS){.count = node->operation.values.count,
                                            .paramArray = node->operation.values.value};
    return CUDA_SUCCESS;
}

API cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *form) {
    struct operation operation;
    TRY(from_values(&operation, form));
    return node_change(node, &operation);
}

/* ---- events, graphs in graphs, nothing ----------------------------------------------------- */

API cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t count, CUevent event) {
    struct operation operation;
    TRY(from_event(&operation, OPERATION_RECORD, event));
    return add_node(node, graph, dependencies, count, &operation);
}

API cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event) {
    TRY(check_kind(node, OPERATION_RECORD));
    REQUIRE(event != NULL, CUDA_ERROR_INVALID_VALUE);
    *event = node->operation.event;
    return CUDA_SUCCESS;
}

API cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
    struct operation operation;
    TRY(from_event(&operation, OPERATION_RECORD, event));
    return node_change(node, &operation);
}

API cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                            size_t count, CUevent event) {
    struct operation operation;
    TRY(from_event(&operation, OPERATION_WAIT, event));
    return add_node(node, graph, dependencies, count, &operation);
}

API cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event) {
    TRY(check_kind(node, OPERATION_WAIT));
    REQUIRE(event != NULL, CUDA_ERROR_INVALID_VALUE);
    *event = node->operation.event;
    return CUDA_SUCCESS;
}

API cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
    struct operation operation;
    TRY(from_event(&operation, OPERATION_WAIT, event));
    return node_change(node, &operation);
}

API cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                             size_t count, CUgraph child) {
    struct operation operation;
    TRY(from_graph(&operation, child));
    return add_node(node, graph, dependencies, count, &operation);
}

API cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph) {
    TRY(check_kind(node, OPERATION_GRAPH));
    REQUIRE(graph != NULL, CUDA_ERROR_INVALID_VALUE);
    *graph = node->operation.graph;
    return CUDA_SUCCESS;
}

API cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                        size_t count) {
    TRY(driver_ready());
    return add_node(node, graph, dependencies, count, &(struct operation){.kind = OPERATION_EMPTY});
}
