/*
 * The gate that a launch checks without a lock or a system call.
 *
 * A session with one GPU has such a gate, unless its launches are metered or a
 * graph is being captured. Whoever starts or ends one of these says so here.
 */
#ifndef KS_FAST_PATH_H
#define KS_FAST_PATH_H

#include "kubeshare_wire.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first words of a page's cell, or of a local gate. */
struct ks_gate {
    atomic_uint epoch;
    atomic_uint state; /* enum ks_gate_state */
};

static_assert(offsetof(struct ks_gate, epoch) == offsetof(struct ks_page_cell, epoch) &&
                  offsetof(struct ks_gate, state) == offsetof(struct ks_page_cell, gate_state),
              "a cell of the page is a gate");

/* A gate that stays closed. */
extern const struct ks_gate ks_closed_gate;

/* The gate of the fast path; ks_closed_gate sends every launch to the slow one. */
extern const struct ks_gate *_Atomic ks_fast_gate;

/* Why launches take the slow path: bits. */
enum ks_fast_path_blocker {
    KS_METERED = 1,   /* each takes a credit */
    KS_CAPTURING = 2, /* whether it runs now depends on its stream */
};

extern atomic_uint ks_fast_path_blockers;

/* Sets the gate of the only GPU. Never called in a session with several. */
void ks_fast_path_set_gate(const struct ks_gate *gate);

/* Takes launches off the fast path (true), or no longer for this reason (false). */
void ks_fast_path_block(enum ks_fast_path_blocker blocker, bool on);

/* In a forked child: the gate is closed, and no reason holds. */
void ks_fast_path_forget(void);

#endif
