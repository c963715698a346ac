/*
 * A claim without a daemon may use its GPU during a part of each period of
 * 100 ms: the part that it requested. The part lies at the same time for all
 * processes of a claim, so together they get no more than one would, and at
 * another for every claim. What the GPU still had to do after the gate closed
 * is a debt, taken off the next part.
 */
#include "duty.h"

#include "claim.h"
#include "drain.h"
#include "gate.h"
#include "meter.h"
#include "system.h"

#define PERIOD (100 * KS_MILLISECOND)

/* A claim that requested nothing still comes to its end some day. */
#define LEAST_MICROS 10000

static bool is_open[KS_CELLS_MAX];
static int64_t closes_at[KS_CELLS_MAX];
static int64_t debt[KS_CELLS_MAX];      /* ns of GPU time used outside the claim's part */
static int64_t last_part[KS_CELLS_MAX]; /* start of the last part that was used or paid with */

static int64_t part_length(unsigned cell) {
    uint32_t micros = ks_claim_cell(cell)->request_micros;
    if (micros < LEAST_MICROS)
        micros = LEAST_MICROS;
    return micros >= 1000000 ? PERIOD : PERIOD * micros / 1000000;
}

/* Where in the period this claim's part begins: spread by the golden ratio. */
static int64_t offset_of_claim(void) {
    const uint64_t spread = ks_claim_number() * UINT64_C(0x9e3779b97f4a7c15);
    return (int64_t)(spread >> 32) % PERIOD;
}

static void close_and_settle(unsigned cell) {
    ks_gate_set_local(cell, KS_GATE_CLOSING);
    ks_wait_for_launches();
    const int64_t end = ks_settle(cell);
    if (end > closes_at[cell])
        debt[cell] += end - closes_at[cell];
    ks_gate_set_local(cell, KS_GATE_CLOSED);
    is_open[cell] = false;
}

/* Opens the gate when the claim's part has come and is not eaten up by debt.
 * Returns when to look again. */
static int64_t step(unsigned cell, int64_t now) {
    const int64_t start = now - (now - offset_of_claim()) % PERIOD;
    const int64_t length = part_length(cell);
    if (is_open[cell]) {
        if (now < closes_at[cell])
            return closes_at[cell];
        close_and_settle(cell);
        return start + PERIOD;
    }
    if (ks_claim_is_revoked() || last_part[cell] == start)
        return start + PERIOD;
    last_part[cell] = start;
    if (now >= start + length - debt[cell]) { /* nothing is left of it: unused, it pays */
        debt[cell] = debt[cell] > length ? debt[cell] - length : 0;
        return start + PERIOD;
    }
    closes_at[cell] = start + length - debt[cell];
    debt[cell] = 0;
    is_open[cell] = true;
    ks_gate_set_local(cell, KS_GATE_OPEN);
    return closes_at[cell];
}

/* When the next cell needs attention; `none` where no cell does before. */
static int64_t step_all(int64_t now, int64_t none) {
    int64_t next = none;
    for (unsigned cell = 0; cell < ks_claim_cells(); cell++) {
        const int64_t again = step(cell, now);
        next = again < next ? again : next;
    }
    return next;
}

static bool any_is_open(void) {
    for (unsigned cell = 0; cell < ks_claim_cells(); cell++) {
        if (is_open[cell])
            return true;
    }
    return false;
}

void ks_duty_until(int64_t deadline) {
    ks_gates_follow_page(false);
    for (unsigned cell = 0; cell < ks_claim_cells(); cell++)
        ks_meter_set(cell, true);
    for (int64_t now = ks_now(); now < deadline || any_is_open(); now = ks_now()) {
        const int64_t next = step_all(now, now < deadline ? deadline : INT64_MAX);
        const int64_t pause = next - ks_now(); /* a drain took its time */
        if (pause > 0)
            ks_sleep(pause);
    }
}
