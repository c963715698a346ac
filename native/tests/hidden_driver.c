/*
 * A driver that exports nothing but cuGetProcAddress, as a later one may: functions are had by
 * asking alone. Each returns a number of its own; cuMemAlloc has a newer ABI from CUDA 14 on.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default"))) int

enum { SUCCESS = 0, FOUND = 0, NO_SUCH_NAME = 1 };
enum { NEW_ABI_SINCE = 3020, NEWER_ABI_SINCE = 14000 };

static int memory_info(void) {
    return 4201;
}

static int older_memory_info(void) {
    return 4204;
}

static int alloc(void) {
    return 4202;
}

static int newer_alloc(void) {
    return 4203;
}

API cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                        int *status);
API cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                        int *status) {
    (void)flags;
    *function = NULL;
    if (strcmp(name, "cuGetProcAddress") == 0)
        *function = (void *)cuGetProcAddress_v2;
    else if (strcmp(name, "cuMemGetInfo") == 0)
        *function = version < NEW_ABI_SINCE ? (void *)older_memory_info : (void *)memory_info;
    else if (strcmp(name, "cuMemAlloc") == 0)
        *function = version < NEWER_ABI_SINCE ? (void *)alloc : (void *)newer_alloc;
    else if (strcmp(name, "cuMemGetInfo_v2") == 0)
        *function = (void *)memory_info;
    if (status != NULL)
        *status = *function != NULL ? FOUND : NO_SUCH_NAME;
    return SUCCESS;
}

API cuGetProcAddress(const char *name, void **function, int version, uint64_t flags);
API cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
