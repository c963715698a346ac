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

enum stream { LEGACY, PER_THREAD };

struct hook {
    const char *name; /* as exported */
    const char *base; /* as cuGetProcAddress knows it */
    int since;        /* 1000 * major + 10 * minor */
    enum stream stream;
    void *ours;
};

static const struct hook hooks[KS_HOOKS] = {
#define HOOK(name, base, since, stream, parameters) {#name, #base, since, stream, (void *)name},
#define GATED(name, base, since, stream, parameters, arguments)                                    \
    {#name, #base, since, stream, (void *)name},
#include "hooks.def"
};

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

static int find(const char *name) {
    for (int index = 0; index < KS_HOOKS; index++) {
        if (ks_is_same(hooks[index].name, name))
            return index;
    }
    return -1;
}

int ks_is_hooked(const char *name) {
    if (!ks_begins(name, "cu") && !ks_begins(name, "nvml"))
        return 0;
    return find(name) >= 0;
}

void *ks_swap_exported(const char *name, void *address) {
    int index = find(name);
    if (index < 0 || exported(name, false) != address)
        return address;
    atomic_store_explicit(&real_functions[index], address, memory_order_relaxed);
    return hooks[index].ours;
}

/* The row that the driver's own version rule chooses: the newest ABI not above `version`. */
static int choose(const char *base, int version, enum stream stream) {
    int best = -1;
    for (int index = 0; index < KS_HOOKS; index++) {
        const struct hook *hook = &hooks[index];
        if (!ks_is_same(hook->base, base) || hook->stream != stream || hook->since > version)
            continue;
        if (best < 0 || hook->since > hooks[best].since)
            best = index;
    }
    return best;
}

void *ks_swap_versioned(const char *base, int version, uint64_t flags, void *address) {
    bool known_base = false;
    for (int index = 0; index < KS_HOOKS; index++) {
        if (is_nvml(hooks[index].name) || !ks_is_same(hooks[index].base, base))
            continue;
        known_base = true;
        if (exported(hooks[index].name, false) == address) {
            atomic_store_explicit(&real_functions[index], address, memory_order_relaxed);
            return hooks[index].ours;
        }
    }
    if (!known_base)
        return address;
    /* A driver may answer with an entry that it does not export: then its ABI follows from the
     * version. Functions without a stream have no per-thread twin. */
    bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    int index = per_thread ? choose(base, version, PER_THREAD) : -1;
    if (index < 0)
        index = choose(base, version, LEGACY);
    return index < 0 ? address : hooks[index].ours;
}
