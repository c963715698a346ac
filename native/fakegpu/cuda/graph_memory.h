/*
 * Memory that graphs allocate. A node that allocates has its addresses from
 * the day it is made; memory comes to them when a graph is launched, from what
 * the device keeps for graphs. That grows when it has to, and shrinks when it
 * is trimmed.
 *
 * Nodes run in a fixed order, so all of it is settled at the launch.
 */
#ifndef FAKEGPU_GRAPH_MEMORY_H
#define FAKEGPU_GRAPH_MEMORY_H

#include "allocation.h"

struct graph_memory {
    struct device *device;
    uint64_t base, bytes;
    unsigned nodes; /* that have it: the original and its copies */
    bool live;      /* allocated by a launch, not freed since */
};

/** Reserves addresses for a node; a graph allocates there when it is launched. */
CUresult graph_memory_make(struct device *device, uint64_t bytes, struct graph_memory **made);

/** One more node has it, or one less; the addresses go with the last one. */
void graph_memory_hold(struct graph_memory *memory);
void graph_memory_drop(struct graph_memory *memory);

/** A launch comes to an allocating node: CUDA_ERROR_OUT_OF_MEMORY where the GPU has no room. */
CUresult graph_memory_take(struct graph_memory *memory);

/** A launch comes to a freeing node, or the program frees: false if it was not allocated. */
bool graph_memory_give(CUdeviceptr pointer);

/* ---- with driver.lock held ---- */

/** The last context of a GPU ends. */
void graph_memory_forget(struct device *device);

#endif
