#include "process.h"

#include "agent.h"
#include "context.h"
#include "gate/capture.h"
#include "gate/drain.h"
#include "gate/gate.h"
#include "gate/meter.h"
#include "memory/allocations.h"
#include "memory/graphs.h"
#include "memory/pools.h"
#include "memory/tiles.h"
#include "slots.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

/* What pthread_atfork calls. That one is no part of libc before glibc 2.34. Weak: musl has none,
 * and its programs must start all the same. */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                             void *object) __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

/* Only the thread that forked lives on: locks of the others would never be
 * released, and the agent, its connection and the slot are the parent's. */
static void start_clean(void) {
    ks_meter_forget();
    ks_gates_forget();
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

void ks_process_watch(void) {
    static atomic_flag done = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&done))
        return;
    if (&__register_atfork != NULL)
        __register_atfork(NULL, NULL, start_clean, &__dso_handle);
    atexit(ks_contexts_close);
}
