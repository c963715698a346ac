/*
 * The inside of the fake driver: what its files share.
 *
 * A process has queues on a GPU (engine/), and each stream stands in one of
 * them: what ends last of it is a kernel's number. An event or a context may
 * be after several streams: what it waits for is a front, the last kernel of
 * each queue. Where the profile says nothing of queues there is one, and what is
 * no kernel takes no place in it. Else waits and events are markers in
 * the queue of their stream, and hold up what shares it (queue.h).
 *
 * Work that cannot go to the engine yet stands in a list of its own
 * (deferred.h), and what is captured goes into a graph (capture.h, graph.h).
 *
 * Locks, each taken only after those before it and none held while waiting:
 * `graphs_lock` guards graphs and captures; `driver.lock` contexts, streams'
 * lists, allocations and modules; the list's own what is deferred; the GPU's
 * own (engine_enter) streams' and events' progress.
 */
#ifndef FAKEGPU_DRIVER_H
#define FAKEGPU_DRIVER_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>

#include "../engine/debug.h"
#include "../engine/engine.h"

#define API __attribute__((visibility("default"))) CUresult

/** Defined in one file, called in another: declared here as the program's <cuda.h> would. */
API cuCtxPushCurrent_v2(CUcontext context);
API cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                   void **parameters, void **extra);
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
            return (CUresult)not_modelled(what, &said_, CUDA_ERROR_NOT_SUPPORTED);                 \
    } while (0)

/* The last kernel of each queue that something waits for; 0: none. */
struct front {
    uint64_t last[QUEUES_MAX];
};

struct node_set {
    struct CUgraphNode_st **node;
    size_t count, room;
};

struct CUstream_st {
    struct CUctx_st *context;
    unsigned flags;
    int priority;
    uint64_t id;
    uint64_t charged;                     /* bytes of the GPU */
    CUlaunchAttributeValue attributes[4]; /* stream_attribute.c */
    uint64_t thread;                      /* the thread whose default stream it is; 0: of none */
    uint32_t queue;                       /* that its work goes to */
    uint64_t last;                        /* kernel after which it is idle */
    struct front joined;                  /* what it waits for already, with hardware queues */
    unsigned deferred;                    /* operations in the list; its lock */
    uint64_t held;                        /* the last pass over the list that held it up */
    bool unlisted;                        /* destroyed: goes with the last operation in the list */
    bool ended;                           /* with its context (ended.h); atomic */
    struct capture *capture;              /* graphs_lock, as the next two */
    struct node_set tips;                 /* the nodes that the next captured one follows */
    struct CUstream_st *also;             /* the next stream of the same capture */
    struct CUstream_st *next;
};

/* Limits of a context, by CUlimit. */
#define LIMITS 11u

#define THREADS_PER_MULTIPROCESSOR 2048u

struct CUctx_st {
    struct device *device;
    bool alive;        /* atomic; changed under driver.lock */
    uint64_t overhead; /* bytes of the GPU that no allocation has */
    size_t limit[LIMITS];
    unsigned flags;
    unsigned references; /* of a primary context */
    uint64_t id;
    struct front last;          /* of any of its streams */
    struct front last_legacy;   /* of the legacy default stream */
    struct front last_blocking; /* of that and of all streams that it waits for */
    uint64_t xids;              /* errors of its GPU that it has looked at; atomic */
    uint64_t doomed;            /* the kernel that will break it, or 0; atomic */
    uint32_t doom;              /* the error that it then raises */
    int broken;                 /* the CUresult that every call answers from now on, or 0; atomic */
    uint32_t peers;             /* whose memory it may use, a bit a device; atomic */
    uint64_t held_any, held_legacy, held_blocking; /* passes over the list of what is deferred */
    struct CUctx_st *primary;                      /* of a green context; else NULL */
    pthread_mutex_t calls; /* held by those that have a lock in the profile; valid as zeros */
    struct CUstream_st legacy;
    struct CUstream_st *streams;
    struct CUevent_st *events;
    struct CUctx_st *next;
};

/* What a device keeps for graphs, in bytes (graph_memory.h); driver.lock. */
struct graph_account {
    uint64_t used, used_high;
    uint64_t reserved, reserved_high;
};

/* What is allocated in a green context belongs to the primary one. */
static inline struct CUctx_st *owning_context(struct CUctx_st *context) {
    return context->primary != NULL ? context->primary : context;
}

static inline bool context_is_alive(const struct CUctx_st *context) {
    return __atomic_load_n(&context->alive, __ATOMIC_RELAXED);
}

static inline void context_set_alive(struct CUctx_st *context, bool alive) {
    __atomic_store_n(&context->alive, alive, __ATOMIC_RELAXED);
}

/* A GPU that this process may see, in the order of its ordinals. */
struct device {
    uint32_t gpu; /* in the engine */
    bool attached;
    uint32_t client;
    uint32_t streams; /* made so far: they take the queues in turn; atomic */
    struct CUctx_st primary;
    struct graph_account graphs;
    struct CUevent_st *pending[QUEUE_DEPTH]; /* events by the place of their kernel */
};

enum event_state { EVENT_NEW, EVENT_DEFERRED, EVENT_PENDING, EVENT_DONE };

struct CUevent_st {
    struct CUctx_st *context;
    unsigned flags;
    enum event_state state;
    struct front rest;        /* what it waits for */
    uint64_t number;          /* the first kernel of that */
    uint64_t record_ns;       /* when it was recorded */
    uint64_t time_ns;         /* its time stamp, once done */
    uint64_t work;            /* its recording in the list, while deferred */
    struct ipc_event *shared; /* with other processes, or NULL */
    uint64_t exported;        /* the number of its file, where it is this process's */
    uint64_t capture;         /* the capture that it was last recorded in, or 0; graphs_lock */
    struct node_set tips;
    struct CUevent_st *next;
    bool ended;                /* with its context (ended.h); atomic */
    struct CUevent_st *later;  /* the next one of its context; driver.lock, as the next */
    struct CUevent_st **place; /* that points to it */
};

struct CUfunc_st {
    struct CUmod_st *module;
    uint32_t argument_ns;            /* of its time for one of its argument; 0: as the profile */
    bool breaks;                     /* breaks its context: its argument is the error */
    unsigned block[3], shared_bytes; /* for launches that do not name them */
    uint32_t first_argument;
    struct CUfunc_st *next;
    char name[];
};

struct CUmod_st {
    struct CUctx_st *context; /* whose memory its code is in; NULL: none yet; atomic */
    struct CUctx_st *owner;   /* in which it was loaded; NULL: a library */
    uint64_t context_id;      /* of the context while the module's memory is in it */
    uint64_t charged;
    struct CUfunc_st *functions;
    struct variable *variables; /* variables.h */
};

struct driver {
    pthread_mutex_t lock;
    struct engine engine;
    struct device devices[GPUS_MAX];
    int device_count;
    struct CUctx_st *contexts; /* created ones, for ever: a stale handle is known as one */
    uint64_t last_id;
    bool has_hardware_queues; /* the profile says so */
    uint32_t queues;          /* of this process on each GPU */
};

extern struct driver driver;

/** CUDA_ERROR_NOT_INITIALIZED before cuInit and in the child of a fork. */
CUresult driver_ready(void);

CUresult find_device(CUdevice ordinal, struct device **device);

/** The context of this thread, alive. */
CUresult current_context(struct CUctx_st **context);

/** The model of the current context's GPU, of the first GPU where there is none. */
const struct model *current_model(void);

/** The error that has broken a context for good, if one has. */
CUresult context_fault(struct CUctx_st *context);

/** What the profile lets every synchronisation take longer. */
void sync_slowly(void);

/** What the profile lets a call in a context take: its thread works for so long. */
void call_costs(const struct cost *cost, struct CUctx_st *context);

/** Whether one more context fits on this thread's stack. */
bool context_stack_has_room(void);

/** Takes a context off this thread's stack where it is on top. */
void context_leave(const struct CUctx_st *context);

/** A handle given by the program, be the context broken or not. */
CUresult find_living_context(CUcontext handle, struct CUctx_st **context);

/** A handle given by the program; NULL means the current one. */
CUresult find_context(CUcontext handle, struct CUctx_st **context);

/** A stream handle given by the program: 0, 1 and 2 are the default ones. */
CUresult find_stream(CUstream handle, struct CUstream_st **stream);

/** A number that no other thread of this process has. */
uint64_t this_thread(void);

/** In the twins with suffix: 0 means the thread's own default stream. */
CUstream per_thread(CUstream stream);

/* ---- progress: inside engine_enter/leave of the device ---- */

/** What `stream` has to wait for until it is idle. */
void stream_pending(const struct CUstream_st *stream, struct front *front);

/** Notes that `stream` is busy until kernel `number`, which stands in its queue. */
void stream_busy(struct CUstream_st *stream, uint64_t number);

/** Whether an event holds nothing up. */
bool event_is_over(struct CUevent_st *event);

/** Gives the events of this kernel their time before its place is used again. */
void settle_events(struct device *device, uint64_t number);

/* ---- outside ---- */

/** Sleeps until a stream has nothing left to do. */
CUresult stream_wait(struct CUstream_st *stream);

/** Sleeps until a context has nothing left to do. */
void context_wait(const struct CUctx_st *context);

/** Sleeps until kernel `number` of a device has ended. */
void device_wait(struct device *device, uint64_t number);

/** Sleeps until all of a front has. */
void device_wait_front(struct device *device, const struct front *front);

/** Has a stream wait for what a front of its device has not reached yet. */
void stream_follow(struct CUstream_st *stream, const struct front *front);

/** How many blocks of so many threads a multiprocessor runs at a time. */
int blocks_that_fit(int threads, size_t shared_bytes);

/** Queues time on the engine for a stream; waits while the queue is full. Returns the kernel. */
uint64_t stream_submit(struct CUstream_st *stream, uint64_t duration_ns);

/** Records an event now, after all that is in its stream. */
void event_record(struct CUevent_st *event, struct CUstream_st *stream);

/** Notes that the recording of an event stands in the list, as number `work`. */
void event_defer(struct CUevent_st *event, uint64_t work);

/**
 * Records a deferred event (NULL: destroyed since) unless it was recorded again
 * since; `front` is after what it is over.
 */
void event_record_deferred(struct CUevent_st *event, uint64_t work, struct CUstream_st *stream,
                           bool whole_context, struct front *front);

/** An error where an event, or its context, has ended. */
CUresult event_lives(const struct CUevent_st *event);

/** Enters an event in the list of its context; driver.lock held, as for the next. */
void event_list(struct CUevent_st *event);
void event_unlist(struct CUevent_st *event);

/** Gives back all that an event holds. */
void event_clear(struct CUevent_st *event);

/** Makes a stream wait for an event of the same device that is not deferred. */
CUresult event_hold_up(struct CUevent_st *event, struct CUstream_st *stream);

/** Has a module's code in a context's memory, for a launch there. */
CUresult module_enter(struct CUmod_st *module, struct CUctx_st *context);

/** Memory of all kinds: frees what a context that ends still has. */
void release_memory_of(const struct CUctx_st *context);

#endif
