#include "gate/fast_path.h"

#include "lock.h"
#include "system.h"

const struct ks_gate ks_closed_gate = {.state = KS_GATE_CLOSED};

static ks_lock lock;
static const struct ks_gate *only_gate = &ks_closed_gate;

const struct ks_gate *_Atomic ks_fast_gate = &ks_closed_gate;
atomic_uint ks_fast_path_blockers;

/* With the lock held. */
static void choose(void) {
    const bool is_blocked = atomic_load(&ks_fast_path_blockers) != 0;
    atomic_store(&ks_fast_gate, is_blocked ? &ks_closed_gate : only_gate);
}

void ks_fast_path_set_gate(const struct ks_gate *gate) {
    ks_acquire(&lock, KS_LOCK_FAST_PATH);
    only_gate = gate;
    choose();
    ks_release(&lock);
}

void ks_fast_path_block(enum ks_fast_path_blocker blocker, bool on) {
    ks_acquire(&lock, KS_LOCK_FAST_PATH);
    if (on)
        atomic_fetch_or(&ks_fast_path_blockers, (unsigned)blocker);
    else
        atomic_fetch_and(&ks_fast_path_blockers, ~(unsigned)blocker);
    choose();
    ks_release(&lock);
}

void ks_fast_path_forget(void) {
    lock = (ks_lock){0};
    only_gate = &ks_closed_gate;
    atomic_store(&ks_fast_path_blockers, 0);
    choose();
}
