/*
 * One mark per thread: whether it is inside a launch, and how many it has made.
 */
#ifndef KS_MARKS_H
#define KS_MARKS_H

#include "kubeshare_wire.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* One thread's mark, on cache lines of its own. */
struct ks_mark {
    alignas(64) atomic_uint depth; /* calls of the driver that the thread is inside */
    atomic_int thread;             /* the kernel's thread ID of its owner; 0: free */
    atomic_uint cell;              /* of the launch that it is inside; KS_CELLS_MAX: of any */
    _Atomic uint64_t launches[KS_CELLS_MAX];
};

/* The calling thread's mark; NULL before its first launch. */
extern _Thread_local struct ks_mark *ks_thread_mark __attribute__((tls_model("initial-exec")));

/* The calling thread's mark, which it gets if it has none; NULL if there is no memory for one. */
struct ks_mark *ks_marks_own(void);

/* Launches of this process on a cell since it started. */
uint64_t ks_launches(unsigned cell);

/* Whether a thread is inside a launch on a cell now. If none is and the cell's gate is closed, none
 * will be. */
bool ks_is_launching(unsigned cell);

/* In a forked child: only this thread is left, and it has launched nothing. */
void ks_marks_forget(void);

#endif
