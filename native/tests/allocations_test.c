/*
 * The table of allocations against a list that is searched from end to end, in a million random
 * steps; handles are few and close together, so that entries meet, move and wrap around.
 */
#include "account.h"
#include "memory/allocations.h"

#include <stdio.h>
#include <string.h>

#define HANDLES 3000
#define STEPS   1000000

static struct ks_allocation model[HANDLES]; /* kind KS_NOTHING: not there */
static uint64_t given_back;
static uint64_t now; /* by the clock of the table */

/* What the table calls when a context ends; none here is of the host, nor spilled. */
void ks_account_give_back(unsigned cell, uint64_t bytes) {
    given_back += bytes + cell;
}

void ks_account_unpin(uint64_t bytes) {
    given_back += bytes;
}

void ks_account_unspill(uint64_t bytes) {
    given_back += bytes;
}

static uint64_t next(void) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static int check(bool agrees, const char *what, uint64_t index) {
    if (!agrees)
        printf("%s of %llu differs\n", what, (unsigned long long)index);
    return agrees ? 0 : 1;
}

static uint64_t handle_of(uint64_t index) {
    return 0x7f0000000000u + index * 512;
}

static int add_or_take(uint64_t index) {
    struct ks_allocation found;
    struct ks_allocation *expected = &model[index];
    if (expected->kind == KS_NOTHING) {
        *expected = (struct ks_allocation){.handle = handle_of(index),
                                           .bytes = next() % 1000,
                                           .owner = next() % 8,
                                           .since = now,
                                           .kind = KS_MEMORY,
                                           .cell = (uint16_t)(next() % 4)};
        return check(ks_allocations_add(expected), "add", index);
    }
    const bool known = ks_allocations_take(KS_MEMORY, handle_of(index), &found);
    const int wrong =
        check(known && memcmp(&found, expected, sizeof found) == 0, "allocation", index);
    expected->kind = KS_NOTHING;
    return wrong;
}

static int look(uint64_t index) {
    struct ks_allocation found;
    const bool known = ks_allocations_find(KS_MEMORY, handle_of(index), &found);
    return check(known == (model[index].kind != KS_NOTHING) &&
                     (!known || memcmp(&found, &model[index], sizeof found) == 0),
                 "look", index);
}

/* One that may be about to end since a while, while there are newer ones with the same handle. */
static int end_context(uint64_t context) {
    uint64_t expected = 0;
    given_back = 0;
    now = ks_allocations_tick();
    const uint64_t before = now > 2 ? now - next() % 3 : now;
    for (int i = 0; i < HANDLES; i++) {
        if (model[i].kind == KS_NOTHING || model[i].owner != context || model[i].since >= before)
            continue;
        expected += model[i].bytes + model[i].cell;
        model[i].kind = KS_NOTHING;
    }
    ks_allocations_drop((CUcontext)context, before);
    return check(given_back == expected, "end of context", context);
}

int main(void) {
    int wrong = 0;
    for (int step = 0; step < STEPS && wrong == 0; step++) {
        const uint64_t index = next() % HANDLES;
        wrong += step % 20000 == 0 ? end_context(next() % 8) : add_or_take(index);
        wrong += look(next() % HANDLES);
    }
    printf("%d steps\n", STEPS);
    return wrong == 0 ? 0 : 1;
}
