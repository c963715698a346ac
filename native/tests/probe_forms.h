/*
 * Ways to hold memory of a GPU.
 */
#ifndef PROBE_FORMS_H
#define PROBE_FORMS_H

#include "paths.h"

struct held {
    const struct form *form; /* NULL: this place is free */
    size_t bytes;
    CUdeviceptr pointer;
    void *host;
    CUmemoryPool pool;
    CUstream stream;
    CUmemGenericAllocationHandle physical;
    CUarray array;
    CUmipmappedArray mipmap;
    CUexternalMemory external;
    CUgraph graph;
    CUgraphExec executable;
};

struct form {
    const char *name;
    int (*hold)(struct held *held);
    int (*drop)(struct held *held);
};

/* Each list ends with a form that has no name. */
extern const struct form array_forms[]; /* probe_arrays.c */
extern const struct form graph_forms[]; /* probe_graphs.c */

/* Physical memory on the GPU, not mapped (probe_memory.c). */
int hold_physical(struct held *held);
int drop_physical(struct held *held);

/* The first code that is not success. */
static inline int first(int one, int other) {
    return one != 0 ? one : other;
}

#endif
