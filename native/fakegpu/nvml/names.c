/*
 * The names of NVML that driver_api has in its lists, and no other file defines: weakly, to return
 * NVML_ERROR_NOT_SUPPORTED.
 */
#include "../engine/debug.h"

enum { NVML_ERROR_NOT_SUPPORTED = 3 };

/* Not NVIDIA's prototypes: any call ends the same way. */
#define NVML_NAME(symbol)                                                                          \
    __attribute__((weak, visibility("default"))) int symbol(void) {                                \
        static int said;                                                                           \
        return not_modelled(#symbol, &said, NVML_ERROR_NOT_SUPPORTED);                             \
    }
#include "nvml_names.def"
