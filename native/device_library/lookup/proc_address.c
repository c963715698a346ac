/*
 * The driver's own ways to ask for a function: cuGetProcAddress and the export tables.
 */
#include "lookup/hooks.h"
#include "lookup/real.h"
#include "system.h"

#include <stddef.h>

int cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    const CUresult result = KS_REAL(cuGetProcAddress)(symbol, function, version, flags);
    if (result == CUDA_SUCCESS && symbol != NULL && function != NULL && *function != NULL)
        *function = ks_swap_versioned(symbol, version, flags, *function);
    return result;
}

int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                        int *status) {
    const CUresult result = KS_REAL(cuGetProcAddress_v2)(symbol, function, version, flags, status);
    if (result == CUDA_SUCCESS && symbol != NULL && function != NULL && *function != NULL)
        *function = ks_swap_versioned(symbol, version, flags, *function);
    return result;
}

/* Calls through such a table are not hooked: the debug line helps to find ways past the library. */
int cuGetExportTable(const void **table, const CUuuid *id) {
    const CUresult result = KS_REAL(cuGetExportTable)(table, id);
    if (id != NULL)
        ks_debug("export table %02x%02x%02x%02x-...: result %d", id->bytes[0], id->bytes[1],
                 id->bytes[2], id->bytes[3], result);
    return result;
}
