/* Nodes' parameters as operations, and what all kinds of nodes share. */
#include <string.h>

#include "graph_memory.h"
#include "node.h"

/* ---- what the kinds of nodes have in common ---------------------------------------- */

CUresult node_add(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                  const struct operation *operation) {
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

CUresult node_check(CUgraphNode node, enum operation_kind kind) {
    TRY(driver_ready());
    REQUIRE(node != NULL && node->operation.kind == kind, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult node_change(CUgraphNode node, const struct operation *operation) {
    struct operation own;
    TRY(node_check(node, operation->kind));
    REQUIRE(operation_clone(&own, operation), CUDA_ERROR_OUT_OF_MEMORY);
    pthread_mutex_lock(&graphs_lock);
    operation_clear(&node->operation);
    node->operation = own;
    pthread_mutex_unlock(&graphs_lock);
    return CUDA_SUCCESS;
}

/* ---- parameters as operations ---------------------------------------------------------- */

CUresult node_from_kernel(struct operation *operation, const CUDA_KERNEL_NODE_PARAMS *form) {
    TRY(driver_ready());
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    const unsigned shape[6] = {form->gridDimX,  form->gridDimY,  form->gridDimZ,
                               form->blockDimX, form->blockDimY, form->blockDimZ};
    CUfunction function = form->func != NULL ? form->func : (CUfunction)form->kern;
    return kernel_operation(operation, function, shape, form->sharedMemBytes, form->kernelParams,
                            form->extra);
}

CUDA_KERNEL_NODE_PARAMS newest_kernel_form(const CUDA_KERNEL_NODE_PARAMS_v1 *form) {
    CUDA_KERNEL_NODE_PARAMS same = {0};
    memcpy(&same, form, sizeof *form);
    return same;
}

CUresult node_from_host(struct operation *operation, CUhostFn function, void *data) {
    TRY(driver_ready());
    REQUIRE(function != NULL, CUDA_ERROR_INVALID_VALUE);
    *operation = (struct operation){
        .kind = OPERATION_HOST, .host = {function, data}
    };
    return CUDA_SUCCESS;
}

CUresult node_from_event(struct operation *operation, enum operation_kind kind, CUevent event) {
    TRY(driver_ready());
    REQUIRE(event != NULL, CUDA_ERROR_INVALID_VALUE);
    *operation = (struct operation){.kind = kind, .event = event};
    return CUDA_SUCCESS;
}

CUresult node_from_graph(struct operation *operation, CUgraph graph) {
    TRY(driver_ready());
    REQUIRE(graph != NULL, CUDA_ERROR_INVALID_VALUE);
    *operation = (struct operation){.kind = OPERATION_GRAPH, .graph = graph};
    return CUDA_SUCCESS;
}

CUresult node_from_fill(struct operation *operation, const CUDA_MEMSET_NODE_PARAMS *form) {
    TRY(driver_ready());
    return fill_operation(operation, form);
}

CUresult node_from_copy(struct operation *operation, const CUDA_MEMCPY3D *form) {
    TRY(driver_ready());
    return copy_operation(operation, form);
}

CUresult node_from_values(struct operation *operation, const CUDA_BATCH_MEM_OP_NODE_PARAMS *form) {
    TRY(driver_ready());
    REQUIRE(form != NULL && form->flags == 0, CUDA_ERROR_INVALID_VALUE);
    return values_operation(operation, form->count, form->paramArray);
}

CUresult node_from_allocation(struct operation *operation, struct device *device, uint64_t bytes) {
    *operation = (struct operation){.kind = OPERATION_ALLOCATE};
    REQUIRE(device != NULL, CUDA_ERROR_INVALID_VALUE);
    return graph_memory_make(device, bytes, &operation->memory);
}

CUresult node_from_free(struct operation *operation, CUdeviceptr pointer) {
    struct allocation found;
    TRY(driver_ready());
    REQUIRE(find_allocation(pointer, 0, &found) && found.base == pointer &&
                found.kind == MEMORY_GRAPH,
            CUDA_ERROR_INVALID_VALUE);
    *operation = (struct operation){.kind = OPERATION_FREE, .freed = pointer};
    return CUDA_SUCCESS;
}

static CUresult other_kind(void) {
    static int said;
    return (CUresult)not_modelled("a node for conditions, semaphores or other engines", &said,
                                  CUDA_ERROR_NOT_SUPPORTED);
}

CUresult node_operation(struct operation *operation, const CUgraphNodeParams *form) {
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUDA_MEMSET_NODE_PARAMS fill;
    CUDA_BATCH_MEM_OP_NODE_PARAMS values;
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    switch (form->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        memcpy(&kernel, &form->kernel, sizeof kernel);
        return node_from_kernel(operation, &kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return node_from_copy(operation, &form->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        memcpy(&fill, &form->memset, sizeof fill);
        return node_from_fill(operation, &fill);
    case CU_GRAPH_NODE_TYPE_HOST:
        return node_from_host(operation, form->host.fn, form->host.userData);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        MODELLED(form->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE,
                 "a child graph that is moved");
        return node_from_graph(operation, form->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        TRY(driver_ready());
        *operation = (struct operation){.kind = OPERATION_EMPTY};
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return node_from_event(operation, OPERATION_WAIT, form->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return node_from_event(operation, OPERATION_RECORD, form->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return node_from_free(operation, form->free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        memcpy(&values, &form->memOp, sizeof values);
        return node_from_values(operation, &values);
    default:
        return other_kind();
    }
}
