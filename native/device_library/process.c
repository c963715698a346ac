#include "process.h"

#include "agent.h"
#include "context.h"
#include "gate/capture.h"
#include "gate/drain.h"
#include "gate/gate.h"
#include "gate/meter.h"
#include "memory/allocations.h"
#include "memory/charge.h"
#include "memory/graphs.h"
#include "memory/pools.h"
#include "memory/tiles.h"
#include "session.h"
#include "slots.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

/* pthread_atfork calls this; pthread_atfork itself is no part of libc before glibc 2.34. Weak: musl
 * has none, and its programs must start all the same. */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                             void *object) __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

static const struct ks_gate_agent agent = {.start = ks_agent_start, .want = ks_agent_want};

static void drop_captures(CUcontext context, uint64_t before) {
    (void)before;
    ks_captures_drop(context);
}

static ks_context_listener *const context_listeners[] = {
    ks_memory_of_context_ended,
    drop_captures,
    NULL,
};

/* Only the thread that forked exists in the child: locks of the others would never be released, and
 * the agent, its connection and the slot belong to the parent. */
static void start_clean(void) {
    ks_meter_forget();
    ks_gates_forget();
    ks_fast_path_forget();
    ks_marks_forget();
    ks_agent_forget();
    ks_drain_forget();
    ks_contexts_forget();
    ks_captures_forget();
    ks_graphs_forget();
    ks_pools_forget();
    ks_tiles_forget();
    ks_allocations_forget();
    ks_slots_forget();
}

/* Two threads may register twice: it does no harm to start clean twice, nor to close twice. */
static void register_handlers(void) {
    static atomic_bool registered;
    if (atomic_load(&registered))
        return;
    if (&__register_atfork != NULL)
        __register_atfork(ks_slots_before_fork, ks_slots_after_fork, start_clean, &__dso_handle);
    atexit(ks_contexts_close);
    atomic_store(&registered, true);
}

bool ks_process_start(void) {
    ks_gates_set_agent(&agent);
    ks_contexts_set_listeners(context_listeners);
    if (!ks_session_open())
        return false;
    register_handlers();
    return true;
}
