/*
 * At most `window` launches may be queued at once. After every quarter of a
 * window a marker is recorded behind the work; the time between two markers
 * that the GPU has passed gives the length of a launch, and so the window for
 * the wanted backlog. No more than three quarters are launched behind the last
 * marker: a marker at the very end of the queue would only be passed when the
 * GPU is idle.
 */
#include "gate/meter.h"

#include "context.h"
#include "gate/fast_path.h"
#include "lock.h"
#include "session.h"
#include "system.h"
#include "timeline.h"

#include <stdatomic.h>
#include <string.h>

#define WANTED_BACKLOG (20 * KS_MILLISECOND)
#define CHECK_INTERVAL (KS_MILLISECOND / 2)
#define FIRST_WINDOW   2u
#define LEAST_WINDOW   2u
#define LONG_LAUNCH    (100 * KS_MILLISECOND) /* queued one at a time: a turn is no longer */
#define LARGEST_WINDOW 1024u
#define STUCK_AFTER    (KS_SECOND / 2)
#define ALONE_AFTER    KS_SECOND

struct marker {
    uint64_t launches; /* made before it */
    int64_t since;     /* when the previous one was recorded */
    int64_t put;
    bool follows; /* the previous one was not passed yet when this one was recorded */
};

/* A turn, as it was first seen. */
struct turn {
    uint32_t epoch;
    uint64_t lease_end;
    int64_t seen_at;
};

struct meter {
    atomic_bool on;
    _Atomic uint64_t taken;    /* credits, since it was turned on */
    _Atomic uint64_t allowed;  /* likewise */
    _Atomic uint64_t check_at; /* the number taken at which to check again */
    atomic_uint waiting;       /* threads without credit */
    ks_lock lock;              /* of what follows */
    bool was_short;            /* a thread lacked credit since the window last grew */
    uint64_t window;
    uint64_t marked, passed; /* launches before the last marker recorded, and the last passed */
    int64_t marked_at;
    unsigned first, standing; /* of the ring of markers */
    struct marker markers[KS_MARKERS];
    int64_t moved_at;    /* when the GPU last passed a marker, or the first was recorded */
    int64_t long_launch; /* ns of one launch if it is long; else 0 */
    unsigned beyond;     /* launches let through since then without progress */
    struct turn turn;
};

static struct meter meters[KS_CELLS_MAX];

/* ---- with the lock held ------------------------------------------------------- */

static uint64_t quarter(const struct meter *meter) {
    return meter->window >= 4 ? meter->window / 4 : 1;
}

static uint64_t within(uint64_t least, uint64_t value, uint64_t most) {
    return value < least ? least : value > most ? most : value;
}

/* After the GPU has passed the marker at `place`. If the queue ran dry before it, its launches took
 * at most the time since the marker before: then the window may only grow, and only if a thread
 * waited for it. Launches that may be long are queued one at a time until they are known to be
 * short. */
static void adapt(struct meter *meter, unsigned cell, unsigned place) {
    const struct marker *marker = &meter->markers[place];
    const uint64_t wanted = (uint64_t)WANTED_BACKLOG * (marker->launches - meter->passed);
    const unsigned before = (place + KS_MARKERS - 1) % KS_MARKERS;
    const int64_t took = marker->follows ? ks_between(cell, before, place) : 0;
    const uint64_t at_least = wanted / (uint64_t)(ks_now() - marker->since + 1);
    uint64_t window = meter->window;
    if (took > 0)
        window = wanted / (uint64_t)took;
    else if (meter->was_short && at_least > window)
        window = at_least;
    meter->was_short = false;
    const int64_t took_at_most = took > 0 ? took : ks_passed_at(cell, place) - marker->put;
    const bool is_long = took_at_most > LONG_LAUNCH * (int64_t)(marker->launches - meter->passed);
    meter->long_launch = is_long ? took_at_most : 0;
    window = is_long ? 1 : within(LEAST_WINDOW, window, LARGEST_WINDOW);
    meter->window = window < 4 * meter->window ? window : 4 * meter->window;
}

static void collect(struct meter *meter, unsigned cell) {
    while (meter->standing > 0 && ks_has_passed(cell, meter->first)) {
        adapt(meter, cell, meter->first);
        meter->passed = meter->markers[meter->first].launches;
        meter->first = (meter->first + 1) % KS_MARKERS;
        meter->standing--;
        meter->moved_at = ks_now();
        meter->beyond = 0;
    }
}

/* `own`: credits that the caller has taken for launches that it has not made yet. */
static void put_marker(struct meter *meter, unsigned cell, unsigned own) {
    const uint64_t launched = atomic_load(&meter->taken) - own;
    const unsigned place = (meter->first + meter->standing) % KS_MARKERS;
    if (launched < meter->marked + quarter(meter) || meter->standing == KS_MARKERS ||
        !ks_mark(cell, place))
        return;
    meter->markers[place] = (struct marker){.launches = launched,
                                            .since = meter->marked_at,
                                            .put = ks_now(),
                                            .follows = meter->standing > 0};
    meter->marked = launched;
    meter->marked_at = ks_now();
    if (meter->standing == 0)
        meter->moved_at = meter->marked_at;
    meter->standing++;
}

static void allow(struct meter *meter) {
    const uint64_t behind_passed = meter->passed + meter->window;
    const uint64_t behind_marked =
        meter->marked + within(1, meter->window - quarter(meter), meter->window);
    const uint64_t taken = atomic_load(&meter->taken);
    const uint64_t next = meter->marked + quarter(meter);
    atomic_store(&meter->check_at, next > taken ? next : taken + quarter(meter) / 4 + 1);
    const uint64_t behind_both = behind_passed < behind_marked ? behind_passed : behind_marked;
    atomic_store(&meter->allowed, behind_both + meter->beyond);
}

/* Queued work may itself wait for a launch that has no credit: on another stream, which writes the
 * value or records the event that it waits for. That looks the same as long work, so the time
 * before the next launch is let through doubles each time. */
static void let_through(struct meter *meter) {
    const int64_t expected = 3 * meter->long_launch;
    const int64_t timeout = (expected > STUCK_AFTER ? expected : STUCK_AFTER)
                            << (meter->beyond < 8 ? meter->beyond : 8);
    if (meter->standing == 0 || ks_now() - meter->moved_at < timeout)
        return;
    meter->beyond++;
    meter->moved_at = ks_now();
    allow(meter);
}

/* The daemon extends a lease when no other session waits. After a while of that the session has the
 * GPU to itself. */
static bool is_alone(struct turn *turn, const struct ks_page_cell *page) {
    const uint32_t epoch = atomic_load((const atomic_uint *)&page->epoch);
    const uint64_t lease_end = atomic_load((const _Atomic uint64_t *)&page->lease_end_ns);
    if (turn->seen_at == 0 || turn->epoch != epoch)
        *turn = (struct turn){.epoch = epoch, .lease_end = lease_end, .seen_at = ks_now()};
    return atomic_load((const atomic_uint *)&page->gate_state) == KS_GATE_OPEN &&
           lease_end != turn->lease_end && ks_now() - turn->seen_at > ALONE_AFTER;
}

static void turn_on(struct meter *meter) {
    meter->window = meter->window != 0 ? meter->window : FIRST_WINDOW;
    meter->marked = meter->passed = 0;
    meter->marked_at = 0;
    meter->standing = 0;
    meter->beyond = 0;
    meter->turn = (struct turn){0};
    atomic_store(&meter->taken, 0);
    allow(meter);
}

static void set(struct meter *meter, unsigned cell, bool on) {
    if (atomic_load(&meter->on) == on)
        return;
    if (on)
        turn_on(meter);
    atomic_store_explicit(&meter->on, on, memory_order_release);
    ks_debug("launches on cell %u are %s", cell,
             on ? "metered" : "free: no other session wants it");
    ks_fast_path_block(KS_METERED, on);
}

static void check(struct meter *meter, unsigned cell, unsigned own) {
    if (is_alone(&meter->turn, ks_session_cell(cell))) {
        set(meter, cell, false);
        return;
    }
    collect(meter, cell);
    put_marker(meter, cell, own);
    allow(meter);
}

/* ---- from outside ---------------------------------------------------------------- */

void ks_meter_set(unsigned cell, bool on) {
    ks_acquire(&meters[cell].lock, KS_LOCK_METER);
    set(&meters[cell], cell, on);
    ks_release(&meters[cell].lock);
}

bool ks_meter_is_on(unsigned cell) {
    return atomic_load_explicit(&meters[cell].on, memory_order_acquire);
}

bool ks_meter_take(unsigned cell) {
    struct meter *meter = &meters[cell];
    const uint64_t taken = atomic_fetch_add(&meter->taken, 1) + 1;
    if (taken >= atomic_load_explicit(&meter->check_at, memory_order_relaxed) &&
        ks_try_acquire(&meter->lock, KS_LOCK_METER)) {
        check(meter, cell, 1);
        ks_release(&meter->lock);
    }
    if (taken <= atomic_load(&meter->allowed) || !ks_meter_is_on(cell))
        return true;
    atomic_fetch_sub(&meter->taken, 1);
    return false;
}

void ks_meter_wait(unsigned cell) {
    struct meter *meter = &meters[cell];
    atomic_fetch_add(&meter->waiting, 1);
    ks_acquire(&meter->lock, KS_LOCK_METER);
    meter->was_short = true;
    check(meter, cell, 0);
    let_through(meter);
    const bool short_of_credit = atomic_load(&meter->taken) >= atomic_load(&meter->allowed);
    ks_release(&meter->lock);
    if (short_of_credit && ks_meter_is_on(cell))
        ks_sleep(CHECK_INTERVAL);
    atomic_fetch_sub(&meter->waiting, 1);
}

bool ks_meter_is_waited_for(unsigned cell) {
    return atomic_load(&meters[cell].waiting) != 0;
}

void ks_meter_forget(void) {
    memset(meters, 0, sizeof meters);
}
