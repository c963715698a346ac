#include "lookup/real.h"

#include "lookup/loader.h"
#include "lookup/text.h"

#include <stdatomic.h>
#include <stddef.h>

static const char *const names[KS_HOOKS] = {
#define HOOK_NAME(symbol) #symbol,
#include "hook_names.def"
#undef HOOK_NAME
};

void *_Atomic ks_real_functions[KS_HOOKS];

static int driver_lacks_it(void) {
    return CUDA_ERROR_NOT_FOUND;
}

static int nvml_lacks_it(void) {
    return NVML_ERROR_FUNCTION_NOT_FOUND;
}

static bool is_nvml(const char *name) {
    return ks_begins(name, "nvml");
}

/* What the driver (or NVML) exports as `name`; NULL if it is not loaded, or has no such name. */
static void *exported(const char *name, bool load) {
    return ks_library_symbol(is_nvml(name) ? "libnvidia-ml.so.1" : "libcuda.so.1", name, load);
}

void *ks_find_real(enum ks_hook_index index, const void *hook) {
    const char *name = names[index];
    void *real = exported(name, true);
    if (real == NULL || real == hook)
        return is_nvml(name) ? (void *)nvml_lacks_it : (void *)driver_lacks_it;
    atomic_store_explicit(&ks_real_functions[index], real, memory_order_relaxed);
    return real;
}

bool ks_real_is(enum ks_hook_index index, void *address) {
    if (atomic_load_explicit(&ks_real_functions[index], memory_order_relaxed) == address)
        return true;
    if (exported(names[index], false) != address)
        return false;
    atomic_store_explicit(&ks_real_functions[index], address, memory_order_relaxed);
    return true;
}

void ks_real_remember(enum ks_hook_index index, void *address) {
    if (exported(names[index], false) == NULL)
        atomic_store_explicit(&ks_real_functions[index], address, memory_order_relaxed);
}
