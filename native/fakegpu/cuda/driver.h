/*
 * The inside of the fake driver: what its files share.
 *
 * A GPU here is one FIFO per process (engine/): streams of a process do not
 * overlap. So all that a stream, an event or a context has to know of its work
 * is the number of a kernel: when that kernel has ended, it is done.
 *
 * Locks: `driver.lock` guards contexts, streams' lists, allocations and
 * modules; the GPU's own (engine_enter) guards streams' and events' progress.
 * The first may be held when the second is taken, never the other way round,
 * and neither while waiting.
 */
#ifndef FAKEGPU_DRIVER_H
#define FAKEGPU_DRIVER_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>

#include "../engine/engine.h"
#include "debug.h"

#define API __attribute__((visibility("default"))) CUresult

/** Defined in one file, called in another: declared here as the program's <cuda.h> would. */
API cuCtxPushCurrent_v2(CUcontext context);
API cuMemFree_v2(CUdeviceptr pointer);

/** Leaves the function with an error that `expression` gives. */
#define TRY(expression)                                                                            \
    do {                                                                                           \
        CUresult tried_ = (expression);                                                            \
        if (tried_ != CUDA_SUCCESS)                                                                \
            return tried_;                                                                         \
    } while (0)

/** Leaves the function with `error` unless `condition` holds. */
#define REQUIRE(condition, error)                                                                  \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return (error);                                                                        \
    } while (0)

/** Leaves the function as not modelled unless `condition` holds; `what` names the behaviour. */
#define MODELLED(condition, what)                                                                  \
    do {                                                                                           \
        static int said_;                                                                          \
        if (!(condition))                                                                          \
            return (CUresult)not_modelled(what, &said_);                                           \
    } while (0)

struct CUstream_st {
    struct CUctx_st *context;
    unsigned flags;
    int priority;
    uint64_t id;
    uint64_t thread; /* whose default stream it is; 0: nobody's */
    uint64_t last;   /* kernel after which it is idle */
    struct CUstream_st *next;
};

struct CUctx_st {
    struct device *device;
    bool alive;
    unsigned flags;
    unsigned references; /* of a primary context */
    uint64_t id;
    uint64_t last;          /* kernel of any of its streams */
    uint64_t last_legacy;   /* of the legacy default stream */
    uint64_t last_blocking; /* of that and of all streams that it waits for */
    struct CUstream_st legacy;
    struct CUstream_st *streams;
    struct CUctx_st *next;
};

/* A GPU that this process may see, in the order of its ordinals. */
struct device {
    uint32_t gpu; /* in the engine */
    bool attached;
    uint32_t client;
    struct CUctx_st primary;
    struct CUevent_st *pending[QUEUE_DEPTH]; /* events by the place of their kernel */
};

enum event_state { EVENT_NEW, EVENT_PENDING, EVENT_DONE };

struct CUevent_st {
    struct CUctx_st *context;
    unsigned flags;
    enum event_state state;
    uint64_t number;    /* the kernel it waits for */
    uint64_t record_ns; /* when it was recorded */
    uint64_t time_ns;   /* its time stamp, once done */
    struct CUevent_st *next;
};

struct CUfunc_st {
    struct CUmod_st *module;
    bool spins; /* takes its time from its argument */
    struct CUfunc_st *next;
    char name[];
};

struct CUmod_st {
    struct CUctx_st *context;
    struct CUfunc_st *functions;
};

struct driver {
    pthread_mutex_t lock;
    struct engine engine;
    struct device devices[GPUS_MAX];
    int device_count;
    struct CUctx_st *contexts; /* created ones, for ever: a stale handle is known as one */
    uint64_t last_id;
};

extern struct driver driver;

/** CUDA_ERROR_NOT_INITIALIZED before cuInit and in the child of a fork. */
CUresult driver_ready(void);

CUresult find_device(CUdevice ordinal, struct device **device);

/** The context of this thread, alive. */
CUresult current_context(struct CUctx_st **context);

/** Whether one more context fits on this thread's stack. */
bool context_stack_has_room(void);

/** Takes a context off this thread's stack where it is on top. */
void context_leave(const struct CUctx_st *context);

/** A handle given by the program; NULL means the current one. */
CUresult find_context(CUcontext handle, struct CUctx_st **context);

/** A stream handle given by the program: 0, 1 and 2 are the default ones. */
CUresult find_stream(CUstream handle, struct CUstream_st **stream);

/** In the twins with suffix: 0 means the thread's own default stream. */
CUstream per_thread(CUstream stream);

/* ---- progress: inside engine_enter/leave of the device ---- */

/** The kernel after which all that `stream` has to wait for is done. */
uint64_t stream_pending(const struct CUstream_st *stream);

/** Notes that `stream` is busy until kernel `number`. */
void stream_busy(struct CUstream_st *stream, uint64_t number);

/** Gives the events of this kernel their time before its place is used again. */
void settle_events(struct device *device, uint64_t number);

/* ---- outside ---- */

/** Sleeps until a stream has nothing left to do. */
CUresult stream_wait(struct CUstream_st *stream);

/** Sleeps until a context has nothing left to do. */
void context_wait(const struct CUctx_st *context);

/** Sleeps until kernel `number` of a device has ended. */
void device_wait(struct device *device, uint64_t number);

/** Memory of all kinds: frees what a context that ends still has. */
void release_memory_of(const struct CUctx_st *context);

#endif
