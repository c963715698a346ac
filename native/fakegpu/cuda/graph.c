#include "graph.h"

#include <stdlib.h>
#include <string.h>

#include "user_object.h"

pthread_mutex_t graphs_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- sets of nodes ------------------------------------------------------------- */

bool node_set_has(const struct node_set *set, const struct CUgraphNode_st *node) {
    for (size_t i = 0; i < set->count; i++)
        if (set->node[i] == node)
            return true;
    return false;
}

bool node_set_add(struct node_set *set, struct CUgraphNode_st *node) {
    if (node_set_has(set, node))
        return true;
    if (set->count == set->room) {
        size_t room = set->room == 0 ? 4 : set->room * 2;
        struct CUgraphNode_st **grown = realloc(set->node, room * sizeof *grown);
        if (grown == NULL)
            return false;
        set->node = grown;
        set->room = room;
    }
    set->node[set->count++] = node;
    return true;
}

bool node_set_copy(struct node_set *set, const struct node_set *from) {
    set->count = 0;
    for (size_t i = 0; i < from->count; i++)
        if (!node_set_add(set, from->node[i]))
            return false;
    return true;
}

/* ---- graphs --------------------------------------------------------------------- */

struct CUgraph_st *graph_new(void) {
    static unsigned graphs;
    struct CUgraph_st *graph = calloc(1, sizeof *graph);
    if (graph != NULL)
        graph->id = __atomic_add_fetch(&graphs, 1, __ATOMIC_RELAXED);
    return graph;
}

void graph_free(struct CUgraph_st *graph) {
    while (graph != NULL && graph->first != NULL) {
        struct CUgraphNode_st *node = graph->first;
        graph->first = node->next;
        operation_clear(&node->operation);
        free(node->follows.node);
        free(node);
    }
    if (graph != NULL)
        user_references_end(&graph->objects);
    free(graph);
}

struct CUgraphNode_st *graph_add(struct CUgraph_st *graph, const struct operation *operation,
                                 const struct node_set *follows) {
    struct CUgraphNode_st *node = calloc(1, sizeof *node);
    if (node == NULL)
        return NULL;
    if (!operation_clone(&node->operation, operation) || !node_set_copy(&node->follows, follows)) {
        operation_clear(&node->operation);
        free(node->follows.node);
        free(node);
        return NULL;
    }
    struct CUgraphNode_st **place = &graph->first;
    while (*place != NULL)
        place = &(*place)->next;
    *place = node;
    node->graph = graph;
    node->id = ++graph->last_node;
    graph->nodes++;
    return node;
}

/* A node's place among the copies is its place among the originals. */
static bool clone_edges(const struct CUgraph_st *graph, struct CUgraph_st *clone,
                        struct CUgraphNode_st **copies) {
    unsigned place = 0;
    for (struct CUgraphNode_st *node = graph->first; node != NULL; node = node->next)
        node->place = place++;
    struct CUgraphNode_st *copy = clone->first;
    for (const struct CUgraphNode_st *node = graph->first; node != NULL; node = node->next) {
        for (size_t i = 0; i < node->follows.count; i++)
            if (!node_set_add(&copy->follows, copies[node->follows.node[i]->place]))
                return false;
        copy = copy->next;
    }
    return true;
}

struct CUgraph_st *graph_clone(const struct CUgraph_st *graph) {
    const struct node_set none = {0};
    struct CUgraph_st *clone = graph_new();
    struct CUgraphNode_st **copies = calloc(graph->nodes + 1, sizeof *copies);
    struct CUgraphNode_st **copy = copies;
    bool good = clone != NULL && copies != NULL;
    for (struct CUgraphNode_st *node = graph->first; node != NULL && good; node = node->next) {
        *copy = graph_add(clone, &node->operation, &none);
        good = *copy != NULL;
        if (good) {
            (*copy)->origin = node;
            (*copy)->disabled = node->disabled;
            copy++;
        }
    }
    if (good)
        clone->origin = (struct CUgraph_st *)graph;
    good = good && clone_edges(graph, clone, copies) &&
           user_references_copy(&clone->objects, graph->objects);
    free(copies);
    if (good)
        return clone;
    graph_free(clone);
    return NULL;
}

/* ---- order ------------------------------------------------------------------------- */

/* Kahn's algorithm; `place` counts what a node still has to follow. Of those that may come next
 * the one that was added first does, so a captured graph runs as it was captured. */
struct CUgraphNode_st **graph_order(struct CUgraph_st *graph) {
    struct CUgraphNode_st **order = calloc(graph->nodes + 1, sizeof *order);
    size_t count = 0;
    if (order == NULL)
        return NULL;
    for (struct CUgraphNode_st *node = graph->first; node != NULL; node = node->next)
        node->place = 0;
    bool found = true;
    while (found) {
        found = false;
        for (struct CUgraphNode_st *node = graph->first; node != NULL; node = node->next) {
            bool ready = node->place == 0;
            for (size_t i = 0; i < node->follows.count && ready; i++)
                ready = node->follows.node[i]->place != 0;
            if (!ready)
                continue;
            node->place = 1;
            order[count++] = node;
            found = true;
        }
    }
    if (count == graph->nodes)
        return order;
    free(order);
    return NULL;
}

/* Marks a node and all that it follows, from last to first. */
bool nodes_joined(struct CUgraph_st *graph, const struct node_set *set,
                  const struct node_set *tips) {
    struct CUgraphNode_st **order = graph_order(graph);
    if (order == NULL)
        return false;
    for (size_t i = 0; i < graph->nodes; i++)
        order[i]->place = node_set_has(tips, order[i]);
    for (size_t i = graph->nodes; i > 0; i--)
        for (size_t j = 0; order[i - 1]->place && j < order[i - 1]->follows.count; j++)
            order[i - 1]->follows.node[j]->place = 1;
    free(order);
    for (size_t i = 0; i < set->count; i++)
        if (set->node[i]->place == 0)
            return false;
    return true;
}
