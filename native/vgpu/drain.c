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
    if (launches != settled[cell].launches) {
        settled[cell].end = ks_finish(cell);
        settled[cell].launches = launches;
        ks_account_show_launches(cell, launches);
    }
    return settled[cell].end;
}

void ks_drain_forget(void) {
    memset(settled, 0, sizeof settled);
}
