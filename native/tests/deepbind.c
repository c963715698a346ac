/*
 * An object that is linked to the driver, as extension modules are: what it calls by name, what
 * its own dlsym finds, and what it finds behind itself. Opened with RTLD_DEEPBIND, its dependencies
 * come before preloads.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT void *deep_linked(const char *name);
EXPORT void *deep_dlsym(const char *name);
EXPORT void *next_dlsym(const char *name);
EXPORT void *default_dlsym(const char *name);

void *deep_linked(const char *name) {
    if (strcmp(name, "cuLaunchKernel") == 0)
        return (void *)cuLaunchKernel;
    return strcmp(name, "cuInit") == 0 ? (void *)cuInit : NULL;
}

void *deep_dlsym(const char *name) {
    return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
}

/* Not a tail call, which would make this function's caller the caller of dlsym. */
void *next_dlsym(const char *name) {
    void *volatile found = dlsym(RTLD_NEXT, name);
    return found;
}

void *default_dlsym(const char *name) {
    void *volatile found = dlsym(RTLD_DEFAULT, name);
    return found;
}
