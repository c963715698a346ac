/*
 * Takes two locks in the order that its argument names; a build that checks the order must stop a
 * wrong one.
 *
 *   lock-order-test right|wrong|twice|tried
 */
#include "lock.h"

#include <string.h>

static ks_lock outer, inner;

int main(int count, char **arguments) {
    const char *order = count > 1 ? arguments[1] : "right";
    const bool is_wrong = strcmp(order, "wrong") == 0;
    const bool is_same = strcmp(order, "twice") == 0;
    ks_acquire(&outer, is_wrong ? KS_LOCK_SLOTS : KS_LOCK_RESERVE);
    if (strcmp(order, "tried") == 0) {
        if (!ks_try_acquire(&inner, KS_LOCK_METER))
            return 1;
    } else {
        ks_acquire(&inner, is_wrong || is_same ? KS_LOCK_RESERVE : KS_LOCK_SLOTS);
    }
    ks_release(&inner);
    ks_release(&outer);
    ks_acquire(&inner, KS_LOCK_SESSION); /* nothing is held any more */
    ks_release(&inner);
    return 0;
}
