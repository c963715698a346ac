#include "drain.h"

#include "account.h"
#include "context.h"
#include "gate.h"

#include <string.h>

struct settled {
    uint64_t launches; /* up to which the GPU was seen to be done */
    int64_t end;
};

static struct settled settled[KS_CELLS_MAX];

int64_t ks_settle(unsigned cell) {
    const uint64_t launches = ks_launches(cell);
    if (launches == settled[cell].launches)
        return settled[cell].end;
    /* A launch is counted before it reaches the driver: one that is still on its way may not be
     * covered, and will be waited for another time. */
    const bool all_have_arrived = !ks_is_launching();
    const int64_t end = ks_finish(cell);
    if (all_have_arrived)
        settled[cell] = (struct settled){.launches = launches, .end = end};
    ks_account_show_launches(cell, launches);
    return end;
}

void ks_drain_forget(void) {
    memset(settled, 0, sizeof settled);
}
