/* The list of deferred work, shared by the code that adds to it and the dispatcher. */
#ifndef FAKEGPU_DEFERRED_LIST_H
#define FAKEGPU_DEFERRED_LIST_H

#include "deferred.h"

struct work {
    struct operation operation;
    struct CUstream_st *stream; /* the legacy one for an event after a whole context */
    struct CUctx_st *context;
    bool whole_context;
    bool running;
    uint64_t id;
    uint64_t after; /* the recording that it waits for, by its id, or 0 */
    const struct device *other;
    struct front front; /* the kernels of `other` that it waits for */
    unsigned next_item; /* of operations on memory */
    uint64_t until_ns;  /* the end of a transfer that has begun */
    struct work *next;
};

struct work_list {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct work *first;
    uint64_t last_id;
    uint64_t pass;
    bool started;
};

extern struct work_list deferred;

static inline bool is_legacy(const struct CUstream_st *stream) {
    return stream == &stream->context->legacy;
}

static inline bool is_blocking(const struct CUstream_st *stream) {
    return (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
}

/** The thread that works the list off. */
void *deferred_dispatch(void *unused);

#endif
