/*
 * A lock between the threads of this process, and the order in which locks are taken.
 *
 * pthread mutexes are not used: before glibc 2.34 they do nothing until
 * libpthread is loaded, which the driver may do after the library's first lock.
 *
 * A thread that holds a lock may wait only for locks further down in this list,
 * and never for a second one with the same rank:
 *
 *   rank          of                          taken further down while it is held
 *   SESSION       opening the session
 *   METER         one cell's credits          CONTEXTS (without waiting), FAST_PATH
 *   CAPTURE       the open captures           CONTEXTS, FAST_PATH
 *   DRAIN         the ends of work            CONTEXTS, MARKS
 *   CONTEXTS      the list of contexts
 *   POOLS         the list of pools           RESERVE
 *   RESERVE       one reserve                 ALLOCATIONS, SLOTS
 *   ALLOCATIONS   one table of allocations
 *   SLOTS         the counters of the session; the record lock of their file is taken next; OPENING
 *   OPENING       the file of those locks, while it is opened or the process forks
 *   MARKS         the list of marks
 *   FAST_PATH     the choice of the fast gate
 *   CONNECTION    the socket to the daemon
 *
 * CAPTURE, CONTEXTS and RESERVE are held while the driver is called, and the driver has locks of
 * its own; it never calls the library back while it holds them. A thread that waits for its turn
 * holds none of these.
 *
 * `make asan` and `make tsan` build a library that stops with a message where a
 * thread breaks this order.
 */
#ifndef KS_LOCK_H
#define KS_LOCK_H

#include "system.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum ks_lock_rank {
    KS_LOCK_SESSION,
    KS_LOCK_METER,
    KS_LOCK_CAPTURE,
    KS_LOCK_DRAIN,
    KS_LOCK_CONTEXTS,
    KS_LOCK_POOLS,
    KS_LOCK_RESERVE,
    KS_LOCK_ALLOCATIONS,
    KS_LOCK_SLOTS,
    KS_LOCK_OPENING,
    KS_LOCK_MARKS,
    KS_LOCK_FAST_PATH,
    KS_LOCK_CONNECTION,
};

/* 0: free, 1: held, 2: held and waited for. */
typedef struct {
    atomic_uint state;
#ifdef KS_CHECK_LOCK_ORDER
    enum ks_lock_rank rank; /* of a lock that is held */
#endif
} ks_lock;

#ifdef KS_CHECK_LOCK_ORDER

#include <stdio.h>

/* The ranks that the thread holds: bits. Weak: one for all files. */
__attribute__((weak, visibility("hidden"))) _Thread_local unsigned ks_held_ranks;

static inline void ks_check_order(enum ks_lock_rank rank) {
    if (ks_held_ranks >> rank != 0) {
        fprintf(stderr, "lock order: rank %d is waited for while ranks %#x are held\n", (int)rank,
                ks_held_ranks);
        __builtin_trap();
    }
}

static inline void ks_note_held(ks_lock *lock, enum ks_lock_rank rank) {
    lock->rank = rank;
    ks_held_ranks |= 1u << rank;
}

static inline void ks_note_released(const ks_lock *lock) {
    ks_held_ranks &= ~(1u << lock->rank);
}

#else

static inline void ks_check_order(enum ks_lock_rank rank) {
    (void)rank;
}

static inline void ks_note_held(ks_lock *lock, enum ks_lock_rank rank) {
    (void)lock;
    (void)rank;
}

static inline void ks_note_released(const ks_lock *lock) {
    (void)lock;
}

#endif

static inline void ks_acquire(ks_lock *lock, enum ks_lock_rank rank) {
    uint32_t seen = 0;
    ks_check_order(rank);
    if (!atomic_compare_exchange_strong(&lock->state, &seen, 1)) {
        while (atomic_exchange(&lock->state, 2) != 0)
            ks_wait(&lock->state, 2, KS_SECOND);
    }
    ks_note_held(lock, rank);
}

/* Does not wait, so the order does not matter. False: another thread holds the lock. */
static inline bool ks_try_acquire(ks_lock *lock, enum ks_lock_rank rank) {
    uint32_t seen = 0;
    const bool taken = atomic_compare_exchange_strong(&lock->state, &seen, 1);
    if (taken)
        ks_note_held(lock, rank);
    return taken;
}

static inline void ks_release(ks_lock *lock) {
    ks_note_released(lock);
    if (atomic_exchange(&lock->state, 0) == 2)
        ks_wake(&lock->state);
}

#endif
