/*
 * The state that every process of one fake machine shares: a file in the state
 * folder, mapped by all of them.
 *
 * What keeps it consistent when a process is killed at any instruction:
 *   - Locks are record locks on bytes of the file (see LOCK_ below). The kernel
 *     drops them with their owner, and they mean the same in every container,
 *     where process ids do not.
 *   - A change of one word is a single store. The one change of several words,
 *     a step of the timeline, is first written down in `struct step`; the process that
 *     finds one half done repeats it (its values are absolute). Which kernels
 *     have ended by then follows from the client's clock, however often it is worked out.
 *   - Nothing that can be derived is stored: memory in use is the sum over
 *     clients, a queue's length is submitted - completed.
 */
#ifndef FAKEGPU_STATE_H
#define FAKEGPU_STATE_H

#include <assert.h>
#include <stdint.h>

#define STATE_MAGIC   UINT64_C(0x31555047454b4146) /* "FAKEGPU1" */
#define STATE_VERSION 3u

#define GPUS_MAX      16u
#define CLIENTS_MAX   256u  /* processes that use one GPU at the same time */
#define PROCESSES_MAX 4096u /* remembered, the living and the dead */
#define QUEUE_DEPTH   1024u /* kernels of one process waiting on one GPU */
#define QUEUES_MAX    32u   /* hardware queues of one process on one GPU */
#define SLICE_NS      UINT64_C(1000000)
#define SAMPLE_NS     UINT64_C(167000000) /* as NVML documents its sample period, at most 1 s */
#define XIDS_MAX      32u                 /* errors of one GPU that are remembered */

/* Bytes of the file whose record locks mean something. */
#define LOCK_PROCESSES    0                 /* the list of processes */
#define LOCK_GPU(gpu)     (1 + (gpu))       /* one GPU's engine and clients */
#define LOCK_LIFE(record) (1024 + (record)) /* held for as long as that process lives */

struct kernel {
    uint64_t duration_ns; /* 0: a marker, which ends when its turn comes */
    uint64_t end_ns;      /* CLOCK_MONOTONIC; 0 until it has ended */
    uint64_t after;       /* a kernel of any queue that has to end before it begins; 0: none */
    uint64_t next;        /* the one behind it in its queue; 0: none yet */
    uint32_t queue;
    uint32_t reserved;
};

/* Where a queue stands. */
struct head {
    uint64_t number;   /* of the first kernel that has not ended; 0: none */
    uint64_t begin_ns; /* by the client's own clock; 0: not begun */
};

/* What one process has on one GPU. Kernels are numbered from 1, over all queues; number n is
 * kernel[(n - 1) % QUEUE_DEPTH]. */
struct client {
    uint64_t process; /* its id */
    uint32_t record;  /* where it stands among the processes */
    uint32_t queues;  /* that it has used */
    uint64_t memory_bytes;
    uint64_t submitted; /* the number of the last kernel */
    uint64_t completed; /* it and all before it have ended */
    uint64_t ran_ns;    /* its own clock: runs while the GPU works for it, from 1 on */
    struct head head[QUEUES_MAX];
    uint64_t last[QUEUES_MAX]; /* kernel of each queue */
    struct kernel kernel[QUEUE_DEPTH];
};

/* A step of the timeline: after it, these words have these values. */
struct step {
    uint32_t pending; /* 1 while it is being applied */
    uint32_t client;
    uint64_t time_ns;
    uint64_t slice_left_ns;
    uint64_t ran_ns;
    uint64_t gpu_busy_ns;
    uint64_t process_busy_ns;
};

/* An error of a GPU, as the kernel's log names it. */
struct xid {
    uint32_t number;
    uint32_t reserved;
    uint64_t process; /* whose work it was, by id; 0: everybody's */
};

struct gpu {
    char uuid[48];  /* GPU-8-4-4-4-12 */
    char model[96]; /* as NVML names it */
    uint64_t memory_bytes;
    uint64_t time_ns;       /* the timeline is computed up to here */
    uint64_t slice_left_ns; /* of the client below */
    uint32_t current;       /* client whose slice it is */
    uint32_t reserved;
    uint64_t busy_ns;
    uint64_t reaped_ns;                  /* when dead clients were last looked for */
    uint64_t attached[CLIENTS_MAX / 64]; /* which clients are in use */
    uint64_t sampled_ns[2]; /* the last two looks at how busy it was, the older one second */
    uint64_t sampled_busy_ns[2];
    uint64_t first_used_ns; /* 0: never */
    uint64_t allocations;   /* asked for so far */
    uint32_t planned;       /* the profile's fault has happened */
    uint32_t lost;          /* it has fallen off the bus */
    uint64_t xids;          /* so far; the last are xid[(n - 1) % XIDS_MAX] */
    struct xid xid[XIDS_MAX];
    struct step step;
    struct client client[CLIENTS_MAX];
};

/* A process that used a GPU, alive or not: its log of busy time. */
struct process {
    uint64_t id;  /* never used twice; 0: none yet */
    uint32_t pid; /* as the process saw itself */
    uint32_t reserved;
    char comm[16];
    char host[64]; /* uname's nodename: in Kubernetes the pod's name */
    uint64_t busy_ns[GPUS_MAX];
};

struct state {
    uint64_t magic; /* written last */
    uint32_t version;
    uint32_t gpus;
    uint64_t profile_hash;
    uint64_t last_process; /* id */
    struct process process[PROCESSES_MAX];
    struct gpu gpu[];
};

static_assert(CLIENTS_MAX % 64 == 0, "clients are counted in words of bits");

#endif
