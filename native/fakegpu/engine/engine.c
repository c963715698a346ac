#include "engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "timeline.h"

/* Locks that belong to the open file: the fake driver and the fake NVML may be in one process, each
 * with its own, and must exclude each other there too. (Old headers lack the names.) */
#ifndef F_OFD_GETLK
#define F_OFD_GETLK  36
#define F_OFD_SETLKW 38
#endif

/* How long the queue of a process that died may still run, and how long a prediction holds that
 * another process's death may shorten. */
#define REAP_NS    UINT64_C(5000000)
#define RECHECK_NS UINT64_C(10000000)

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void lock_byte(int fd, off_t byte, short type) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    while (record_lock(fd, F_OFD_SETLKW, &lock) != 0 && errno == EINTR)
        ;
}

static void sample(struct gpu *state, uint64_t now) {
    if (now - state->sampled_ns[0] < SAMPLE_NS)
        return;
    state->sampled_ns[1] = state->sampled_ns[0];
    state->sampled_busy_ns[1] = state->sampled_busy_ns[0];
    state->sampled_ns[0] = now;
    state->sampled_busy_ns[0] = state->busy_ns;
}

uint64_t engine_enter(struct engine *engine, uint32_t gpu) {
    struct gpu *state = &engine->state->gpu[gpu];
    pthread_mutex_lock(&engine->mutex[gpu]);
    lock_byte(engine->fd, LOCK_GPU((off_t)gpu), F_WRLCK);
    timeline_repair(engine->state, state);
    uint64_t now = now_ns();
    if (now - state->reaped_ns > REAP_NS)
        engine_reap(engine, gpu);
    timeline_advance(engine->state, state, now);
    sample(state, now);
    const struct fault *fault = &engine->profile.faults[gpu];
    if (fault->xid != 0 && !state->planned && state->first_used_ns != 0 &&
        now - state->first_used_ns >= fault->after_ms * UINT64_C(1000000)) {
        state->planned = 1;
        engine_raise(engine, gpu, fault->xid, state->client[state->current].process);
    }
    return now;
}

void engine_leave(struct engine *engine, uint32_t gpu) {
    lock_byte(engine->fd, LOCK_GPU((off_t)gpu), F_UNLCK);
    pthread_mutex_unlock(&engine->mutex[gpu]);
}

/* ---- processes ---------------------------------------------------------- */

bool engine_process_alive(const struct engine *engine, uint32_t record, pid_t *pid) {
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCK_LIFE((off_t)record), .l_len = 1};
    if (record_lock(engine->fd, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK)
        return false;
    *pid = lock.l_pid > 0 ? lock.l_pid : 0;
    return true;
}

bool engine_process_lives(const struct engine *engine, uint64_t process) {
    pid_t pid;
    uint32_t record = (uint32_t)((process - 1) % PROCESSES_MAX);
    return process != 0 && engine->state->process[record].id == process &&
           (process == engine->process || engine_process_alive(engine, record, &pid));
}

void engine_reap(struct engine *engine, uint32_t gpu) {
    struct gpu *state = &engine->state->gpu[gpu];
    state->reaped_ns = now_ns();
    for (uint32_t i = next_client(state, 0); i < CLIENTS_MAX; i = next_client(state, i + 1)) {
        const struct client *client = &state->client[i];
        pid_t pid;
        if (client->process == engine->process && engine->process != 0)
            continue;
        if (engine->state->process[client->record].id == client->process &&
            engine_process_alive(engine, client->record, &pid))
            continue;
        state->attached[i / 64] &= ~(UINT64_C(1) << (i % 64));
    }
}

/* A place in the list for this process: the one that was left longest ago by a dead one. */
static bool join_processes(struct engine *engine) {
    struct state *state = engine->state;
    bool joined = false;
    lock_byte(engine->fd, LOCK_PROCESSES, F_WRLCK);
    for (uint32_t tried = 0; tried < PROCESSES_MAX && !joined; tried++) {
        uint32_t record = (uint32_t)((state->last_process + tried) % PROCESSES_MAX);
        struct flock life = {.l_type = F_WRLCK,
                             .l_whence = SEEK_SET,
                             .l_start = LOCK_LIFE((off_t)record),
                             .l_len = 1};
        /* A lock of the process, not of the open file: only those carry a pid for others to see. */
        if (record_lock(engine->fd, F_SETLK, &life) != 0)
            continue;
        struct utsname names;
        struct process *process = &state->process[record];
        memset(process, 0, sizeof *process);
        process->pid = (uint32_t)getpid();
        prctl(PR_GET_NAME, process->comm);
        if (uname(&names) == 0)
            snprintf(process->host, sizeof process->host, "%.63s", names.nodename);
        engine->record = record;
        engine->process = state->last_process + tried + 1;
        state->last_process = engine->process;
        atomic_signal_fence(memory_order_seq_cst);
        process->id = engine->process;
        joined = true;
    }
    lock_byte(engine->fd, LOCK_PROCESSES, F_UNLCK);
    return joined;
}

bool engine_attach(struct engine *engine, uint32_t gpu, uint32_t *client) {
    struct gpu *state = &engine->state->gpu[gpu];
    if (engine->process == 0 && !join_processes(engine))
        return false;
    uint64_t now = engine_enter(engine, gpu);
    if (state->first_used_ns == 0)
        state->first_used_ns = now;
    engine_reap(engine, gpu);
    uint32_t free = 0;
    while (free < CLIENTS_MAX && (state->attached[free / 64] >> (free % 64) & 1) != 0)
        free++;
    if (free < CLIENTS_MAX) {
        struct client *mine = &state->client[free];
        mine->process = engine->process;
        mine->record = engine->record;
        mine->memory_bytes = mine->submitted = mine->completed = 0;
        mine->ran_ns = 1; /* 0 is the time of what has not begun */
        mine->queues = 0;
        memset(mine->head, 0, sizeof mine->head);
        memset(mine->last, 0, sizeof mine->last);
        atomic_signal_fence(memory_order_seq_cst);
        state->attached[free / 64] |= UINT64_C(1) << (free % 64);
        *client = free;
    }
    engine_leave(engine, gpu);
    return free < CLIENTS_MAX;
}

/* ---- memory -------------------------------------------------------------- */

uint64_t engine_memory_used(const struct engine *engine, uint32_t gpu) {
    const struct gpu *state = &engine->state->gpu[gpu];
    uint64_t used = 0;
    for (uint32_t i = next_client(state, 0); i < CLIENTS_MAX; i = next_client(state, i + 1))
        used += state->client[i].memory_bytes;
    return used;
}

/* How much a GPU gives out: all of its memory, unless the profile plans a fault. */
static uint64_t memory_to_be_had(const struct engine *engine, uint32_t gpu) {
    uint64_t all = engine->state->gpu[gpu].memory_bytes;
    uint64_t most = (uint64_t)engine->profile.faults[gpu].memory << 20;
    return most != 0 && most < all ? most : all;
}

bool engine_allocate(struct engine *engine, uint32_t gpu, uint32_t client, uint64_t bytes) {
    struct gpu *state = &engine->state->gpu[gpu];
    state->allocations += 1;
    uint64_t most = memory_to_be_had(engine, gpu);
    if (bytes > most || state->allocations == engine->profile.faults[gpu].allocation)
        return false;
    if (engine_memory_used(engine, gpu) > most - bytes) {
        engine_reap(engine, gpu);
        if (engine_memory_used(engine, gpu) > most - bytes)
            return false;
    }
    state->client[client].memory_bytes += bytes;
    return true;
}

void engine_release(struct engine *engine, uint32_t gpu, uint32_t client, uint64_t bytes) {
    engine->state->gpu[gpu].client[client].memory_bytes -= bytes;
}

/* ---- errors ---------------------------------------------------------------- */

static bool takes_all(uint32_t xid) {
    return xid == XID_DOUBLE_BIT || xid == XID_LOST || xid == XID_UNCONTAINED ||
           xid == XID_GSP_TIMED_OUT;
}

void engine_raise(struct engine *engine, uint32_t gpu, uint32_t xid, uint64_t process) {
    struct gpu *state = &engine->state->gpu[gpu];
    state->xid[state->xids % XIDS_MAX] = (struct xid){xid, 0, takes_all(xid) ? 0 : process};
    if (xid == XID_LOST)
        __atomic_store_n(&state->lost, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&state->xids, state->xids + 1, __ATOMIC_RELEASE);
}

/* ---- kernels ------------------------------------------------------------- */

bool engine_has_room(const struct engine *engine, uint32_t gpu, uint32_t client) {
    const struct client *mine = &engine->state->gpu[gpu].client[client];
    return mine->submitted - mine->completed < QUEUE_DEPTH;
}

uint64_t engine_submit(struct engine *engine, uint32_t gpu, uint32_t client, uint32_t queue,
                       uint64_t duration_ns, uint64_t after) {
    return timeline_submit(&engine->state->gpu[gpu].client[client], queue, duration_ns, after);
}

uint64_t engine_end_ns(const struct engine *engine, uint32_t gpu, uint32_t client,
                       uint64_t number) {
    return engine->state->gpu[gpu].client[client].kernel[(number - 1) % QUEUE_DEPTH].end_ns;
}

bool engine_completed(const struct engine *engine, uint32_t gpu, uint32_t client, uint64_t number) {
    return timeline_ended(&engine->state->gpu[gpu].client[client], number);
}

static void sleep_until(uint64_t wake_ns) {
    static _Thread_local bool precise;
    struct timespec wake = {(time_t)(wake_ns / 1000000000u), (long)(wake_ns % 1000000000u)};
    if (!precise) {
        prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
        precise = true;
    }
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL) == EINTR)
        ;
}

uint64_t engine_wake_ns(struct engine *engine, uint32_t gpu, uint32_t client, uint64_t number) {
    uint64_t wake = 0;
    if (engine_completed(engine, gpu, client, number))
        return 0;
    uint64_t now = engine_enter(engine, gpu);
    const struct gpu *state = &engine->state->gpu[gpu];
    if (!timeline_ended(&state->client[client], number)) {
        wake = timeline_predict(state, client, number);
        if (timeline_contended(state, client) && wake > now + RECHECK_NS)
            wake = now + RECHECK_NS;
    }
    engine_leave(engine, gpu);
    return wake;
}

void engine_wait(struct engine *engine, uint32_t gpu, uint32_t client, uint64_t number) {
    uint64_t wake;
    while ((wake = engine_wake_ns(engine, gpu, client, number)) != 0)
        sleep_until(wake);
}

void engine_wait_all(struct engine *engine, uint32_t gpu, uint32_t client, uint64_t number) {
    const struct client *mine = &engine->state->gpu[gpu].client[client];
    uint64_t completed;
    while ((completed = __atomic_load_n(&mine->completed, __ATOMIC_ACQUIRE)) < number)
        engine_wait(engine, gpu, client, completed + 1);
}
