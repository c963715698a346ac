/*
 * Resolve, then swap.
 *
 * A caller who asks for a function by name gets the real answer first; only
 * where that answer is the driver's own function does ours take its place. So
 * a trampoline that some library exports under a driver's name, or a second
 * library that a handle points to, is left alone, and a function that this
 * driver does not have stays absent.
 */
#include "hooks.h"

#include "loader.h"
#include "text.h"

#include <stdatomic.h>
#include <stdbool.h>

struct hook {
    const char *name; /* as exported */
    const char *base; /* as cuGetProcAddress knows it */
    int since;        /* 1000 * major + 10 * minor */
    bool per_thread;  /* stream 0 is the thread's own */
    void *ours;       /* NULL: only its neighbours of the same base are hooked */
};

#include "hook_rows.h"

static void *_Atomic real_functions[KS_HOOKS];

static int driver_lacks_it(void) {
    return CUDA_ERROR_NOT_FOUND;
}

static int nvml_lacks_it(void) {
    return NVML_ERROR_FUNCTION_NOT_FOUND;
}

static bool is_nvml(const char *name) {
    return ks_begins(name, "nvml");
}

/* What the loaded driver (or NVML) exports as `name`; NULL where it is not loaded. */
static void *exported(const char *name, bool load) {
    return ks_library_symbol(is_nvml(name) ? "libnvidia-ml.so.1" : "libcuda.so.1", name, load);
}

void *ks_real(enum ks_hook_index index) {
    void *real = atomic_load_explicit(&real_functions[index], memory_order_relaxed);
    if (real != NULL)
        return real;
    const char *name = hooks[index].name;
    real = exported(name, true);
    if (real == NULL || real == hooks[index].ours)
        return is_nvml(name) ? (void *)nvml_lacks_it : (void *)driver_lacks_it;
    atomic_store_explicit(&real_functions[index], real, memory_order_relaxed);
    return real;
}

static uint32_t hash_of(const char *name) {
    uint32_t hash = 2166136261u;
    for (const unsigned char *byte = (const unsigned char *)name; *byte != 0; byte++)
        hash = (hash ^ *byte) * 16777619u;
    return hash;
}

/* The row of an exported name; -1 where there is none. */
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

int ks_is_hooked(const char *name) {
    if (!ks_begins(name, "cu") && !ks_begins(name, "nvml"))
        return 0;
    const int index = find(name);
    return index >= 0 && hooks[index].ours != NULL;
}

void *ks_hook_of(const char *name) {
    const int index = find(name);
    return index >= 0 ? hooks[index].ours : NULL;
}

bool ks_is_ours(const char *name, const void *address) {
    return address != NULL && ks_hook_of(name) == address;
}

/* Whether `address` is the real function of a row; remembered where it is. */
static bool is_real(int index, void *address) {
    if (atomic_load_explicit(&real_functions[index], memory_order_relaxed) == address)
        return true;
    if (exported(hooks[index].name, false) != address)
        return false;
    atomic_store_explicit(&real_functions[index], address, memory_order_relaxed);
    return true;
}

void *ks_swap_exported(const char *name, void *address) {
    const int index = find(name);
    if (index < 0 || hooks[index].ours == NULL || !is_real(index, address))
        return address;
    return hooks[index].ours;
}

/* The row that the driver's own version rule chooses: the newest ABI not above `version`. */
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

/* Whether the driver gives the same function to a caller of the newest version that the table
 * knows: if not, it is an ABI that came later, and no hook of ours fits it. */
static bool is_known_abi(const char *base, int version, uint64_t flags, void *address) {
    void *known = NULL;
    return version <= NEWEST_KNOWN ||
           (KS_REAL(cuGetProcAddress)(base, &known, NEWEST_KNOWN, flags) == CUDA_SUCCESS &&
            known == address);
}

void *ks_swap_versioned(const char *base, int version, uint64_t flags, void *address) {
    const struct range range = find_base(base);
    for (int index = range.first; index < range.end; index++) {
        if (is_real(index, address))
            return hooks[index].ours != NULL ? hooks[index].ours : address;
    }
    if (range.first == range.end || !is_known_abi(base, version, flags, address))
        return address;
    /* A driver may answer with an entry that it does not export: then its ABI follows from the
     * version. Functions without a stream have no per-thread twin. */
    const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    int index = per_thread ? choose(range, version, true) : -1;
    if (index < 0)
        index = choose(range, version, false);
    if (index < 0 || hooks[index].ours == NULL)
        return address;
    if (exported(hooks[index].name, false) == NULL)
        atomic_store_explicit(&real_functions[index], address, memory_order_relaxed);
    return hooks[index].ours;
}
