/*
 * The streams of this process: where no event can be recorded behind all work of a context at once,
 * one is recorded in each of its streams. Callers hold the list of contexts (ks_contexts_hold()).
 */
#ifndef KS_STREAMS_H
#define KS_STREAMS_H

#include "driver.h"

#include <stdbool.h>

#define KS_STREAMS_MAX 4096u

struct ks_stream {
    CUstream handle;       /* NULL: this entry is free */
    CUgreenCtx green;      /* unless NULL, all streams of this green context: its default one has no
                              handle, which is that of the context then */
    CUcontext context;     /* its own: that of a green context differs from its owner */
    CUcontext owner;       /* the context whose work it is */
    unsigned long long id; /* of the owner: a handle may be used again */
    unsigned int flags;
    CUevent event; /* NULL until one is needed */
};

/* Adds a stream; false if the list is full. */
bool ks_streams_add(struct ks_stream stream);

/* The entry of a stream; NULL if there is none. */
struct ks_stream *ks_streams_find(CUstream handle);

/* Removes an entry, and the event with it. */
void ks_streams_remove(struct ks_stream *stream);

typedef bool ks_stream_visitor(struct ks_stream *stream, void *data);

/* Calls `visit` for each stream of a context, by handle and number, until one call returns false,
 * and returns that. */
bool ks_streams_visit(CUcontext owner, unsigned long long id, ks_stream_visitor *visit, void *data);

/* The same for the streams of a green context of this owner. */
void ks_streams_visit_green(CUcontext green, CUcontext owner, ks_stream_visitor *visit, void *data);

/* After a context has ended, and its streams with it. */
void ks_streams_drop(CUcontext context);

/* In a forked child: none. */
void ks_streams_forget(void);

#endif
