/*
 * A session without a daemon may use its GPU during a window of each period of
 * 100 ms: as much of it as it requested. The window lies at the same time for
 * all processes of a session, so together they get no more than one would, and
 * at another time for every session. Work that the GPU still had to do after
 * the gate closed uses up the session's own windows that it reaches into; the
 * time between them is a debt, and shortens the next window.
 *
 * Work that does not end may be waiting for a launch at the closed gate. After
 * a while the gate opens for the next window whatever the debt, which keeps
 * growing.
 */
#include "gate/duty.h"

#include "gate/drain.h"
#include "gate/gate.h"
#include "gate/meter.h"
#include "session.h"
#include "system.h"

#define PERIOD (100 * KS_MILLISECOND)

/* A session that requested nothing still makes progress. */
#define LEAST_REQUEST_MICROS 10000

/* Between two checks of work that continues after its window. */
#define DRAIN_CHECK_INTERVAL (KS_MILLISECOND / 5)

/* Work that takes longer may be waiting for a launch. */
#define DRAIN_TIMEOUT (2 * PERIOD)

struct duty {
    enum ks_gate_state state;
    int64_t closes_at;   /* while CLOSING: when it closed */
    int64_t debt;        /* ns of GPU time used outside the session's windows */
    int64_t last_window; /* start of the last one that was used or paid a debt */
};

static struct duty duties[KS_CELLS_MAX];

static int64_t window_length(unsigned cell) {
    uint32_t micros = ks_session_cell(cell)->request_micros;
    if (micros < LEAST_REQUEST_MICROS)
        micros = LEAST_REQUEST_MICROS;
    return micros >= 1000000 ? PERIOD : PERIOD * micros / 1000000;
}

/* Where in the period the session's window begins: spread by the golden ratio. */
static int64_t offset_of_session(void) {
    const uint64_t spread = ks_session_number() * UINT64_C(0x9e3779b97f4a7c15);
    return (int64_t)(spread >> 32) % PERIOD;
}

/* The total length of the session's windows from the clock's zero up to `time`. */
static int64_t windows_until(unsigned cell, int64_t time) {
    const int64_t length = window_length(cell);
    const int64_t since_offset = time - offset_of_session();
    const int64_t into = since_offset % PERIOD;
    return since_offset / PERIOD * length + (into < length ? into : length);
}

/* Charges work that went on until `end` after the gate had closed. What was left of that window has
 * paid a debt already: only later windows are the session's own. */
static void charge(struct duty *duty, unsigned cell, int64_t end) {
    const int64_t closed = duty->closes_at;
    const int64_t next_window = closed + PERIOD - 1 - (closed - offset_of_session() - 1) % PERIOD;
    const int64_t own = windows_until(cell, end) - windows_until(cell, next_window);
    if (end > closed)
        duty->debt += end - closed - (own > 0 ? own : 0);
}

static void set_state(struct duty *duty, unsigned cell, enum ks_gate_state state) {
    duty->state = state;
    ks_gate_set_local(cell, state);
}

static void open_until(struct duty *duty, unsigned cell, int64_t closes_at) {
    duty->closes_at = closes_at;
    set_state(duty, cell, KS_GATE_OPEN);
}

/* Opens the gate in the session's window unless the debt uses it up. Returns when to step again. */
static int64_t step_closed(struct duty *duty, unsigned cell, int64_t now, int64_t start) {
    const int64_t left = start + window_length(cell) - now;
    if (ks_session_is_revoked() || duty->last_window == start || left <= 0)
        return start + PERIOD;
    duty->last_window = start;
    if (duty->debt >= left) { /* the window pays it */
        duty->debt -= left;
        return start + PERIOD;
    }
    open_until(duty, cell, now + left - duty->debt);
    duty->debt = 0;
    return duty->closes_at;
}

static int64_t step_closing(struct duty *duty, unsigned cell, int64_t now, int64_t start) {
    int64_t end;
    const bool is_done = !ks_is_launching(cell) && ks_settle(cell, &end);
    if (is_done) {
        charge(duty, cell, end);
        set_state(duty, cell, KS_GATE_CLOSED);
        return step_closed(duty, cell, now, start);
    }
    if (now - duty->closes_at > DRAIN_TIMEOUT && now < start + window_length(cell)) {
        charge(duty, cell, now);
        duty->last_window = start;
        open_until(duty, cell, start + window_length(cell));
        return duty->closes_at;
    }
    return now + DRAIN_CHECK_INTERVAL;
}

static int64_t step(unsigned cell, int64_t now) {
    struct duty *duty = &duties[cell];
    const int64_t start = now - (now - offset_of_session()) % PERIOD;
    if (duty->state == KS_GATE_CLOSED)
        return step_closed(duty, cell, now, start);
    if (duty->state == KS_GATE_OPEN) {
        if (now < duty->closes_at)
            return duty->closes_at;
        set_state(duty, cell, KS_GATE_CLOSING);
        ks_marks_barrier();
    }
    return step_closing(duty, cell, now, start);
}

/* Returns when the next cell needs a step; `none` if no cell does before that time. */
static int64_t step_all(int64_t now, int64_t none) {
    int64_t next = none;
    for (unsigned cell = 0; cell < ks_session_cells(); cell++) {
        const int64_t again = step(cell, now);
        next = again < next ? again : next;
    }
    return next;
}

static bool any_is_open(void) {
    for (unsigned cell = 0; cell < ks_session_cells(); cell++) {
        if (duties[cell].state != KS_GATE_CLOSED)
            return true;
    }
    return false;
}

/* Work that is not over is charged up to now. */
static void close_all(int64_t now) {
    for (unsigned cell = 0; cell < ks_session_cells(); cell++) {
        struct duty *duty = &duties[cell];
        if (duty->state != KS_GATE_CLOSED)
            charge(duty, cell, now);
        set_state(duty, cell, KS_GATE_CLOSED);
    }
}

void ks_duty_until(int64_t deadline) {
    int64_t now = ks_now();
    ks_gates_follow_page(false);
    for (unsigned cell = 0; cell < ks_session_cells(); cell++)
        ks_meter_set(cell, true);
    while (now < deadline || (any_is_open() && now < deadline + PERIOD + DRAIN_TIMEOUT)) {
        const int64_t next = step_all(now, now < deadline ? deadline : INT64_MAX);
        const int64_t pause = next - ks_now(); /* the steps took time */
        if (pause > 0)
            ks_sleep(pause);
        now = ks_now();
    }
    close_all(now);
}
