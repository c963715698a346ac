/*
 * The gate: where a launch goes on at once, or waits for the claim's turn.
 *
 * The word of a gate is written by the daemon, in the page. Before the daemon
 * has welcomed this process, and while it is gone, the word is one of our own
 * instead: every gate is reached through a pointer, so the launch path is the
 * same in all cases: mark the thread as busy, look at the word, call the driver.
 *
 * The mark and the word work against each other as in Dekker's algorithm: a
 * thread marks itself, then looks; the agent sees the word closed, then looks
 * for marks. So when no mark is left after closing, nothing is on its way.
 */
#ifndef KS_GATE_H
#define KS_GATE_H

#include "driver.h"

#include "kubeshare_wire.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* The first words of a page's cell, or of a local gate. */
struct ks_gate {
    atomic_uint epoch;
    atomic_uint state; /* enum ks_gate_state */
};

static_assert(offsetof(struct ks_gate, epoch) == offsetof(struct ks_page_cell, epoch) &&
                  offsetof(struct ks_gate, state) == offsetof(struct ks_page_cell, gate_state),
              "a cell of the page is a gate");

/* One thread's mark, on cache lines of its own. */
struct ks_mark {
    alignas(64) atomic_uint depth; /* calls of the driver that the thread is inside */
    atomic_int thread;             /* the kernel's number of its owner; 0 = free */
    _Atomic uint64_t launches[KS_CELLS_MAX];
};

extern _Thread_local struct ks_mark *ks_thread_mark __attribute__((tls_model("initial-exec")));

/* Where every launch looks: the gate of a claim with one GPU. A closed one where there are more
 * GPUs, where launches are metered, or while a graph is captured. */
extern const struct ks_gate *_Atomic ks_only_gate;

CUresult ks_enter_slowly(CUstream stream);

/* Passes the gate with work for a stream. Anything but CUDA_SUCCESS is the answer to the
 * application; otherwise the launch must be followed by ks_leave(). */
static inline CUresult ks_enter(CUstream stream) {
    struct ks_mark *mark = ks_thread_mark;
    if (__builtin_expect(mark == NULL, 0))
        return ks_enter_slowly(stream);
    const unsigned depth = atomic_load_explicit(&mark->depth, memory_order_relaxed);
    atomic_store(&mark->depth, depth + 1);
    const struct ks_gate *gate = atomic_load_explicit(&ks_only_gate, memory_order_acquire);
    if (__builtin_expect(atomic_load(&gate->state) == KS_GATE_OPEN, 1)) {
        const uint64_t count = atomic_load_explicit(&mark->launches[0], memory_order_relaxed);
        atomic_store_explicit(&mark->launches[0], count + 1, memory_order_relaxed);
        return CUDA_SUCCESS;
    }
    if (depth > 0)
        return CUDA_SUCCESS; /* the driver calls itself: waiting here would hold up our own drain */
    atomic_store_explicit(&mark->depth, 0, memory_order_release);
    return ks_enter_slowly(stream);
}

static inline void ks_leave(void) {
    struct ks_mark *mark = ks_thread_mark;
    const unsigned depth = atomic_load_explicit(&mark->depth, memory_order_relaxed);
    atomic_store_explicit(&mark->depth, depth - 1, memory_order_release);
}

/* Lets every cell follow the page (true) or the local gates (false), which are closed first. */
void ks_gates_follow_page(bool page);

/* After a meter was turned on or off, and after the first capture began or the last one ended. */
void ks_gates_refresh(void);

/* Opens or closes a local gate. */
void ks_gate_set_local(unsigned cell, enum ks_gate_state state);

/* Launches of this process on a cell since it started. */
uint64_t ks_launches(unsigned cell);

/* Whether some thread is inside a launch now. When none is and the gates are closed, none will be.
 */
bool ks_is_launching(void);

/* In a forked child: no thread but this one, nothing launched, gates shut. */
void ks_gates_forget(void);

#endif
