/*
 * The owner of a KS_PHYSICAL has two numbers of one count: when its handle was imported, and when
 * the memory that it is charged for was first exported; 0: it was not.
 */
#include "memory/imports.h"

#include <stdatomic.h>
#include <stddef.h>

#define IMPORTED_SHIFT 32
#define EXPORTED       UINT64_C(0xffffffff)

/* Stays at the last number: all that comes after that counts as at the same time. */
static uint64_t next_number(void) {
    static _Atomic uint64_t count;
    const uint64_t number = atomic_fetch_add(&count, 1) + 1;
    return number < EXPORTED ? number : EXPORTED;
}

uint64_t ks_imports_number(void) {
    return next_number() << IMPORTED_SHIFT;
}

static uint64_t imported_at(const struct ks_allocation *physical) {
    return physical->owner >> IMPORTED_SHIFT;
}

static uint64_t exported_at(const struct ks_allocation *physical) {
    return physical->owner & EXPORTED;
}

void ks_imports_may_follow(CUmemGenericAllocationHandle handle) {
    const uint64_t number = next_number();
    struct ks_allocation seen;
    while (ks_allocations_find(KS_PHYSICAL, handle, &seen) && seen.bytes != 0 &&
           exported_at(&seen) == 0) {
        struct ks_allocation next = seen;
        next.owner |= number;
        if (ks_allocations_change(&seen, &next))
            return;
    }
}

static bool may_be_of(const struct ks_allocation *entry, const struct ks_allocation *ended) {
    return entry->kind == KS_PHYSICAL && imported_at(entry) >= exported_at(ended) &&
           (entry->cell == ended->cell || entry->cell == KS_ANY_CELL);
}

/* The smallest charge, none at best; of equal ones the first that was imported, so that later ones
 * are left to what is exported later. */
static bool takes_rather(const struct ks_allocation *entry, const struct ks_allocation *best,
                         const struct ks_allocation *ended) {
    if (!may_be_of(entry, ended) || entry->bytes >= ended->bytes)
        return false;
    return best == NULL || entry->bytes < best->bytes ||
           (entry->bytes == best->bytes && imported_at(entry) < imported_at(best));
}

/* Each charge that another one replaces is smaller than that, so this ends. */
bool ks_imports_end(struct ks_allocation *ended) {
    struct ks_allocation seen;
    while (ended->bytes != 0 && exported_at(ended) != 0 &&
           ks_allocations_search(takes_rather, ended, &seen)) {
        struct ks_allocation next = seen;
        next.bytes = ended->bytes;
        next.cell = ended->cell;
        next.owner = imported_at(&seen) << IMPORTED_SHIFT | exported_at(ended);
        if (!ks_allocations_change(&seen, &next))
            continue;
        ended->bytes = seen.bytes;
        ended->cell = seen.cell;
        ended->owner = seen.owner;
    }
    return ended->bytes != 0;
}
