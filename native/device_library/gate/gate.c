#include "gate/gate.h"

#include "context.h"
#include "gate/capture.h"
#include "gate/meter.h"
#include "session.h"
#include "system.h"

/* A wake-up may go to a gate that the waiting thread no longer uses: it checks again after this. */
#define RECHECK_INTERVAL (100 * KS_MILLISECOND)

static struct ks_gate local_gates[KS_CELLS_MAX];
static const struct ks_gate *_Atomic gates[KS_CELLS_MAX];
static const struct ks_gate_agent *_Atomic agent;

static const struct ks_gate *gate_of(unsigned cell) {
    const struct ks_gate *gate = atomic_load(&gates[cell]);
    return gate != NULL ? gate : &ks_closed_gate;
}

void ks_gates_set_agent(const struct ks_gate_agent *new_agent) {
    atomic_store(&agent, new_agent);
}

void ks_gates_follow_page(bool page) {
    const unsigned cells = ks_session_cells();
    for (unsigned cell = 0; cell < cells; cell++) {
        const struct ks_gate *next = &local_gates[cell];
        if (page)
            next = (const struct ks_gate *)ks_session_cell(cell);
        else
            ks_gate_set_local(cell, KS_GATE_CLOSED);
        const struct ks_gate *previous = gate_of(cell);
        atomic_store(&gates[cell], next);
        if (cells == 1)
            ks_fast_path_set_gate(next);
        ks_wake(&previous->epoch);
    }
}

void ks_gate_set_local(unsigned cell, enum ks_gate_state state) {
    atomic_store(&local_gates[cell].state, state);
    atomic_fetch_add(&local_gates[cell].epoch, 1);
    ks_wake(&local_gates[cell].epoch);
}

enum passage { PASSED, GATE_CLOSED, NO_CREDIT };

static enum passage try_to_pass(struct ks_mark *mark, const struct ks_gate *gate, unsigned cell) {
    enum passage passage = GATE_CLOSED;
    atomic_store_explicit(&mark->cell, cell, memory_order_relaxed);
    atomic_fetch_add(&mark->depth, 1);
    if (atomic_load(&gate->state) == KS_GATE_OPEN)
        passage = !ks_meter_is_on(cell) || ks_meter_take(cell) ? PASSED : NO_CREDIT;
    if (passage == PASSED)
        atomic_fetch_add_explicit(&mark->launches[cell], 1, memory_order_release);
    else
        atomic_fetch_sub(&mark->depth, 1);
    return passage;
}

static void wait_at(const struct ks_gate *gate, unsigned cell, uint32_t epoch) {
    if (gate == (const struct ks_gate *)ks_session_cell(cell))
        atomic_load(&agent)->want(cell, epoch);
    ks_wait(&gate->epoch, epoch, RECHECK_INTERVAL);
}

/* Waits until the launch may proceed; false if the grant was revoked. */
static bool pass(struct ks_mark *mark, unsigned cell) {
    while (!ks_session_is_revoked()) {
        const struct ks_gate *gate = gate_of(cell);
        const uint32_t epoch = atomic_load(&gate->epoch);
        switch (try_to_pass(mark, gate, cell)) {
        case PASSED:
            return true;
        case GATE_CLOSED:
            wait_at(gate, cell, epoch);
            break;
        case NO_CREDIT:
            ks_meter_wait(cell);
            break;
        }
    }
    return false;
}

CUresult ks_enter_slowly(CUstream stream) {
    if (!ks_session_is_open())
        return CUDA_ERROR_NOT_PERMITTED;
    struct ks_mark *mark = ks_marks_own();
    int cell = 0;
    if (mark == NULL || !atomic_load(&agent)->start())
        return CUDA_ERROR_NOT_PERMITTED;
    if (atomic_load(&mark->depth) > 0 || (ks_session_cells() > 1 && !ks_current_cell(&cell)) ||
        ks_is_captured(stream)) {
        if (atomic_load(&mark->depth) == 0)
            atomic_store_explicit(&mark->cell, KS_CELLS_MAX, memory_order_relaxed);
        atomic_fetch_add(&mark->depth, 1);
        return CUDA_SUCCESS; /* inside the driver, without a context, or not to run now */
    }
    if (cell == KS_NO_CELL || !pass(mark, (unsigned)cell))
        return CUDA_ERROR_NOT_PERMITTED;
    return CUDA_SUCCESS;
}

void ks_gates_forget(void) {
    for (unsigned cell = 0; cell < KS_CELLS_MAX; cell++)
        atomic_store(&gates[cell], NULL);
}
