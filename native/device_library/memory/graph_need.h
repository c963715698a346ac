/*
 * How much memory the nodes of a graph allocate.
 */
#ifndef KS_GRAPH_NEED_H
#define KS_GRAPH_NEED_H

#include "driver.h"

/* Bytes that the graph's allocations on a device need together, those of its child graphs included.
 */
uint64_t ks_graph_need(CUgraph graph, CUdevice device);

#endif
