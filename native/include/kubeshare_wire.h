/*
 * The protocol between the token daemon and the device library.
 *
 * One header for both sides: C includes it, src/kubeshare/tokens/wire/protocol.py
 * mirrors it, and a test compares every offset, size and constant.
 *
 * Rules of this file:
 *   - fixed-width integers in the machine's byte order (both ends share it);
 *   - new fields only go into reserved space; no field is moved or reused;
 *   - a change of meaning raises KS_WIRE_VERSION.
 *
 * Three things are shared, per session (the containers of a pod that share one grant):
 *   CLAIM/page      written by the daemon, mapped read-only by the library;
 *   CLAIM/socket    SOCK_SEQPACKET, for changes of state only;
 *   counters/CLAIM  written by the library, never trusted by the daemon.
 */
#ifndef KUBESHARE_WIRE_H
#define KUBESHARE_WIRE_H

#include <assert.h>
#include <stdint.h>

#define KS_WIRE_VERSION 1u /* of the layouts: of the page, of a message, of the counters */

/* Of the conversation on the socket. Each side speaks a range; the highest that
 * both speak is used, so a library and a daemon of different age work together:
 *   HELLO    value = the oldest protocol of the library, epoch = its newest
 *            (0, as protocol 1 wrote it: the same as the oldest);
 *   WELCOME  value = the protocol that is used from now on.
 * Protocol 1 is the first. Protocol 2 adds the mask of cells to WANT, and BUSY. */
#define KS_PROTOCOL_OLDEST 1u
#define KS_PROTOCOL_NEWEST 2u

/* Where a container sees its session. Only where this folder does not exist
 * (`kubeshare run`, no container) the environment names another one. */
#define KS_CLAIM_FOLDER      "/run/kubeshare/claim"
#define KS_COUNTERS_FILE     "/run/kubeshare/counters"
#define KS_CLAIM_FOLDER_ENV  "KUBESHARE_CLAIM"
#define KS_COUNTERS_FILE_ENV "KUBESHARE_COUNTERS"

#define KS_CELLS_MAX     16u  /* GPUs of one session */
#define KS_PROCESSES_MAX 256u /* processes of one session that use a GPU at once */

/* ---- the page ------------------------------------------------------- */

#define KS_PAGE_MAGIC UINT64_C(0x3145474150534b00) /* "\0KSPAGE1" */

enum ks_grant_state {
    KS_GRANT_PENDING = 0, /* the folder is being made */
    KS_GRANT_ACTIVE = 1,
    KS_GRANT_REFUSED = 2, /* would over-commit a GPU: nothing may start */
    KS_GRANT_REVOKED = 3, /* GPU or placeholder lost: gates stay closed */
};

enum ks_gate_state {
    KS_GATE_CLOSED = 0,  /* wait on the epoch; send WANT */
    KS_GATE_OPEN = 1,    /* launch */
    KS_GATE_CLOSING = 2, /* stop launching, drain, send DRAINED */
};

struct ks_page_header {
    uint64_t magic;
    uint32_t version;
    uint32_t size_bytes;  /* of header and cells together */
    uint32_t cells;       /* at most KS_CELLS_MAX */
    uint32_t grant_state; /* enum ks_grant_state; atomic */
    uint32_t extensions; /* offset of the cells' extensions; 0: an earlier daemon, which has none */
    uint8_t reserved[36];
};

struct ks_page_cell {
    /* Futex word, atomic: incremented at each change of state, except from CLOSING to CLOSED: what
     * was asked while the gate was closing still holds. Woken when the gate opens. */
    uint32_t epoch;
    uint32_t gate_state;   /* enum ks_gate_state; atomic */
    uint64_t lease_end_ns; /* CLOCK_MONOTONIC; atomic */
    uint64_t memory_limit_bytes;
    uint64_t memory_total_bytes; /* of the physical GPU */
    uint32_t request_micros;     /* millionths of the GPU's time */
    uint32_t limit_micros;
    uint8_t uuid[16];
    /* What the container holds, by the driver's figure, beyond what its library
     * tracks (contexts, modules, stacks); the node agent measures it; atomic. The
     * limit covers the sum of the counters and this. */
    uint64_t overhead_bytes;
};

#define KS_BUSY_INTERVAL_NS 50000000 /* while it drains a library sends BUSY so often */

#define KS_USE_TAU_NS 2000000000u /* time constant of the average of what is used */

/* One for each cell. */
struct ks_page_extension {
    uint64_t used_at_ns;  /* CLOCK_MONOTONIC: the end of what is accounted for; atomic */
    uint32_t used_micros; /* share of the GPU's time, by an average that decays; atomic */
    /* 1: the limits of the GPU's sessions may exceed its memory together, and what does not fit is
     * allocated as managed memory; atomic. */
    uint32_t oversubscribed;
    /* What is reserved for the claim: for the next daemon; 0 where the last one did not say it. */
    uint64_t memory_reserved_bytes;
    uint8_t reserved[40];
};

static_assert(sizeof(struct ks_page_header) == 64, "one cache line");
static_assert(sizeof(struct ks_page_extension) == 64, "one cache line");
static_assert(sizeof(struct ks_page_cell) == 64, "one cache line");

/* ---- messages on the socket ------------------------------------------
 *
 * A session with several cells gets the GPUs that it shares with others, or on
 * which a limit binds, together or not at all; each other GPU it gets by itself:
 *   - WANT names the cell of the waiting launch, and in `value` all cells on
 *     which the process has a context (bit n: cell n; 0: that cell alone, as
 *     protocol 1 sends it). The cells that all processes of the session named, and
 *     have not left since, are those that it wants;
 *   - the gates of a set open one after another in the order of the GPUs'
 *     UUIDs, none before the daemon holds the tokens of all, and go to CLOSING
 *     in the same order. Leases of a set end together;
 *   - WANT for a cell outside the set that is open ends that grant, and the
 *     next one has the larger set. A process sends WANT as soon as it has a
 *     context on one more GPU of the session and launches there, no earlier;
 *   - CLOSING, DRAINED, WATCH and IDLE are about one cell each, with that cell's
 *     epoch. Each CLOSING is answered, also on a cell that the process never
 *     used; a cell that all processes have drained is given to others at once.
 *     The set is idle when each of its cells is.
 * A gate in CLOSING may open again without CLOSED between, when the drain has
 * not ended in time and may wait for a launch that is gated: with a new epoch,
 * and a CLOSING for it to follow. An answer to the epoch before ends no turn; it
 * only says that what was launched before that has come to its end.
 *
 * A drain lasts as long as the work that was launched. Until it ends the
 * library repeats BUSY: a process that sends nothing has stopped or hangs, and
 * the daemon goes on without it.
 */

enum ks_message_type {
    /* library -> daemon */
    KS_HELLO = 1,   /* first message; value, epoch = protocols; pid as the process sees itself */
    KS_WANT = 2,    /* a launch waits at a closed gate of `cell`; value = cells to open with it */
    KS_DRAINED = 3, /* answer to CLOSING: the GPU was done with this process at time_ns */
    KS_IDLE = 4,    /* while open and watched: nothing queued since time_ns */
    KS_BUSY = 5,    /* the drain is not over: the process lives, its work is long */
    /* daemon -> library */
    KS_WELCOME = 16, /* answer to HELLO; value = the protocol that is used */
    KS_CLOSING = 17, /* `cell` went to CLOSING at `epoch`: drain and answer */
    KS_WATCH = 18,   /* `cell` is open at `epoch` and its idle time counts: send IDLE */
    KS_REFUSED = 19, /* the connection is closed after this; value = errno-like reason */
};

struct ks_message {
    uint16_t version; /* KS_WIRE_VERSION */
    uint16_t type;    /* enum ks_message_type */
    uint32_t cell;    /* index in the page */
    uint32_t epoch;   /* of the cell when the sender acted; answers carry the question's */
    uint32_t pid;
    uint64_t time_ns; /* CLOCK_MONOTONIC: of the GPU's own last end for DRAINED and IDLE */
    uint64_t value;
};

static_assert(sizeof(struct ks_message) == 32, "a message has one size");

/* ---- counters: the library's own account of memory --------------------
 *
 * Record locks on the file, which the kernel drops when their process ends,
 * however it ends:
 *   byte 0                     held while all slots are summed and charged; of the
 *                              open file, as the next one
 *   the second byte of a slot  held by the process that owns it. A slot that is
 *                              used and neither byte of which is held belonged to a
 *                              process that died.
 *   the first byte of a slot   held likewise, as POSIX's: it has the owner's pid.
 *                              The process may lose it; older libraries have it alone.
 */

#define KS_COUNTERS_MAGIC UINT64_C(0x31544e434f534b00) /* "\0KSCONT1" */

#define KS_MEMORY_UNIT 512u /* bytes; GPU memory is charged in whole units */

struct ks_counters_slot {
    uint32_t used; /* 1 while a process holds the record locks of this slot */
    uint32_t pid;  /* as the process sees itself */
    /* Of the host, pinned for the GPUs by the process: for readers, no limit applies; atomic. */
    uint64_t host_bytes;
    /* Of what it is charged on all cells, allocated as managed memory because the GPU had none
     * left: for readers; atomic. */
    uint64_t spilled_bytes;
    uint8_t reserved[40];
    uint64_t
        memory_bytes[KS_CELLS_MAX];  /* charged by this process, per cell: for readers; atomic */
    uint64_t launches[KS_CELLS_MAX]; /* since the process started; atomic */
};

/* What a process holds of the session's limit, in units of KS_MEMORY_UNIT bytes: in the low half of
 * a word what it was charged, in the high half what is set aside for its next allocations. One
 * word, so that no sum ever sees one of them change without the other. Only under the lock of
 * byte 0 does a word grow; any process that holds it may take back what is set aside. */
struct ks_counters_budget {
    uint64_t cell[KS_CELLS_MAX]; /* atomic */
};

struct ks_counters {
    uint64_t magic;
    uint32_t version;
    uint32_t slots; /* KS_PROCESSES_MAX */
    uint8_t reserved[48];
    struct ks_counters_slot slot[KS_PROCESSES_MAX];
    struct ks_counters_budget budget[KS_PROCESSES_MAX]; /* of the process with the same slot */
};

static_assert(sizeof(struct ks_counters_slot) == 320, "five cache lines");
static_assert(sizeof(struct ks_counters) == 64 + 256 * (320 + 128), "the file has one size");

#endif
