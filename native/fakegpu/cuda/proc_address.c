/* cuGetProcAddress: the newest ABI of a name up to the version that the caller was built for. */
#include "driver.h"
#include "names.h"

API cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult *status) {
    REQUIRE(symbol != NULL && function != NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(version >= 0 && version <= cuda_version && flags <= 2, CUDA_ERROR_INVALID_VALUE);
    bool known = false;
    const struct driver_name *name = NULL;
    if (flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        name = newest_name(symbol, version, true, &known);
    if (name == NULL)
        name = newest_name(symbol, version, false, &known);
    *function = name == NULL ? NULL : (void *)name->symbol;
    if (status != NULL)
        *status = name != NULL ? CU_GET_PROC_ADDRESS_SUCCESS
                  : known      ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                               : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}

API cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
