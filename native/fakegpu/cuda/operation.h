/*
 * What can be done in a stream: what a call asks for, what a graph's node
 * holds, and what waits its turn (deferred.h) are the same thing.
 */
#ifndef FAKEGPU_OPERATION_H
#define FAKEGPU_OPERATION_H

#include "driver.h"

enum operation_kind {
    OPERATION_EMPTY,
    OPERATION_SPAN, /* time on the engine and nothing else: kernels that were put together */
    OPERATION_KERNEL,
    OPERATION_COPY,
    OPERATION_FILL,
    OPERATION_HOST,
    OPERATION_CALLBACK,
    OPERATION_VALUES,
    OPERATION_RECORD,
    OPERATION_WAIT,
    OPERATION_GRAPH, /* this and the next two only in a graph */
    OPERATION_ALLOCATE,
    OPERATION_FREE,
    OPERATION_RELEASE, /* of a pool's memory, behind what is deferred */
};

struct kernel_operation {
    CUfunction function;
    unsigned shape[6]; /* grid, block */
    unsigned shared_bytes;
    uint32_t argument; /* the first one, where the kernel takes its time or its error from it */
    bool breaks;       /* its context */
    void *parameter;   /* its address, for queries of the node */
};

struct operation {
    enum operation_kind kind;
    uint64_t duration_ns; /* on the engine */
    uint64_t transfer_ns; /* beside it, on a copy engine */
    uint64_t *copy_engine;
    union {
        struct kernel_operation kernel;
        CUDA_MEMCPY3D copy;
        CUDA_MEMSET_NODE_PARAMS fill;
        CUDA_HOST_NODE_PARAMS host;
        struct {
            CUstreamCallback function;
            void *data;
            CUstream stream; /* as the program named it */
        } callback;
        struct {
            CUstreamBatchMemOpParams *value;
            unsigned count;
        } values;
        CUevent event;
        CUgraph graph;
        struct graph_memory *memory;
        CUdeviceptr freed;
        struct {
            CUdeviceptr pointer;
            uint64_t id; /* of the allocation */
        } release;
    };
};

/** A copy with memory of its own; false when there is none left. */
bool operation_clone(struct operation *copy, const struct operation *operation);

/** Frees what an operation has of its own. */
void operation_clear(struct operation *operation);

/** Whether an operation is not the engine's: then it cannot begin before all that was asked of the
 * stream earlier is over. */
static inline bool operation_needs_quiet(const struct operation *operation) {
    return operation->kind == OPERATION_HOST || operation->kind == OPERATION_CALLBACK ||
           operation->kind == OPERATION_VALUES || operation->transfer_ns > 0;
}

/**
 * Does an operation in a stream as soon as its turn comes, or adds it to the
 * graph that the stream is capturing. The operation stays the caller's.
 */
CUresult stream_do(struct CUstream_st *stream, const struct operation *operation);

/** The same for a stream that is known not to be capturing. */
CUresult stream_do_now(struct CUstream_st *stream, const struct operation *operation);

/** Queues an operation's time on the engine; a kernel that breaks its context is noted as such. */
void operation_submit(struct CUstream_st *stream, const struct operation *operation);

/** Makes a kernel's operation from what a launch passes; checks the shape. */
CUresult kernel_operation(struct operation *operation, CUfunction function, const unsigned shape[6],
                          unsigned shared_bytes, void **parameters, void **extra);

/** Makes a copy's and a fill's operation: checks the form, sets the time. */
CUresult copy_operation(struct operation *operation, const CUDA_MEMCPY3D *form);
CUresult fill_operation(struct operation *operation, const CUDA_MEMSET_NODE_PARAMS *form);

/** Does the bytes of checked forms. */
void copy_bytes(const CUDA_MEMCPY3D *form);
void fill_bytes(const CUDA_MEMSET_NODE_PARAMS *form);

/** Frees a pool's memory after all that is in its GPU's queue. */
void release_behind(CUdeviceptr pointer, uint64_t id);

/** The same for any operation; most have none. */
static inline void operation_move_bytes(const struct operation *operation) {
    if (operation->kind == OPERATION_COPY)
        copy_bytes(&operation->copy);
    else if (operation->kind == OPERATION_FILL)
        fill_bytes(&operation->fill);
    else if (operation->kind == OPERATION_RELEASE)
        release_behind(operation->release.pointer, operation->release.id);
}

/** Makes the operation of operations on memory; the array stays the caller's. */
CUresult values_operation(struct operation *operation, unsigned count,
                          CUstreamBatchMemOpParams *values);

/** Does operations on memory from number `*next` on; false when one has to wait. */
bool values_progress(const struct operation *operation, unsigned *next);

#endif
