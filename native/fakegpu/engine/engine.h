/*
 * One process's view of the fake machine: the shared state mapped, its locks,
 * and the few things that can be done to a GPU.
 *
 * Whatever touches a GPU happens between engine_enter and engine_leave: a
 * mutex among the threads of this process, then the record lock among
 * processes, then the timeline is brought up to the present. Held for a
 * microsecond or two, never while waiting.
 */
#ifndef FAKEGPU_ENGINE_H
#define FAKEGPU_ENGINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "profile.h"
#include "state.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* fcntl with a record lock; no point at which a thread can be cancelled, with the locks it holds.
 */
static inline int record_lock(int fd, int command, struct flock *lock) {
    return (int)syscall(SYS_fcntl, fd, command, lock);
}

/* Errors that end the work of all processes on the GPU. */
#define XID_DOUBLE_BIT    48u
#define XID_ROW_REMAPPED  63u
#define XID_REMAP_FAILED  64u
#define XID_LOST          79u
#define XID_UNCONTAINED   95u
#define XID_GSP_TIMED_OUT 119u

struct engine {
    struct profile profile;
    struct state *state; /* NULL before engine_open, and after a fork in the child */
    size_t size;
    int fd;
    char folder[4000]; /* the state folder */
    uint64_t process;  /* own id; 0 until the first engine_attach */
    uint32_t record;
    pthread_mutex_t mutex[GPUS_MAX];
};

/** What to do with a state that was made for another profile. */
enum engine_use {
    ENGINE_RUN,  /* replace it if none of its processes lives, else fail */
    ENGINE_LOOK, /* use the state as it is, with the GPUs that it has */
};

/**
 * Chooses the profile, then opens or makes the state. The state folder is
 * $FAKEGPU_STATE, else the profile's, else /dev/shm/fakegpu-UID.
 * Returns false with a sentence in `error`.
 */
bool engine_open(struct engine *engine, enum engine_use use, const char *library_path, char *error,
                 size_t size);

/**
 * The GPUs that this process may see, in order; returns how many. Where
 * $FAKEGPU_DEVICE_NODES is 1, as in containers, a GPU is there when its device
 * node /dev/nvidiaN is.
 */
unsigned engine_present(const struct engine *engine, uint32_t present[GPUS_MAX]);

/** In the child of a fork: gives up what is the parent's. */
void engine_forget(struct engine *engine);

/** Begins work on a GPU; returns the present, CLOCK_MONOTONIC in ns. */
uint64_t engine_enter(struct engine *engine, uint32_t gpu);
void engine_leave(struct engine *engine, uint32_t gpu);

/**
 * Makes this process a client of a GPU (not inside enter). Returns false when
 * CLIENTS_MAX others are.
 */
bool engine_attach(struct engine *engine, uint32_t gpu, uint32_t *client);

/* ---- inside enter/leave ---- */

/** Memory in use by all living processes, in bytes. */
uint64_t engine_memory_used(const struct engine *engine, uint32_t gpu);

/** Takes memory for a client; false when the GPU has no room. */
bool engine_allocate(struct engine *engine, uint32_t gpu, uint32_t client, uint64_t bytes);
void engine_release(struct engine *engine, uint32_t gpu, uint32_t client, uint64_t bytes);

/** Whether a client's queue has room for one more kernel. */
bool engine_has_room(const struct engine *engine, uint32_t gpu, uint32_t client);

/**
 * Puts a kernel into a queue where there is room; returns its number. It begins
 * when those before it in its queue and kernel `after` (0: none) have ended; one
 * of no duration is a marker.
 */
uint64_t engine_submit(struct engine *engine, uint32_t gpu, uint32_t client, uint32_t queue,
                       uint64_t duration_ns, uint64_t after);

/**
 * An error happens, to one process's work or (0) to everybody's. XID_LOST takes
 * the GPU off the bus for ever.
 */
void engine_raise(struct engine *engine, uint32_t gpu, uint32_t xid, uint64_t process);

/** Drops what dead processes held, now. */
void engine_reap(struct engine *engine, uint32_t gpu);

/** When a completed kernel of the last QUEUE_DEPTH ended. */
uint64_t engine_end_ns(const struct engine *engine, uint32_t gpu, uint32_t client, uint64_t number);

/* ---- outside ---- */

/** Whether kernel `number` has been seen to end; takes no lock. */
bool engine_completed(const struct engine *engine, uint32_t gpu, uint32_t client, uint64_t number);

/** 0 when kernel `number` has ended, else when to look again: its end, as far as that is known. */
uint64_t engine_wake_ns(struct engine *engine, uint32_t gpu, uint32_t client, uint64_t number);

/** Sleeps until kernel `number` has ended. */
void engine_wait(struct engine *engine, uint32_t gpu, uint32_t client, uint64_t number);

/** Sleeps until kernel `number` and all before it have ended. */
void engine_wait_all(struct engine *engine, uint32_t gpu, uint32_t client, uint64_t number);

/** Whether a process lives, by its id. */
bool engine_process_lives(const struct engine *engine, uint64_t process);

/**
 * Whether the process at `record` lives; its pid as this process's PID
 * namespace sees it, or 0 where it does not.
 */
bool engine_process_alive(const struct engine *engine, uint32_t record, pid_t *pid);

#endif
