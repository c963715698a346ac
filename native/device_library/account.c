/*
 * What a session holds is the sum of what its processes were charged. Taking that
 * sum for every allocation would cost two system calls and a read of every
 * slot. So a process that takes it also reserves some of what is left: its next
 * allocations come out of that reservation by one atomic operation. What is
 * set aside counts as held, so the limit holds at every moment; a process for
 * which too little is left takes it back from all others, so none is refused
 * because of memory that another does not use.
 */
#include "account.h"

#include "slots.h"
#include "system.h"

#include <stdatomic.h>

typedef _Atomic uint64_t counter;

#define SET_ASIDE_SHIFT 32
#define CHARGED_UNITS   UINT64_C(0xffffffff)

/* The limit under which this process has set memory aside: another limit needs a new sum. */
static counter seen_limit[KS_CELLS_MAX];

static counter *budget_of(int slot, unsigned cell) {
    return (counter *)&ks_slots_file()->budget[slot].cell[cell];
}

/* A copy for readers of the file: no decision uses it. */
static counter *shown_memory(int slot, unsigned cell) {
    return (counter *)&ks_slots_file()->slot[slot].memory_bytes[cell];
}

/* No less than 0: the container can write the file. */
static void show_less(counter *shown, uint64_t bytes) {
    uint64_t seen = atomic_load_explicit(shown, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(shown, &seen, seen > bytes ? seen - bytes : 0,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

static uint64_t units_of(uint64_t bytes) {
    return bytes / KS_MEMORY_UNIT + (bytes % KS_MEMORY_UNIT != 0);
}

static bool take_set_aside(counter *budget, uint64_t units) {
    uint64_t seen = atomic_load_explicit(budget, memory_order_relaxed);
    do {
        if (seen >> SET_ASIDE_SHIFT < units)
            return false;
    } while (
        !atomic_compare_exchange_weak(budget, &seen, seen - (units << SET_ASIDE_SHIFT) + units));
    return true;
}

struct held {
    uint64_t charged, set_aside; /* units */
};

static struct held sum(unsigned cell) {
    struct held held = {0};
    for (int slot = 0; slot < (int)KS_PROCESSES_MAX; slot++) {
        const uint64_t budget = atomic_load(budget_of(slot, cell));
        held.charged += budget & CHARGED_UNITS;
        held.set_aside += budget >> SET_ASIDE_SHIFT;
    }
    return held;
}

static void take_back_set_aside(unsigned cell) {
    for (int slot = 0; slot < (int)KS_PROCESSES_MAX; slot++)
        atomic_fetch_and(budget_of(slot, cell), CHARGED_UNITS);
}

/* A budget counts up to 2 TiB, so a larger limit counts as that. */
static uint64_t whole_units(uint64_t limit) {
    const uint64_t units = limit / KS_MEMORY_UNIT;
    return units < CHARGED_UNITS ? units : CHARGED_UNITS;
}

#define TRIES 16

static uint64_t left(const struct held *held, uint64_t limit) {
    const uint64_t all = held->charged + held->set_aside;
    return all < limit ? limit - all : 0;
}

/* Returns the units that are left of a limit, after taking back what is set aside if they are fewer
 * than `units`. Other processes set memory aside again when they free it, hence several tries. */
static uint64_t make_room(unsigned cell, uint64_t units, uint64_t limit) {
    atomic_fetch_and(budget_of(ks_slots_own(), cell), CHARGED_UNITS);
    struct held held = sum(cell);
    if (left(&held, limit) < units)
        ks_slots_clear_dead();
    for (int i = 0; i < TRIES && left(&held, limit) < units; i++) {
        take_back_set_aside(cell);
        held = sum(cell);
        if (held.set_aside == 0)
            break;
    }
    return left(&held, limit);
}

static bool charge_from_all(unsigned cell, uint64_t units, uint64_t limit) {
    if (!ks_slots_enter())
        return false;
    bool charged = false;
    if (ks_slots_take()) {
        const uint64_t room = make_room(cell, units, whole_units(limit));
        charged = units <= room;
        if (charged) {
            /* Half of it: the others find some too, and need not take it back at once. */
            const uint64_t set_aside = limit != KS_NO_LIMIT ? (room - units) / 2 : 0;
            atomic_fetch_add(budget_of(ks_slots_own(), cell),
                             units + (set_aside << SET_ASIDE_SHIFT));
            atomic_store(&seen_limit[cell], limit);
        }
    }
    ks_slots_leave();
    return charged;
}

void ks_account_join(void) {
    if (ks_slots_own() != KS_NO_SLOT || !ks_slots_enter())
        return;
    ks_slots_take();
    ks_slots_leave();
}

bool ks_account_charge(unsigned cell, uint64_t bytes, uint64_t limit) {
    const uint64_t units = units_of(bytes);
    const int slot = ks_slots_own();
    const bool may_take = slot != KS_NO_SLOT &&
                          atomic_load_explicit(&seen_limit[cell], memory_order_relaxed) == limit;
    if (!(may_take && take_set_aside(budget_of(slot, cell), units)) &&
        !charge_from_all(cell, units, limit))
        return false;
    atomic_fetch_add_explicit(shown_memory(ks_slots_own(), cell), units * KS_MEMORY_UNIT,
                              memory_order_relaxed);
    return true;
}

/* No more than was charged: the container can write the file, and may have cleared it. */
void ks_account_give_back(unsigned cell, uint64_t bytes) {
    const int slot = ks_slots_own();
    if (slot == KS_NO_SLOT || bytes == 0)
        return;
    counter *budget = budget_of(slot, cell);
    uint64_t units;
    uint64_t seen = atomic_load_explicit(budget, memory_order_relaxed);
    do {
        const uint64_t charged = seen & CHARGED_UNITS;
        units = units_of(bytes) < charged ? units_of(bytes) : charged;
    } while (
        !atomic_compare_exchange_weak(budget, &seen, seen + (units << SET_ASIDE_SHIFT) - units));
    show_less(shown_memory(slot, cell), units * KS_MEMORY_UNIT);
}

bool ks_account_pin(uint64_t bytes) {
    const int slot = ks_slots_own();
    if (slot != KS_NO_SLOT)
        atomic_fetch_add((counter *)&ks_slots_file()->slot[slot].host_bytes, bytes);
    return slot != KS_NO_SLOT;
}

void ks_account_unpin(uint64_t bytes) {
    const int slot = ks_slots_own();
    if (slot != KS_NO_SLOT)
        show_less((counter *)&ks_slots_file()->slot[slot].host_bytes, bytes);
}

void ks_account_spill(uint64_t bytes) {
    const int slot = ks_slots_own();
    if (slot != KS_NO_SLOT)
        atomic_fetch_add((counter *)&ks_slots_file()->slot[slot].spilled_bytes, bytes);
}

void ks_account_unspill(uint64_t bytes) {
    const int slot = ks_slots_own();
    if (slot != KS_NO_SLOT)
        show_less((counter *)&ks_slots_file()->slot[slot].spilled_bytes, bytes);
}

uint64_t ks_account_charged(unsigned cell) {
    if (!ks_slots_enter())
        return UINT64_MAX;
    ks_slots_clear_dead();
    const uint64_t bytes = sum(cell).charged * KS_MEMORY_UNIT;
    ks_slots_leave();
    return bytes;
}

unsigned ks_account_processes(unsigned cell, struct ks_process_use *uses, unsigned room) {
    unsigned count = 0;
    if (!ks_slots_enter())
        return 0;
    ks_slots_clear_dead();
    for (int slot = 0; slot < (int)KS_PROCESSES_MAX; slot++) {
        struct ks_counters_slot *process = &ks_slots_file()->slot[slot];
        const uint64_t units = atomic_load(budget_of(slot, cell)) & CHARGED_UNITS;
        const bool launches = atomic_load((counter *)&process->launches[cell]) != 0;
        if (atomic_load((atomic_uint *)&process->used) == 0 || (units == 0 && !launches))
            continue;
        if (count < room)
            uses[count] = (struct ks_process_use){process->pid, units * KS_MEMORY_UNIT};
        count++;
    }
    ks_slots_leave();
    return count;
}

void ks_account_show_launches(unsigned cell, uint64_t launches) {
    if (ks_slots_own() != KS_NO_SLOT)
        atomic_store((counter *)&ks_slots_file()->slot[ks_slots_own()].launches[cell], launches);
}
