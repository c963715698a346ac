#include "allocation.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ipc.h"

/* By address; driver.lock. Pointers, since most are moved at every change. */
static struct {
    struct allocation **entry;
    size_t used, room;
} table;

/* The first entry whose base is above the address. */
static size_t above(uint64_t address) {
    size_t low = 0, high = table.used;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table.entry[middle]->base > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

struct allocation *allocation_at(uint64_t address, uint64_t bytes) {
    size_t next = above(address);
    if (next == 0)
        return NULL;
    struct allocation *found = table.entry[next - 1];
    uint64_t offset = address - found->base;
    return offset < found->size && bytes <= found->size - offset ? found : NULL;
}

bool allocation_add(const struct allocation *allocation) {
    if (table.used == table.room) {
        size_t room = table.room == 0 ? 64 : table.room * 2;
        struct allocation **grown = realloc(table.entry, room * sizeof *grown);
        if (grown == NULL)
            return false;
        table.entry = grown;
        table.room = room;
    }
    struct allocation *added = malloc(sizeof *added);
    if (added == NULL)
        return false;
    *added = *allocation;
    added->id = ++driver.last_id;
    size_t place = above(allocation->base);
    memmove(&table.entry[place + 1], &table.entry[place],
            (table.used - place) * sizeof *table.entry);
    table.entry[place] = added;
    table.used++;
    return true;
}

void allocation_remove(struct allocation *allocation) {
    size_t place = above(allocation->base) - 1;
    table.used--;
    memmove(&table.entry[place], &table.entry[place + 1],
            (table.used - place) * sizeof *table.entry);
    free(allocation);
}

void allocation_drop(struct allocation *allocation) {
    if (allocation->charged > 0)
        device_uncharge(allocation->device, allocation->charged);
    if (allocation->kind == MEMORY_DEVICE && allocation->shared)
        ipc_remove(allocation->id);
    if (allocation->kind != MEMORY_REGISTERED)
        munmap((void *)allocation->base, allocation->size);
    allocation_remove(allocation);
}

struct allocation *allocation_where(bool (*chosen)(const struct allocation *, const void *),
                                    const void *context) {
    for (size_t i = table.used; i > 0; i--)
        if (chosen(table.entry[i - 1], context))
            return table.entry[i - 1];
    return NULL;
}

void release_memory_of(const struct CUctx_st *context) {
    for (size_t i = table.used; i > 0; i--)
        if (table.entry[i - 1]->context == context)
            allocation_drop(table.entry[i - 1]);
}

bool find_allocation(uint64_t address, uint64_t bytes, struct allocation *copy) {
    pthread_mutex_lock(&driver.lock);
    const struct allocation *found = allocation_at(address, bytes);
    if (found != NULL)
        *copy = *found;
    pthread_mutex_unlock(&driver.lock);
    return found != NULL;
}

bool memory_usable(uint64_t address, uint64_t bytes) {
    pthread_mutex_lock(&driver.lock);
    const struct allocation *found = allocation_at(address, 0);
    while (found != NULL && !found->hidden && bytes > found->base + found->size - address) {
        bytes -= found->base + found->size - address;
        address = found->base + found->size;
        found = allocation_at(address, 0);
    }
    bool usable = found != NULL && !found->hidden;
    pthread_mutex_unlock(&driver.lock);
    return usable;
}
