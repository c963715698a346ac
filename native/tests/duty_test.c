/*
 * duty.c on a clock of our own: how much of a GPU a session uses without a daemon.
 *
 *   duty-test REQUEST_MICROS PERIODS KERNEL_US LONG_US [waits]
 *
 * The session always has kernels to run, one queued at a time, while its gate is
 * open; every fiftieth is a long one. With `waits` the work of the first turn only ends
 * once the gate has opened again, as that of a stream which waits for a value
 * from a later launch. Prints one JSON line: GPU time used as a fraction of
 * the periods, how often the gate opened, and the longest time it stayed shut.
 */
#include "gate/drain.h"
#include "gate/duty.h"
#include "gate/gate.h"
#include "gate/meter.h"
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PERIOD_NS INT64_C(100000000)

static int64_t clock_ns = 1000 * PERIOD_NS;
static struct ks_page_cell page;
static int64_t kernel_ns, long_ns;
static int launched;
static bool is_waiting;   /* the work is held up until the gate opens again */
static int64_t opened_ns; /* 0: the gate is not open */
static int64_t done_ns;   /* when the GPU is done with all that was launched */
static int64_t used_ns, shut_since_ns, longest_shut_ns;
static int opened_times;

/* ---- what duty.c calls ---------------------------------------------- */

int clock_gettime(clockid_t clock, struct timespec *time) {
    (void)clock;
    *time = (struct timespec){.tv_sec = clock_ns / 1000000000, .tv_nsec = clock_ns % 1000000000};
    return 0;
}

int nanosleep(const struct timespec *duration, struct timespec *rest) {
    (void)rest;
    clock_ns += (int64_t)duration->tv_sec * 1000000000 + duration->tv_nsec;
    return 0;
}

const struct ks_page_cell *ks_session_cell(unsigned index) {
    (void)index;
    return &page;
}

unsigned ks_session_cells(void) {
    return 1;
}

uint64_t ks_session_number(void) {
    return 0;
}

bool ks_session_is_revoked(void) {
    return false;
}

void ks_marks_barrier(void) {
}

bool ks_is_launching(unsigned cell) {
    (void)cell;
    return false;
}

void ks_gates_follow_page(bool follow) {
    (void)follow;
}

void ks_meter_set(unsigned cell, bool on) {
    (void)cell;
    (void)on;
}

/* All that is launched while the gate is open: kernels one after another, the last of which may
 * end after it closed. */
static void launch_until(int64_t closed_ns) {
    int64_t start = done_ns > opened_ns ? done_ns : opened_ns;
    while (start < closed_ns) {
        const int64_t length = launched++ % 50 == 0 ? long_ns : kernel_ns;
        start += length;
        used_ns += length;
    }
    done_ns = start;
}

void ks_gate_set_local(unsigned cell, enum ks_gate_state state) {
    (void)cell;
    if (state == KS_GATE_OPEN) {
        if (clock_ns - shut_since_ns > longest_shut_ns)
            longest_shut_ns = clock_ns - shut_since_ns;
        is_waiting = is_waiting && opened_times == 0;
        opened_ns = clock_ns;
        opened_times++;
    } else if (opened_ns != 0) {
        launch_until(clock_ns);
        opened_ns = 0;
        shut_since_ns = clock_ns;
    }
}

bool ks_settle(unsigned cell, int64_t *end) {
    (void)cell;
    *end = done_ns;
    return !is_waiting && done_ns <= clock_ns;
}

int main(int count, char **arguments) {
    if (count < 5) {
        fprintf(stderr, "duty-test: usage: "
                        "duty-test REQUEST_MICROS PERIODS KERNEL_US LONG_US [waits]\n");
        return 2;
    }
    page.request_micros = (uint32_t)atoi(arguments[1]);
    kernel_ns = INT64_C(1000) * atoi(arguments[3]);
    long_ns = INT64_C(1000) * atoi(arguments[4]);
    is_waiting = count > 5 && strcmp(arguments[5], "waits") == 0;
    const int64_t start = shut_since_ns = clock_ns;
    ks_duty_until(start + PERIOD_NS * atoi(arguments[2]));
    printf("{\"used\": %.4f, \"opened\": %d, \"longest_shut_ms\": %.1f}\n",
           (double)used_ns / (double)(clock_ns - start), opened_times,
           (double)longest_shut_ns / 1e6);
    return 0;
}
