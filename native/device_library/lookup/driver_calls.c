#include "lookup/driver_calls.h"

#include "lookup/loader.h"

#include <stdatomic.h>
#include <string.h>

static const char *const names[KS_CALLS] = {
#define CALL(member, name, parameters) name,
    KS_DRIVER_CALLS
#undef CALL
};

static void *_Atomic functions[KS_CALLS];

static int driver_lacks_it(void) {
    return CUDA_ERROR_NOT_FOUND;
}

void *ks_driver_call(enum ks_driver_call call) {
    void *function = atomic_load_explicit(&functions[call], memory_order_relaxed);
    if (function != NULL)
        return function;
    const char *name = names[call];
    const char *library = strncmp(name, "nvml", 4) == 0 ? "libnvidia-ml.so.1" : "libcuda.so.1";
    function = ks_library_symbol(library, name, false);
    if (function == NULL)
        return (void *)driver_lacks_it;
    atomic_store_explicit(&functions[call], function, memory_order_relaxed);
    return function;
}

bool ks_driver_has(enum ks_driver_call call) {
    return ks_driver_call(call) != (void *)driver_lacks_it;
}
