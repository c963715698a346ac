/*
 * Every name of the driver API, and cuGetProcAddress over them.
 *
 * driver_api/names.list has them, and driver_names.def is made of it: base name, the
 * CUDA version that introduced this ABI, the exported symbol. A symbol that no other file defines
 * is defined here, weakly, to return CUDA_ERROR_NOT_SUPPORTED: the linker keeps the real one where
 * there is one.
 */
#include <string.h>

#include "../engine/debug.h"
#include "names.h"

#define NOT_SUPPORTED 801

/* The table's own columns, not NVIDIA's prototypes: any call ends the same way. */
#define DRIVER_NAME(base, version, symbol, thread)                                                 \
    __attribute__((weak, visibility("default"))) int symbol(void) {                                \
        static int said;                                                                           \
        return not_modelled(#symbol, &said, NOT_SUPPORTED);                                        \
    }
#include "driver_names.def"
#undef DRIVER_NAME

static const struct driver_name names[] = {
#define DRIVER_NAME(base, version, symbol, thread) {#base, version, thread, symbol},
#include "driver_names.def"
#undef DRIVER_NAME
};

const struct driver_name *newest_name(const char *base, int version, bool thread, bool *known) {
    const struct driver_name *newest = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct driver_name *name = &names[i];
        if (name->thread != thread || name->version > cuda_version || strcmp(name->base, base) != 0)
            continue;
        *known = true;
        if (name->version <= version && (newest == NULL || name->version > newest->version))
            newest = name;
    }
    return newest;
}

void for_each_newer_name(int version, void (*visit)(void *function)) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].version > version)
            visit((void *)names[i].symbol);
}
