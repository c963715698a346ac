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

/*
 * A launch that would wait until its mark is visible to all, before it looks at the gate, would
 * take twice as long. So the side that is seldom has that barrier for both: membarrier(2) is one in
 * every thread of this process. Either it comes before a thread's mark, and the thread then sees
 * the gate closed; or behind it, and the mark is seen. Where the kernel has no such call, until the
 * agent has registered for it, and once it fails, each launch has a barrier of its own.
 */
extern atomic_bool ks_marks_have_barrier;

/* From now on launches leave the barrier to ks_marks_barrier(), if the kernel can have it. */
void ks_marks_leave_barrier(void);

/* After a gate was closed, and before its marks are looked at: all that pass it later see it
 * closed, all others have marks that can be seen. */
void ks_marks_barrier(void);

/* Before the thread looks at its gate. */
static inline void ks_mark_inside(struct ks_mark *mark, unsigned depth) {
    if (__builtin_expect(atomic_load_explicit(&ks_marks_have_barrier, memory_order_relaxed), 1))
        atomic_store_explicit(&mark->depth, depth, memory_order_release);
    else
        atomic_store(&mark->depth, depth);
    atomic_signal_fence(memory_order_seq_cst);
}

/* The calling thread's mark, which it gets if it has none; NULL if there is no memory for one. */
struct ks_mark *ks_marks_own(void);

/* Launches of this process on a cell since it started. */
uint64_t ks_launches(unsigned cell);

/* Whether a thread is inside a launch on a cell now. If none is, the cell's gate is closed and
 * ks_marks_barrier() was called since it was, none will be. */
bool ks_is_launching(unsigned cell);

/* In a forked child: only this thread is left, and it has launched nothing. */
void ks_marks_forget(void);

#endif
