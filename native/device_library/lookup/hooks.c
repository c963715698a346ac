/*
 * Resolve, then swap.
 *
 * A caller that asks for a function by name gets the real answer first. Only
 * if that answer is the driver's own function does the hook replace it. So a
 * trampoline that another library exports under a driver's name, or a second
 * library that a handle points to, stays as it is, and a function that this
 * driver does not have stays absent.
 */
#include "lookup/hooks.h"

#include "lookup/driver_calls.h"
#include "lookup/hook_table.h"
#include "lookup/real.h"
#include "lookup/text.h"

#include <stddef.h>

struct hook {
    const char *name; /* as exported */
    const char *base; /* as cuGetProcAddress knows it */
    int since;        /* 1000 * major + 10 * minor */
    bool per_thread;  /* stream 0 is the thread's own */
};

#include "hook_rows.h"

static uint32_t hash_of(const char *name) {
    uint32_t hash = 2166136261u;
    for (const unsigned char *byte = (const unsigned char *)name; *byte != 0; byte++)
        hash = (hash ^ *byte) * 16777619u;
    return hash;
}

/* The row of an exported name; -1 if there is none. */
static int find(const char *name) {
    const uint32_t mask = sizeof name_slots / sizeof *name_slots - 1;
    for (uint32_t place = hash_of(name) & mask; name_slots[place] != 0;
         place = (place + 1) & mask) {
        const int index = name_slots[place] - 1;
        if (ks_is_same(hooks[index].name, name))
            return index;
    }
    return -1;
}

struct range {
    int first, end;
};

/* The rows of a base name: all its ABIs. */
static struct range find_base(const char *base) {
    const uint32_t mask = sizeof base_slots / sizeof *base_slots - 1;
    for (uint32_t place = hash_of(base) & mask; base_slots[place] != 0;
         place = (place + 1) & mask) {
        const int index = base_slots[place] - 1;
        const struct range range = {first_of_base[index], first_of_base[index + 1]};
        if (ks_is_same(hooks[range.first].base, base))
            return range;
    }
    return (struct range){0, 0};
}

bool ks_is_hooked(const char *name) {
    if (!ks_begins(name, "cu") && !ks_begins(name, "nvml"))
        return false;
    const int index = find(name);
    return index >= 0 && ks_hook_functions[index] != NULL;
}

void *ks_hook_of(const char *name) {
    const int index = find(name);
    return index >= 0 ? ks_hook_functions[index] : NULL;
}

bool ks_is_ours(const char *name, const void *address) {
    return address != NULL && ks_hook_of(name) == address;
}

void *ks_swap_exported(const char *name, void *address) {
    const int index = find(name);
    if (index < 0 || ks_hook_functions[index] == NULL ||
        !ks_real_is((enum ks_hook_index)index, address))
        return address;
    return ks_hook_functions[index];
}

/* The row by the driver's own version rule: the newest ABI that is not newer than `version`. */
static int choose(struct range range, int version, bool per_thread) {
    int best = -1;
    for (int index = range.first; index < range.end; index++) {
        const struct hook *hook = &hooks[index];
        if (hook->per_thread == per_thread && hook->since <= version &&
            (best < 0 || hook->since > hooks[best].since))
            best = index;
    }
    return best;
}

/* Whether the driver returns the same function for the newest version in the table. If not, the ABI
 * is newer than the table, and no hook fits it. */
static bool is_known_abi(const char *base, int version, uint64_t flags, void *address) {
    void *known = NULL;
    return version <= NEWEST_KNOWN ||
           (KS_DRIVER(get_proc_address)(base, &known, NEWEST_KNOWN, flags) == CUDA_SUCCESS &&
            known == address);
}

/* The name of an ABI, such as cuMemAlloc_v2, where a driver answers to it: no other fits. */
static void *swap_symbol(const char *name, void *address) {
    const int index = find(name);
    if (index < 0 || ks_hook_functions[index] == NULL)
        return address;
    ks_real_remember((enum ks_hook_index)index, address);
    return ks_hook_functions[index];
}

void *ks_swap_versioned(const char *base, int version, uint64_t flags, void *address) {
    const struct range range = find_base(base);
    for (int index = range.first; index < range.end; index++) {
        if (ks_real_is((enum ks_hook_index)index, address))
            return ks_hook_functions[index] != NULL ? ks_hook_functions[index] : address;
    }
    if (range.first == range.end)
        return swap_symbol(base, address);
    if (!is_known_abi(base, version, flags, address))
        return address;
    /* A driver may return an entry that it does not export: its ABI then follows from the version.
     * Functions without a stream have no per-thread twin. */
    const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    int index = per_thread ? choose(range, version, true) : -1;
    if (index < 0)
        index = choose(range, version, false);
    if (index < 0 || ks_hook_functions[index] == NULL)
        return address;
    ks_real_remember((enum ks_hook_index)index, address);
    return ks_hook_functions[index];
}
