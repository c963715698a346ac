/*
 * Graphs that allocate, made and run in every way.
 */
#include "probe_forms.h"

static int instantiate(struct held *held) {
    return driver.graph_instantiate(&held->executable, held->graph, 0);
}

static int instantiate_v1(struct held *held) {
    return driver.graph_instantiate_v1(&held->executable, held->graph, NULL, NULL, 0);
}

static int instantiate_v2(struct held *held) {
    return driver.graph_instantiate_v2(&held->executable, held->graph, NULL, NULL, 0);
}

static int instantiate_with_parameters(struct held *held) {
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {.flags = 2}; /* uploads it too */
    return driver.graph_instantiate_params(&held->executable, held->graph, &parameters);
}

static int instantiate_and_upload(struct held *held) {
    int result = instantiate(held);
    if (result == 0 && (result = driver.graph_upload(held->executable, NULL)) != 0)
        driver.graph_exec_destroy(held->executable);
    return result;
}

static int run_as(struct held *held, int (*make)(struct held *held)) {
    int result = make(held);
    if (result != 0)
        return first(result, driver.graph_destroy(held->graph));
    result = driver.graph_launch(held->executable, NULL);
    if (result == 0)
        return driver.synchronize();
    driver.graph_exec_destroy(held->executable);
    driver.graph_destroy(held->graph);
    return result;
}

static int run_graph(struct held *held) {
    return run_as(held, instantiate);
}

static int add_allocation(struct held *held, CUgraphNode *node) {
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location.type = CU_MEM_LOCATION_TYPE_DEVICE},
        .bytesize = held->bytes
    };
    const int result = driver.graph_allocate(node, held->graph, NULL, 0, &wanted);
    held->pointer = wanted.dptr;
    return result;
}

/* What it allocates outlives the launch. */
static int hold_graph_as(struct held *held, int (*make)(struct held *held)) {
    CUgraphNode node;
    int result = driver.graph_create(&held->graph, 0);
    result = first(result, add_allocation(held, &node));
    return first(result, run_as(held, make));
}

static int hold_graph(struct held *held) {
    return hold_graph_as(held, instantiate);
}

static int hold_graph_v1(struct held *held) {
    return hold_graph_as(held, instantiate_v1);
}

static int hold_graph_v2(struct held *held) {
    return hold_graph_as(held, instantiate_v2);
}

static int hold_graph_with_parameters(struct held *held) {
    return hold_graph_as(held, instantiate_with_parameters);
}

static int hold_uploaded_graph(struct held *held) {
    return hold_graph_as(held, instantiate_and_upload);
}

static int hold_added_node(struct held *held) {
    CUgraphNode node;
    CUgraphNodeParams wanted = {
        .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        .alloc = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location.type = CU_MEM_LOCATION_TYPE_DEVICE},
                  .bytesize = held->bytes}
    };
    int result = driver.graph_create(&held->graph, 0);
    result = first(result, driver.graph_add(&node, held->graph, NULL, 0, &wanted));
    held->pointer = wanted.alloc.dptr;
    return first(result, run_graph(held));
}

/* What it allocates it frees; the driver keeps the memory for the next launch. */
static int hold_graph_that_frees(struct held *held) {
    CUgraphNode node, last;
    int result = driver.graph_create(&held->graph, 0);
    result = first(result, add_allocation(held, &node));
    result = first(result, driver.graph_free(&last, held->graph, &node, 1, held->pointer));
    held->pointer = 0;
    return first(result, run_graph(held));
}

static int hold_captured(struct held *held) {
    CUstream stream;
    CUdeviceptr pointer;
    int result = driver.stream_create(&stream, CU_STREAM_NON_BLOCKING);
    result = first(result, driver.capture_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    result = first(result, driver.alloc_async(&pointer, held->bytes, stream));
    result = first(result, driver.free_async(pointer, stream));
    result = first(result, driver.capture_end(stream, &held->graph));
    result = first(result, driver.stream_destroy(stream));
    return first(result, run_graph(held));
}

static int drop_graph(struct held *held) {
    int result = held->pointer != 0 ? driver.free(held->pointer) : 0;
    result = first(result, driver.graph_exec_destroy(held->executable));
    result = first(result, driver.graph_destroy(held->graph));
    return first(result, driver.graph_trim(0));
}

const struct form graph_forms[] = {
    {"graph-v1",              hold_graph_v1,              drop_graph},
    {"graph-v2",              hold_graph_v2,              drop_graph},
    {"graph-with-parameters", hold_graph_with_parameters, drop_graph},
    {"graph-uploaded",        hold_uploaded_graph,        drop_graph},
    {"graph-node-added",      hold_added_node,            drop_graph},
    {"graph",                 hold_graph,                 drop_graph},
    {"graph-that-frees",      hold_graph_that_frees,      drop_graph},
    {"captured",              hold_captured,              drop_graph},
    {NULL,                    NULL,                       NULL      },
};
