/*
 * A claim without a daemon may use its GPU during a part of each period of
 * 100 ms: the part that it requested. The part lies at the same time for all
 * processes of a claim, so together they get no more than one would, and at
 * another for every claim. What the GPU still had to do after the gate closed
 * uses up the claim's own parts that it reaches into; what lies between them is
 * a debt, taken off the next part.
 *
 * Work that does not come to an end may be waiting for a launch at the closed
 * gate. After a while the gate opens for the next part whatever is owed, and
 * what is owed goes on growing.
 */
#include "gate/duty.h"

#include "gate/drain.h"
#include "gate/gate.h"
#include "gate/meter.h"
#include "session.h"
#include "system.h"

#define PERIOD (100 * KS_MILLISECOND)

/* A claim that requested nothing still comes to its end some day. */
#define LEAST_MICROS 10000

/* Between two looks at work that goes on after the part's end. */
#define LOOK_EVERY (KS_MILLISECOND / 5)

/* That long it may go on before it is taken to be waiting. */
#define PATIENCE (2 * PERIOD)

struct part {
    enum ks_gate_state state;
    int64_t closes_at; /* CLOSING: closed at */
    int64_t debt;      /* ns of GPU time used outside the claim's parts */
    int64_t last;      /* start of the last part that was used or paid with */
};

static struct part parts[KS_CELLS_MAX];

static int64_t part_length(unsigned cell) {
    uint32_t micros = ks_session_cell(cell)->request_micros;
    if (micros < LEAST_MICROS)
        micros = LEAST_MICROS;
    return micros >= 1000000 ? PERIOD : PERIOD * micros / 1000000;
}

/* Where in the period this claim's part begins: spread by the golden ratio. */
static int64_t offset_of_claim(void) {
    const uint64_t spread = ks_session_number() * UINT64_C(0x9e3779b97f4a7c15);
    return (int64_t)(spread >> 32) % PERIOD;
}

/* GPU time of the claim's parts from the clock's beginning up to `time`. */
static int64_t parts_until(unsigned cell, int64_t time) {
    const int64_t length = part_length(cell);
    const int64_t since_offset = time - offset_of_claim();
    const int64_t into = since_offset % PERIOD;
    return since_offset / PERIOD * length + (into < length ? into : length);
}

/* Work that went on until `end` though the gate had closed. What was left of the part then has paid
 * for other work already: only the later ones are the claim's own. */
static void charge(struct part *part, unsigned cell, int64_t end) {
    const int64_t closed = part->closes_at;
    const int64_t next_part = closed + PERIOD - 1 - (closed - offset_of_claim() - 1) % PERIOD;
    const int64_t own = parts_until(cell, end) - parts_until(cell, next_part);
    if (end > closed)
        part->debt += end - closed - (own > 0 ? own : 0);
}

static void set_state(struct part *part, unsigned cell, enum ks_gate_state state) {
    part->state = state;
    ks_gate_set_local(cell, state);
}

static void open_until(struct part *part, unsigned cell, int64_t closes_at) {
    part->closes_at = closes_at;
    set_state(part, cell, KS_GATE_OPEN);
}

/* Opens the gate when the claim's part has come and is not eaten up by debt. The step of a part
 * says when to look again. */
static int64_t step_closed(struct part *part, unsigned cell, int64_t now, int64_t start) {
    const int64_t left = start + part_length(cell) - now;
    if (ks_session_is_revoked() || part->last == start || left <= 0)
        return start + PERIOD;
    part->last = start;
    if (part->debt >= left) { /* unused, it pays */
        part->debt -= left;
        return start + PERIOD;
    }
    open_until(part, cell, now + left - part->debt);
    part->debt = 0;
    return part->closes_at;
}

static int64_t step_closing(struct part *part, unsigned cell, int64_t now, int64_t start) {
    int64_t end;
    const bool is_done = !ks_is_launching() && ks_settle(cell, &end);
    if (is_done) {
        charge(part, cell, end);
        set_state(part, cell, KS_GATE_CLOSED);
        return step_closed(part, cell, now, start);
    }
    if (now - part->closes_at > PATIENCE && now < start + part_length(cell)) {
        charge(part, cell, now);
        part->last = start;
        open_until(part, cell, start + part_length(cell));
        return part->closes_at;
    }
    return now + LOOK_EVERY;
}

static int64_t step(unsigned cell, int64_t now) {
    struct part *part = &parts[cell];
    const int64_t start = now - (now - offset_of_claim()) % PERIOD;
    if (part->state == KS_GATE_CLOSED)
        return step_closed(part, cell, now, start);
    if (part->state == KS_GATE_OPEN) {
        if (now < part->closes_at)
            return part->closes_at;
        set_state(part, cell, KS_GATE_CLOSING);
    }
    return step_closing(part, cell, now, start);
}

/* When the next cell needs attention; `none` where no cell does before. */
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
        if (parts[cell].state != KS_GATE_CLOSED)
            return true;
    }
    return false;
}

/* Work that still goes on is charged up to now. */
static void close_all(int64_t now) {
    for (unsigned cell = 0; cell < ks_session_cells(); cell++) {
        struct part *part = &parts[cell];
        if (part->state != KS_GATE_CLOSED)
            charge(part, cell, now);
        set_state(part, cell, KS_GATE_CLOSED);
    }
}

void ks_duty_until(int64_t deadline) {
    int64_t now = ks_now();
    ks_gates_follow_page(false);
    for (unsigned cell = 0; cell < ks_session_cells(); cell++)
        ks_meter_set(cell, true);
    while (now < deadline || (any_is_open() && now < deadline + PERIOD + PATIENCE)) {
        const int64_t next = step_all(now, now < deadline ? deadline : INT64_MAX);
        const int64_t pause = next - ks_now(); /* asking took its time */
        if (pause > 0)
            ks_sleep(pause);
        now = ks_now();
    }
    close_all(now);
}
