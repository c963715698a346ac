/*
 * Graphs: nodes, each an operation, and what each of them follows.
 *
 * `graphs_lock` guards every graph and capture: graphs are small, and a thread that
 * builds one is not in a hurry.
 */
#ifndef FAKEGPU_GRAPH_H
#define FAKEGPU_GRAPH_H

#include "operation.h"

struct CUgraphNode_st {
    struct CUgraph_st *graph;
    struct CUgraphNode_st *origin; /* in the graph that this one was cloned from */
    struct operation operation;
    struct node_set follows;
    bool disabled;
    unsigned place; /* while something is computed over the graph */
    unsigned id;
    struct CUgraphNode_st *next;
};

struct CUgraph_st {
    struct CUgraph_st *origin;
    struct CUgraphNode_st *first;
    struct user_reference *objects;
    size_t nodes;
    unsigned id;
    unsigned last_node; /* id */
};

struct CUgraphExec_st {
    struct CUgraph_st *graph; /* a copy of its own */
    struct CUgraphNode_st **order;
    unsigned id;
    uint64_t flags;
};

extern pthread_mutex_t graphs_lock;

/** Defined in one file, called in another. */
API cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type);
API cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *form);

/* ---- with graphs_lock held, or on a graph that no other thread knows ---- */

struct CUgraph_st *graph_new(void);
void graph_free(struct CUgraph_st *graph);

/** A deep copy; NULL when there is no memory. Each node knows its origin. */
struct CUgraph_st *graph_clone(const struct CUgraph_st *graph);

/** Adds a node with an operation of its own; NULL when there is no memory. */
struct CUgraphNode_st *graph_add(struct CUgraph_st *graph, const struct operation *operation,
                                 const struct node_set *follows);

/** Makes an executable graph of one. graphs_lock held. */
CUresult graph_compile(CUgraphExec *executable, CUgraph graph, uint64_t flags);

/** The nodes, each after all that it follows; NULL: they go in a circle, or no memory. */
struct CUgraphNode_st **graph_order(struct CUgraph_st *graph);

/** Adds a node to a set where it is not there yet; false when there is no memory. */
bool node_set_add(struct node_set *set, struct CUgraphNode_st *node);
bool node_set_copy(struct node_set *set, const struct node_set *from);
bool node_set_has(const struct node_set *set, const struct CUgraphNode_st *node);

/** Makes a node's operation from the parameters that all kinds share. */
CUresult node_operation(struct operation *operation, const CUgraphNodeParams *form);

/** Gives a node another operation of the same kind; takes graphs_lock. */
CUresult node_change(CUgraphNode node, const struct operation *operation);

/** Whether every node of `set` is one of `tips` or is followed by one of them. */
bool nodes_joined(struct CUgraph_st *graph, const struct node_set *set,
                  const struct node_set *tips);

#endif
