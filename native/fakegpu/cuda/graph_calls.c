/* Graphs as wholes: made, copied, asked about their nodes and edges. */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

static const CUgraphEdgeData plain_edge;

API cuGraphCreate(CUgraph *graph, unsigned int flags) {
    TRY(driver_ready());
    REQUIRE(graph != NULL && flags == 0, CUDA_ERROR_INVALID_VALUE);
    *graph = graph_new();
    return *graph == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

API cuGraphDestroy(CUgraph graph) {
    TRY(driver_ready());
    REQUIRE(graph != NULL, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&graphs_lock);
    graph_free(graph);
    pthread_mutex_unlock(&graphs_lock);
    return CUDA_SUCCESS;
}

API cuGraphClone(CUgraph *clone, CUgraph graph) {
    TRY(driver_ready());
    REQUIRE(clone != NULL && graph != NULL, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&graphs_lock);
    *clone = graph_clone(graph);
    pthread_mutex_unlock(&graphs_lock);
    return *clone == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

API cuGraphNodeFindInClone(CUgraphNode *found, CUgraphNode node, CUgraph clone) {
    TRY(driver_ready());
    REQUIRE(found != NULL && node != NULL && clone != NULL, CUDA_ERROR_INVALID_VALUE);
    struct CUgraphNode_st *copy = clone->first;
    while (copy != NULL && copy->origin != node)
        copy = copy->next;
    REQUIRE(copy != NULL, CUDA_ERROR_INVALID_VALUE);
    *found = copy;
    return CUDA_SUCCESS;
}

API cuGraphGetId(CUgraph graph, unsigned int *id) {
    TRY(driver_ready());
    REQUIRE(graph != NULL && id != NULL, CUDA_ERROR_INVALID_VALUE);
    *id = graph->id;
    return CUDA_SUCCESS;
}

/* ---- lists: how many there are, or as many as there is room for ------------------------ */

struct list {
    size_t room, count;
    CUgraphNode *from, *to; /* either may be NULL */
    CUgraphEdgeData *edges;
};

static void put(struct list *list, CUgraphNode from, CUgraphNode to) {
    if (list->count < list->room) {
        if (list->from != NULL)
            list->from[list->count] = from;
        if (list->to != NULL)
            list->to[list->count] = to;
        if (list->edges != NULL)
            list->edges[list->count] = plain_edge;
    }
    list->count++;
}

/* Places that are left over are emptied, as the real driver does. */
static void give(struct list *list, size_t *count) {
    bool asked = list->from != NULL || list->to != NULL;
    for (size_t i = list->count; i < list->room; i++) {
        if (list->from != NULL)
            list->from[i] = NULL;
        if (list->to != NULL)
            list->to[i] = NULL;
    }
    *count = asked && list->count > list->room ? list->room : list->count;
}

static CUresult list_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count, bool roots) {
    TRY(driver_ready());
    REQUIRE(graph != NULL && count != NULL, CUDA_ERROR_INVALID_VALUE);
    struct list list = {.room = nodes == NULL ? 0 : *count, .from = nodes};
    pthread_mutex_lock(&graphs_lock);
    for (struct CUgraphNode_st *node = graph->first; node != NULL; node = node->next)
        if (!roots || node->follows.count == 0)
            put(&list, node, NULL);
    pthread_mutex_unlock(&graphs_lock);
    give(&list, count);
    return CUDA_SUCCESS;
}

API cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    return list_nodes(graph, nodes, count, false);
}

API cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    return list_nodes(graph, nodes, count, true);
}

/* The edges of a graph; where `of` is given those that lead to it, or (`after`) from it. */
static CUresult list_edges(CUgraph graph, CUgraphNode of, bool after, CUgraphNode *from,
                           CUgraphNode *to, CUgraphEdgeData *edges, size_t *count) {
    TRY(driver_ready());
    REQUIRE(graph != NULL && count != NULL, CUDA_ERROR_INVALID_VALUE);
    struct list list = {
        .room = from == NULL && to == NULL ? 0 : *count, .from = from, .to = to, .edges = edges};
    pthread_mutex_lock(&graphs_lock);
    for (struct CUgraphNode_st *node = graph->first; node != NULL; node = node->next)
        for (size_t i = 0; i < node->follows.count; i++)
            if (of == NULL || (after ? node->follows.node[i] : node) == of)
                put(&list, node->follows.node[i], node);
    pthread_mutex_unlock(&graphs_lock);
    give(&list, count);
    return CUDA_SUCCESS;
}

API cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges,
                       size_t *count) {
    REQUIRE((from == NULL) == (to == NULL), CUDA_ERROR_INVALID_VALUE);
    return list_edges(graph, NULL, false, from, to, edges, count);
}

API cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count) {
    return cuGraphGetEdges_v2(graph, from, to, NULL, count);
}

API cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *dependencies,
                                  CUgraphEdgeData *edges, size_t *count) {
    REQUIRE(node != NULL, CUDA_ERROR_INVALID_VALUE);
    return list_edges(node->graph, node, false, dependencies, NULL, edges, count);
}

API cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *dependencies, size_t *count) {
    return cuGraphNodeGetDependencies_v2(node, dependencies, NULL, count);
}

API cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *dependents,
                                    CUgraphEdgeData *edges, size_t *count) {
    REQUIRE(node != NULL, CUDA_ERROR_INVALID_VALUE);
    return list_edges(node->graph, node, true, NULL, dependents, edges, count);
}

API cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *dependents, size_t *count) {
    return cuGraphNodeGetDependentNodes_v2(node, dependents, NULL, count);
}

/* ---- edges -------------------------------------------------------------------------------- */

static CUresult check_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                            size_t count) {
    TRY(driver_ready());
    REQUIRE(graph != NULL && (count == 0 || (from != NULL && to != NULL)),
            CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++)
        REQUIRE(from[i] != NULL && to[i] != NULL && from[i] != to[i] && from[i]->graph == graph &&
                    to[i]->graph == graph,
                CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

API cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                              const CUgraphEdgeData *edges, size_t count) {
    (void)edges;
    TRY(check_edges(graph, from, to, count));
    bool good = true;
    pthread_mutex_lock(&graphs_lock);
    for (size_t i = 0; i < count && good; i++)
        good = node_set_add(&to[i]->follows, from[i]);
    pthread_mutex_unlock(&graphs_lock);
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                           size_t count) {
    return cuGraphAddDependencies_v2(graph, from, to, NULL, count);
}

static bool remove_from(struct node_set *set, const struct CUgraphNode_st *node) {
    for (size_t i = 0; i < set->count; i++) {
        if (set->node[i] != node)
            continue;
        memmove(&set->node[i], &set->node[i + 1], (set->count - i - 1) * sizeof *set->node);
        set->count--;
        return true;
    }
    return false;
}

API cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                 const CUgraphEdgeData *edges, size_t count) {
    (void)edges;
    TRY(check_edges(graph, from, to, count));
    bool good = true;
    pthread_mutex_lock(&graphs_lock);
    for (size_t i = 0; i < count; i++)
        good = good && node_set_has(&to[i]->follows, from[i]);
    for (size_t i = 0; i < count && good; i++)
        remove_from(&to[i]->follows, from[i]);
    pthread_mutex_unlock(&graphs_lock);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                              size_t count) {
    return cuGraphRemoveDependencies_v2(graph, from, to, NULL, count);
}

/* ---- single nodes -------------------------------------------------------------------------- */

API cuGraphDestroyNode(CUgraphNode node) {
    TRY(driver_ready());
    REQUIRE(node != NULL, CUDA_ERROR_INVALID_VALUE);
    struct CUgraph_st *graph = node->graph;
    pthread_mutex_lock(&graphs_lock);
    struct CUgraphNode_st **place = &graph->first;
    while (*place != node)
        place = &(*place)->next;
    *place = node->next;
    graph->nodes--;
    for (struct CUgraphNode_st *other = graph->first; other != NULL; other = other->next)
        remove_from(&other->follows, node);
    operation_clear(&node->operation);
    free(node->follows.node);
    free(node);
    pthread_mutex_unlock(&graphs_lock);
    return CUDA_SUCCESS;
}

API cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
    static const CUgraphNodeType types[] = {
        [OPERATION_EMPTY] = CU_GRAPH_NODE_TYPE_EMPTY,
        [OPERATION_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
        [OPERATION_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
        [OPERATION_FILL] = CU_GRAPH_NODE_TYPE_MEMSET,
        [OPERATION_HOST] = CU_GRAPH_NODE_TYPE_HOST,
        [OPERATION_VALUES] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
        [OPERATION_RECORD] = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        [OPERATION_WAIT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        [OPERATION_GRAPH] = CU_GRAPH_NODE_TYPE_GRAPH,
        [OPERATION_ALLOCATE] = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        [OPERATION_FREE] = CU_GRAPH_NODE_TYPE_MEM_FREE,
    };
    TRY(driver_ready());
    REQUIRE(node != NULL && type != NULL, CUDA_ERROR_INVALID_VALUE);
    *type = types[node->operation.kind];
    return CUDA_SUCCESS;
}

API cuGraphNodeGetContainingGraph(CUgraphNode node, CUgraph *graph) {
    TRY(driver_ready());
    REQUIRE(node != NULL && graph != NULL, CUDA_ERROR_INVALID_VALUE);
    *graph = node->graph;
    return CUDA_SUCCESS;
}

API cuGraphNodeGetLocalId(CUgraphNode node, unsigned int *id) {
    TRY(driver_ready());
    REQUIRE(node != NULL && id != NULL, CUDA_ERROR_INVALID_VALUE);
    *id = node->id;
    return CUDA_SUCCESS;
}
