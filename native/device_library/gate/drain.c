#include "gate/drain.h"

#include "account.h"
#include "context.h"
#include "gate/marks.h"
#include "lock.h"
#include "system.h"

#include <string.h>

struct work {
    uint64_t launches; /* the GPU has finished as many */
    int64_t end;
    bool awaited; /* an event is recorded behind awaited_launches */
    uint64_t awaited_launches;
    bool covers_all; /* no launch was on its way to the driver when it was recorded */
};

static ks_lock lock;
static struct work works[KS_CELLS_MAX];

/* A launch is counted before it reaches the driver: the event may not cover one that is on its way,
 * and then another event is recorded later. */
static void await_end(struct work *work, unsigned cell, uint64_t launches) {
    const bool all_have_arrived = !ks_is_launching(cell);
    if (!ks_finish_begin(cell))
        return;
    work->awaited = true;
    work->awaited_launches = launches;
    work->covers_all = all_have_arrived;
}

static void check_end(struct work *work, unsigned cell) {
    int64_t end;
    if (!ks_finish_end(cell, &end))
        return;
    work->awaited = false;
    if (work->covers_all) {
        work->launches = work->awaited_launches;
        work->end = end;
    }
    ks_account_show_launches(cell, work->awaited_launches);
}

bool ks_settle(unsigned cell, int64_t *end) {
    struct work *work = &works[cell];
    const uint64_t launches = ks_launches(cell);
    ks_acquire(&lock, KS_LOCK_DRAIN);
    if (work->launches != launches && !work->awaited)
        await_end(work, cell, launches);
    if (work->launches != launches && work->awaited)
        check_end(work, cell);
    const bool is_done = work->launches == launches;
    *end = work->end;
    ks_release(&lock);
    return is_done;
}

void ks_drain_forget(void) {
    lock = (ks_lock){0};
    memset(works, 0, sizeof works);
}
