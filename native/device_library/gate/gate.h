/*
 * The gate: a launch passes it at once, or waits there for the session's turn.
 *
 * The daemon writes a gate's state into the page. Before the daemon has
 * welcomed this process, and while it is away, the state is in memory of this
 * process instead. Every gate is reached through a pointer, so the launch path
 * is always the same: mark the thread, check the state, call the driver.
 *
 * Mark and state work as in Dekker's algorithm: a thread sets its mark, then
 * checks the state; the agent sees the state closed, then checks the marks. So
 * once no mark is left after closing, no launch is on its way to the driver.
 * The barrier between the two steps of a thread is the agent's to have (marks.h).
 */
#ifndef KS_GATE_H
#define KS_GATE_H

#include "driver.h"
#include "gate/fast_path.h"
#include "gate/marks.h"

#include <stdatomic.h>
#include <stdbool.h>

/* What the gate needs of the thread that speaks with the daemon; agent.h explains the calls. */
struct ks_gate_agent {
    bool (*start)(void);
    void (*want)(unsigned cell, uint32_t epoch);
};

/* Called before the session is open; a launch before that is refused. */
void ks_gates_set_agent(const struct ks_gate_agent *agent);

CUresult ks_enter_slowly(CUstream stream);

/* Passes the gate with work for a stream. Any result but CUDA_SUCCESS goes to the application;
 * after CUDA_SUCCESS the caller must call ks_leave() behind the launch. */
static inline CUresult ks_enter(CUstream stream) {
    struct ks_mark *mark = ks_thread_mark;
    if (__builtin_expect(mark == NULL, 0))
        return ks_enter_slowly(stream);
    const unsigned depth = atomic_load_explicit(&mark->depth, memory_order_relaxed);
    ks_mark_inside(mark, depth + 1);
    const struct ks_gate *gate = atomic_load_explicit(&ks_fast_gate, memory_order_acquire);
    if (__builtin_expect(atomic_load(&gate->state) == KS_GATE_OPEN, 1)) {
        const uint64_t count = atomic_load_explicit(&mark->launches[0], memory_order_relaxed);
        atomic_store_explicit(&mark->launches[0], count + 1, memory_order_release);
        return CUDA_SUCCESS;
    }
    if (depth > 0)
        return CUDA_SUCCESS; /* the driver calls itself: waiting here would block our own drain */
    atomic_store_explicit(&mark->depth, 0, memory_order_release);
    return ks_enter_slowly(stream);
}

static inline void ks_leave(void) {
    struct ks_mark *mark = ks_thread_mark;
    const unsigned depth = atomic_load_explicit(&mark->depth, memory_order_relaxed);
    atomic_store_explicit(&mark->depth, depth - 1, memory_order_release);
}

/* Makes every cell follow the page (true) or its local gate (false), which is closed first. */
void ks_gates_follow_page(bool page);

/* Opens or closes a local gate. */
void ks_gate_set_local(unsigned cell, enum ks_gate_state state);

/* In a forked child: all gates are closed. */
void ks_gates_forget(void);

#endif
