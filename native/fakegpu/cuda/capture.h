/*
 * Streams that are captured: what is asked of them becomes nodes of a graph,
 * and some calls, from whichever thread, break the capture.
 *
 * A thread has a mode (cuThreadExchangeStreamCaptureMode), and so has a
 * capture; the two decide whether a call that might do harm is refused. A call
 * that necessarily gets in the way is refused whatever the modes.
 */
#ifndef FAKEGPU_CAPTURE_H
#define FAKEGPU_CAPTURE_H

#include "operation.h"

struct capture {
    uint64_t id;
    uint64_t thread;
    CUstreamCaptureMode mode;
    struct CUgraph_st *graph;
    bool own_graph; /* not one that the program gave */
    bool broken;
    struct CUstream_st *origin;
    struct CUstream_st *streams; /* all that take part */
    struct capture *next;
};

extern unsigned capture_count;   /* atomic */
extern struct capture *captures; /* graphs_lock */

extern __attribute__((
    tls_model("initial-exec"))) _Thread_local CUstreamCaptureMode capture_thread_mode;

/** Whether any stream of this process is being captured. */
static inline bool captures_any(void) {
    return __atomic_load_n(&capture_count, __ATOMIC_ACQUIRE) != 0;
}

/* ---- each returns the error that the call has to give, and breaks captures as it must ---- */

/** A call that might do harm to a capture: it waits, or changes what is allocated or loaded. */
CUresult unsafe_call(void);

/** A call that concerns all streams of a context. */
CUresult whole_context_call(const struct CUctx_st *context);

/** A call that waits for a stream or looks at its progress. */
CUresult progress_call(const struct CUstream_st *stream);

/** A call that waits for an event or looks at it. */
CUresult event_call(const struct CUevent_st *event);

/* ---- what goes into a capture ---- */

/** Captures an operation where its stream is captured. */
CUresult capture_operation(struct CUstream_st *stream, const struct operation *operation,
                           bool *captured);
CUresult capture_allocation(struct CUstream_st *stream, struct device *device, uint64_t bytes,
                            CUdeviceptr *pointer, bool *captured);
CUresult capture_record(struct CUevent_st *event, struct CUstream_st *stream, bool *captured);

/** A stream waits for an event: it may join the capture in which that was recorded. */
CUresult capture_wait(struct CUstream_st *stream, struct CUevent_st *event, bool *captured);

/** An event is recorded outside any capture. */
void capture_forget(struct CUevent_st *event);

/** Whether an event was last recorded in a capture. */
bool capture_holds(const struct CUevent_st *event);

/* ---- with graphs_lock held ---- */

/** Breaks a capture; returns what the call has to answer: it may be broken already. */
CUresult capture_break(struct capture *capture, CUresult error);

/** A stream takes part from now on. */
void capture_join(struct CUstream_st *stream, struct capture *capture);

/** Ends a capture; its graph stays. */
void capture_leave(struct capture *capture);

/* ---- without ---- */

/** A stream ends: what it was captured in is broken. */
void capture_lose(struct CUstream_st *stream);

#endif
