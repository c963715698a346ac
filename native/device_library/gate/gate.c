#include "gate/gate.h"

#include "agent.h"
#include "context.h"
#include "gate/capture.h"
#include "gate/meter.h"
#include "session.h"
#include "system.h"

#include <errno.h>
#include <sys/mman.h>

/* How long a wait may miss a wake-up that went to a word it no longer looks at. */
#define RECHECK (100 * KS_MILLISECOND)

#define MARKS_PER_CHUNK 64

struct chunk {
    struct chunk *next;
    struct ks_mark marks[MARKS_PER_CHUNK];
};

static const struct ks_gate shut_gate = {.state = KS_GATE_CLOSED};
static struct ks_gate local_gates[KS_CELLS_MAX];
static const struct ks_gate *_Atomic gates[KS_CELLS_MAX];

static struct chunk first_chunk;
static ks_lock chunks_lock;
static ks_lock refreshing; /* the only gate */

_Thread_local struct ks_mark *ks_thread_mark;
const struct ks_gate *_Atomic ks_only_gate = &shut_gate;

/* ---- marks ------------------------------------------------------------ */

static bool is_dead(int thread) {
    return syscall(SYS_tgkill, getpid(), thread, 0) != 0 && errno == ESRCH;
}

static struct ks_mark *take_free_mark(int thread) {
    for (struct chunk *chunk = &first_chunk; chunk != NULL; chunk = chunk->next) {
        for (unsigned i = 0; i < MARKS_PER_CHUNK; i++) {
            int owner = 0;
            if (atomic_compare_exchange_strong(&chunk->marks[i].thread, &owner, thread))
                return &chunk->marks[i];
        }
    }
    return NULL;
}

/* Threads end without telling: their marks are found when no other is free. */
static void free_marks_of_the_dead(void) {
    for (struct chunk *chunk = &first_chunk; chunk != NULL; chunk = chunk->next) {
        for (unsigned i = 0; i < MARKS_PER_CHUNK; i++) {
            struct ks_mark *mark = &chunk->marks[i];
            if (atomic_load(&mark->thread) != 0 && is_dead(atomic_load(&mark->thread))) {
                atomic_store(&mark->depth, 0);
                atomic_store(&mark->thread, 0);
            }
        }
    }
}

static bool add_chunk(void) {
    struct chunk *chunk =
        mmap(NULL, sizeof *chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (chunk == MAP_FAILED)
        return false;
    struct chunk *last = &first_chunk;
    while (last->next != NULL)
        last = last->next;
    last->next = chunk;
    return true;
}

static struct ks_mark *own_mark(void) {
    if (ks_thread_mark != NULL)
        return ks_thread_mark;
    const int thread = (int)syscall(SYS_gettid);
    ks_acquire(&chunks_lock);
    ks_thread_mark = take_free_mark(thread);
    if (ks_thread_mark == NULL) {
        free_marks_of_the_dead();
        ks_thread_mark = take_free_mark(thread);
    }
    if (ks_thread_mark == NULL && add_chunk())
        ks_thread_mark = take_free_mark(thread);
    ks_release(&chunks_lock);
    return ks_thread_mark;
}

uint64_t ks_launches(unsigned cell) {
    uint64_t launches = 0;
    ks_acquire(&chunks_lock);
    for (struct chunk *chunk = &first_chunk; chunk != NULL; chunk = chunk->next) {
        for (unsigned i = 0; i < MARKS_PER_CHUNK; i++)
            launches += atomic_load_explicit(&chunk->marks[i].launches[cell], memory_order_relaxed);
    }
    ks_release(&chunks_lock);
    return launches;
}

/* With the lock held. */
static bool any_is_busy(void) {
    for (struct chunk *chunk = &first_chunk; chunk != NULL; chunk = chunk->next) {
        for (unsigned i = 0; i < MARKS_PER_CHUNK; i++) {
            if (atomic_load(&chunk->marks[i].depth) != 0)
                return true;
        }
    }
    return false;
}

bool ks_is_launching(void) {
    static int64_t looked_for_dead;
    ks_acquire(&chunks_lock);
    bool is_busy = any_is_busy();
    if (is_busy && ks_now() - looked_for_dead > KS_MILLISECOND) {
        free_marks_of_the_dead(); /* a thread that was cancelled inside a launch */
        looked_for_dead = ks_now();
        is_busy = any_is_busy();
    }
    ks_release(&chunks_lock);
    return is_busy;
}

/* ---- gates ------------------------------------------------------------ */

static const struct ks_gate *gate_of(unsigned cell) {
    const struct ks_gate *gate = atomic_load(&gates[cell]);
    return gate != NULL ? gate : &shut_gate;
}

void ks_gates_follow_page(bool page) {
    const unsigned cells = ks_session_cells();
    for (unsigned cell = 0; cell < cells; cell++) {
        const struct ks_gate *next = &local_gates[cell];
        if (page)
            next = (const struct ks_gate *)ks_session_cell(cell);
        else
            ks_gate_set_local(cell, KS_GATE_CLOSED);
        const struct ks_gate *before = gate_of(cell);
        atomic_store(&gates[cell], next);
        ks_gates_refresh();
        ks_wake(&before->epoch);
    }
}

void ks_gate_set_local(unsigned cell, enum ks_gate_state state) {
    atomic_store(&local_gates[cell].state, state);
    atomic_fetch_add(&local_gates[cell].epoch, 1);
    ks_wake(&local_gates[cell].epoch);
}

void ks_gates_refresh(void) {
    ks_acquire(&refreshing);
    const bool is_only = ks_session_cells() == 1 && !ks_meter_is_on(0) && !ks_is_capturing();
    atomic_store(&ks_only_gate, is_only ? gate_of(0) : &shut_gate);
    ks_release(&refreshing);
}

enum passage { PASSED, GATE_CLOSED, NO_CREDIT };

/* The meter needs events, which have to wait for the end of a capture; who captures may be waiting
 * for the launch. */
static bool is_metered(unsigned cell) {
    return ks_meter_is_on(cell) && !ks_is_capturing();
}

static enum passage try_to_pass(struct ks_mark *mark, const struct ks_gate *gate, unsigned cell) {
    enum passage passage = GATE_CLOSED;
    atomic_fetch_add(&mark->depth, 1);
    if (atomic_load(&gate->state) == KS_GATE_OPEN)
        passage = !is_metered(cell) || ks_meter_take(cell) ? PASSED : NO_CREDIT;
    if (passage == PASSED)
        atomic_fetch_add_explicit(&mark->launches[cell], 1, memory_order_relaxed);
    else
        atomic_fetch_sub(&mark->depth, 1);
    return passage;
}

static void wait_at(const struct ks_gate *gate, unsigned cell, uint32_t epoch) {
    if (gate == (const struct ks_gate *)ks_session_cell(cell))
        ks_agent_want(cell, epoch);
    ks_wait(&gate->epoch, epoch, RECHECK);
}

/* Waits until the launch may go; false when the grant was revoked. */
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
    struct ks_mark *mark = own_mark();
    int cell = 0;
    if (mark == NULL || !ks_agent_start())
        return CUDA_ERROR_NOT_PERMITTED;
    if (atomic_load(&mark->depth) > 0 || (ks_session_cells() > 1 && !ks_current_cell(&cell)) ||
        ks_is_captured(stream)) {
        atomic_fetch_add(&mark->depth, 1);
        return CUDA_SUCCESS; /* it is inside the driver, has no context, or does not run now */
    }
    if (cell == KS_NO_CELL || !pass(mark, (unsigned)cell))
        return CUDA_ERROR_NOT_PERMITTED;
    return CUDA_SUCCESS;
}

void ks_gates_forget(void) {
    first_chunk = (struct chunk){0};
    chunks_lock = (ks_lock){0};
    refreshing = (ks_lock){0};
    ks_thread_mark = NULL;
    atomic_store(&ks_only_gate, &shut_gate);
    for (unsigned cell = 0; cell < KS_CELLS_MAX; cell++) {
        atomic_store(&gates[cell], NULL);
    }
}
