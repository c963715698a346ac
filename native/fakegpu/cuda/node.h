/* Nodes' parameters as operations, and what all kinds of nodes share. */
#ifndef FAKEGPU_NODE_H
#define FAKEGPU_NODE_H

#include "graph.h"

/** Adds a node with an operation to a graph. */
CUresult node_add(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                  const struct operation *operation);

/** Whether a node is one of a kind. */
CUresult node_check(CUgraphNode node, enum operation_kind kind);

/* ---- each makes an operation of a kind's parameters, and checks them ---- */

CUresult node_from_kernel(struct operation *operation, const CUDA_KERNEL_NODE_PARAMS *form);
CUresult node_from_copy(struct operation *operation, const CUDA_MEMCPY3D *form);
CUresult node_from_fill(struct operation *operation, const CUDA_MEMSET_NODE_PARAMS *form);
CUresult node_from_host(struct operation *operation, CUhostFn function, void *data);
CUresult node_from_values(struct operation *operation, const CUDA_BATCH_MEM_OP_NODE_PARAMS *form);
CUresult node_from_event(struct operation *operation, enum operation_kind kind, CUevent event);
CUresult node_from_graph(struct operation *operation, CUgraph graph);
CUresult node_from_free(struct operation *operation, CUdeviceptr pointer);

/** Makes one that allocates: it has addresses of its own from then on. */
CUresult node_from_allocation(struct operation *operation, struct device *device, uint64_t bytes);

/** The newest form of a kernel's parameters from the oldest. */
CUDA_KERNEL_NODE_PARAMS newest_kernel_form(const CUDA_KERNEL_NODE_PARAMS_v1 *form);

#endif
