/*
 * A hash table with open addressing under one lock. Its memory comes from mmap:
 * the allocator of the application may be hooked too, and may be the caller.
 */
#include "allocations.h"

#include "account.h"
#include "system.h"

#include <stddef.h>
#include <sys/mman.h>

#define FIRST_CAPACITY ((size_t)1024)

/* Values of `pointer` that no allocation has. */
#define EMPTY   ((CUdeviceptr)0)
#define REMOVED (~(CUdeviceptr)0)

struct table {
    struct ks_allocation *entries;
    size_t capacity; /* a power of two */
    size_t occupied; /* entries that are not EMPTY */
};

static ks_lock lock;
static struct table table;

static size_t place_of(CUdeviceptr pointer, size_t capacity) {
    const uint64_t mixed = (uint64_t)pointer * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(mixed >> 20) & (capacity - 1);
}

static void insert(struct table *into, const struct ks_allocation *allocation) {
    size_t place = place_of(allocation->pointer, into->capacity);
    while (into->entries[place].pointer != EMPTY)
        place = (place + 1) & (into->capacity - 1);
    into->entries[place] = *allocation;
    into->occupied++;
}

static bool is_live(const struct ks_allocation *entry) {
    return entry->pointer != EMPTY && entry->pointer != REMOVED;
}

static size_t count_live(void) {
    size_t live = 0;
    for (size_t i = 0; i < table.capacity; i++)
        live += is_live(&table.entries[i]);
    return live;
}

/* Makes room for one more: a table of the right size, without the removed entries. */
static bool make_room(void) {
    if ((table.occupied + 1) * 4 <= table.capacity * 3)
        return true;
    struct table next = {.capacity = FIRST_CAPACITY};
    while (next.capacity < (count_live() + 1) * 2)
        next.capacity *= 2;
    const size_t bytes = next.capacity * sizeof *next.entries;
    next.entries = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (next.entries == MAP_FAILED)
        return false;
    for (size_t i = 0; i < table.capacity; i++) {
        if (is_live(&table.entries[i]))
            insert(&next, &table.entries[i]);
    }
    if (table.entries != NULL)
        munmap(table.entries, table.capacity * sizeof *table.entries);
    table = next;
    return true;
}

bool ks_allocations_add(const struct ks_allocation *allocation) {
    ks_acquire(&lock);
    const bool added = make_room();
    if (added)
        insert(&table, allocation);
    ks_release(&lock);
    return added;
}

static struct ks_allocation *find(CUdeviceptr pointer) {
    if (table.capacity == 0 || pointer == EMPTY || pointer == REMOVED)
        return NULL;
    size_t place = place_of(pointer, table.capacity);
    while (table.entries[place].pointer != EMPTY) {
        if (table.entries[place].pointer == pointer)
            return &table.entries[place];
        place = (place + 1) & (table.capacity - 1);
    }
    return NULL;
}

bool ks_allocations_take(CUdeviceptr pointer, struct ks_allocation *allocation) {
    ks_acquire(&lock);
    struct ks_allocation *entry = find(pointer);
    if (entry != NULL) {
        *allocation = *entry;
        entry->pointer = REMOVED;
    }
    ks_release(&lock);
    return entry != NULL;
}

void ks_allocations_drop(CUcontext context) {
    ks_acquire(&lock);
    for (size_t i = 0; i < table.capacity; i++) {
        struct ks_allocation *entry = &table.entries[i];
        if (!is_live(entry) || entry->context != context)
            continue;
        ks_account_give_back(entry->cell, entry->bytes);
        entry->pointer = REMOVED;
    }
    ks_release(&lock);
}

void ks_allocations_forget(void) {
    lock = (ks_lock){0};
    table = (struct table){0};
}
