/*
 * Hash tables with open addressing, each under its own lock, so that threads
 * which allocate at the same time seldom wait for each other. Removal leaves no
 * tombstone: the entries behind it move up. The tables come from mmap: the
 * allocator of the application may be hooked too, and may be the caller.
 */
#include "memory/allocations.h"

#include "account.h"
#include "lock.h"
#include "system.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

#define TABLES         64u
#define FIRST_CAPACITY ((size_t)128)

struct table {
    ks_lock lock;
    struct ks_allocation *entries;
    size_t capacity; /* a power of two */
    size_t live;
};

static struct table tables[TABLES];
static _Atomic uint64_t ticks;

/* The lower half chooses the slot, the upper the table. */
static uint64_t hash_of(uint64_t handle) {
    const uint64_t mixed = handle * UINT64_C(0x9e3779b97f4a7c15);
    return mixed ^ mixed >> 32;
}

static struct table *enter(uint64_t handle) {
    struct table *table = &tables[hash_of(handle) >> 32 & (TABLES - 1)];
    ks_acquire(&table->lock, KS_LOCK_ALLOCATIONS);
    return table;
}

static size_t place_of(uint64_t handle, size_t capacity) {
    return (size_t)hash_of(handle) & (capacity - 1);
}

static void insert(struct table *into, const struct ks_allocation *allocation) {
    size_t place = place_of(allocation->handle, into->capacity);
    while (into->entries[place].kind != KS_NOTHING)
        place = (place + 1) & (into->capacity - 1);
    into->entries[place] = *allocation;
    into->live++;
}

static bool make_room(struct table *table) {
    if ((table->live + 1) * 4 <= table->capacity * 3)
        return true;
    struct table next = {.capacity = table->capacity != 0 ? table->capacity * 2 : FIRST_CAPACITY};
    const size_t bytes = next.capacity * sizeof *next.entries;
    next.entries = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (next.entries == MAP_FAILED)
        return false;
    for (size_t i = 0; i < table->capacity; i++) {
        if (table->entries[i].kind != KS_NOTHING)
            insert(&next, &table->entries[i]);
    }
    if (table->entries != NULL)
        munmap(table->entries, table->capacity * sizeof *table->entries);
    table->entries = next.entries;
    table->capacity = next.capacity;
    return true;
}

static struct ks_allocation *find(const struct table *table, enum ks_kind kind, uint64_t handle) {
    if (table->capacity == 0)
        return NULL;
    size_t place = place_of(handle, table->capacity);
    while (table->entries[place].kind != KS_NOTHING) {
        struct ks_allocation *entry = &table->entries[place];
        if (entry->handle == handle && entry->kind == kind)
            return entry;
        place = (place + 1) & (table->capacity - 1);
    }
    return NULL;
}

/* Whether `place` is in [from, to), which may wrap around the end. */
static bool is_between(size_t from, size_t place, size_t to) {
    return from <= to ? from <= place && place < to : from <= place || place < to;
}

/* An entry behind the hole moves into it, unless its own slot is behind the hole. */
static void erase(struct table *table, struct ks_allocation *entry) {
    const size_t mask = table->capacity - 1;
    size_t hole = (size_t)(entry - table->entries);
    for (size_t next = (hole + 1) & mask; table->entries[next].kind != KS_NOTHING;
         next = (next + 1) & mask) {
        const size_t home = place_of(table->entries[next].handle, table->capacity);
        if (is_between((hole + 1) & mask, home, (next + 1) & mask))
            continue;
        table->entries[hole] = table->entries[next];
        hole = next;
    }
    table->entries[hole].kind = KS_NOTHING;
    table->live--;
}

bool ks_allocations_add(const struct ks_allocation *allocation) {
    struct table *table = enter(allocation->handle);
    const bool added = make_room(table);
    if (added) {
        struct ks_allocation entry = *allocation;
        entry.since = atomic_load(&ticks);
        insert(table, &entry);
    }
    ks_release(&table->lock);
    return added;
}

bool ks_allocations_find(enum ks_kind kind, uint64_t handle, struct ks_allocation *allocation) {
    struct table *table = enter(handle);
    const struct ks_allocation *entry = find(table, kind, handle);
    if (entry != NULL)
        *allocation = *entry;
    ks_release(&table->lock);
    return entry != NULL;
}

#define ANY_USES UINT32_MAX

bool ks_allocations_take(enum ks_kind kind, uint64_t handle, struct ks_allocation *allocation) {
    return ks_allocations_take_marked(kind, handle, ANY_USES, allocation);
}

bool ks_allocations_take_marked(enum ks_kind kind, uint64_t handle, uint32_t uses,
                                struct ks_allocation *allocation) {
    struct table *table = enter(handle);
    struct ks_allocation *entry = find(table, kind, handle);
    const bool taken = entry != NULL && (uses == ANY_USES || entry->uses == uses);
    if (taken) {
        *allocation = *entry;
        erase(table, entry);
    }
    ks_release(&table->lock);
    return taken;
}

void ks_allocations_use(enum ks_kind kind, uint64_t handle) {
    struct table *table = enter(handle);
    struct ks_allocation *entry = find(table, kind, handle);
    if (entry != NULL)
        entry->uses++;
    ks_release(&table->lock);
}

void ks_allocations_mark(enum ks_kind kind, uint64_t handle, uint32_t uses) {
    struct table *table = enter(handle);
    struct ks_allocation *entry = find(table, kind, handle);
    if (entry != NULL)
        entry->uses = uses;
    ks_release(&table->lock);
}

bool ks_allocations_leave(enum ks_kind kind, uint64_t handle, struct ks_allocation *allocation) {
    struct table *table = enter(handle);
    struct ks_allocation *entry = find(table, kind, handle);
    const bool last = entry != NULL && entry->uses <= 1;
    if (last) {
        *allocation = *entry;
        erase(table, entry);
    } else if (entry != NULL) {
        entry->uses--;
    }
    ks_release(&table->lock);
    return last;
}

/* Erases all entries that match; returns how many. An entry that moves up is checked in its new
 * slot. */
static unsigned erase_all(bool (*matches)(const struct ks_allocation *entry,
                                          const struct ks_allocation *wanted),
                          const struct ks_allocation *wanted) {
    unsigned erased = 0;
    for (unsigned i = 0; i < TABLES; i++) {
        struct table *table = &tables[i];
        ks_acquire(&table->lock, KS_LOCK_ALLOCATIONS);
        for (size_t place = 0; place < table->capacity;) {
            struct ks_allocation *entry = &table->entries[place];
            if (matches(entry, wanted)) {
                erase(table, entry);
                erased++;
            } else {
                place++;
            }
        }
        ks_release(&table->lock);
    }
    return erased;
}

void ks_allocations_settle(const struct ks_allocation *allocation) {
    if (allocation->kind == KS_HOST_MEMORY || allocation->kind == KS_HOST_REGISTERED) {
        ks_account_unpin(allocation->bytes);
        return;
    }
    if (allocation->kind == KS_SPILLED || allocation->kind == KS_SPILLED_FREED)
        ks_account_unspill(allocation->bytes);
    ks_account_give_back(allocation->cell, allocation->bytes);
}

static bool ends_with_context(const struct ks_allocation *entry,
                              const struct ks_allocation *wanted) {
    const bool ends = entry->kind != KS_NOTHING && entry->kind <= KS_LAST_OF_CONTEXT &&
                      entry->owner == wanted->owner && entry->since < wanted->since;
    if (ends)
        ks_allocations_settle(entry);
    return ends;
}

uint64_t ks_allocations_tick(void) {
    return atomic_fetch_add(&ticks, 1) + 1;
}

void ks_allocations_drop(CUcontext context, uint64_t before) {
    const struct ks_allocation wanted = {.owner = (uint64_t)(uintptr_t)context, .since = before};
    erase_all(ends_with_context, &wanted);
}

static bool is_of_pool(const struct ks_allocation *entry, const struct ks_allocation *wanted) {
    return entry->kind == KS_POOL_MEMORY && entry->owner == wanted->owner;
}

unsigned ks_allocations_drop_pool(uint64_t pool) {
    const struct ks_allocation wanted = {.owner = pool};
    return erase_all(is_of_pool, &wanted);
}

bool ks_allocations_search(ks_allocation_order *is_better, const struct ks_allocation *wanted,
                           struct ks_allocation *best) {
    bool found = false;
    for (unsigned i = 0; i < TABLES; i++) {
        ks_acquire(&tables[i].lock, KS_LOCK_ALLOCATIONS);
        for (size_t place = 0; place < tables[i].capacity; place++) {
            const struct ks_allocation *entry = &tables[i].entries[place];
            if (is_better(entry, found ? best : NULL, wanted)) {
                *best = *entry;
                found = true;
            }
        }
        ks_release(&tables[i].lock);
    }
    return found;
}

bool ks_allocations_change(const struct ks_allocation *seen, const struct ks_allocation *next) {
    struct table *table = enter(seen->handle);
    struct ks_allocation *entry = find(table, seen->kind, seen->handle);
    const bool is_as_seen =
        entry != NULL && entry->bytes == seen->bytes && entry->owner == seen->owner;
    if (is_as_seen) {
        entry->kind = next->kind;
        entry->bytes = next->bytes;
        entry->owner = next->owner;
        entry->cell = next->cell;
    }
    ks_release(&table->lock);
    return is_as_seen;
}

static bool take_tile(struct table *table, uint64_t array, struct ks_allocation *allocation) {
    for (size_t place = 0; place < table->capacity; place++) {
        struct ks_allocation *entry = &table->entries[place];
        if (entry->kind == KS_TILE && entry->bytes == array) {
            *allocation = *entry;
            erase(table, entry);
            return true;
        }
    }
    return false;
}

bool ks_allocations_take_tile(uint64_t array, struct ks_allocation *allocation) {
    bool taken = false;
    for (unsigned i = 0; i < TABLES && !taken; i++) {
        ks_acquire(&tables[i].lock, KS_LOCK_ALLOCATIONS);
        taken = take_tile(&tables[i], array, allocation);
        ks_release(&tables[i].lock);
    }
    return taken;
}

void ks_allocations_forget(void) {
    for (unsigned i = 0; i < TABLES; i++)
        tables[i] = (struct table){0};
}
