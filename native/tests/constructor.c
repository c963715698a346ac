/*
 * A library that wants the driver before main, and before whatever is loaded after it.
 */
#include <dlfcn.h>
#include <stddef.h>

__attribute__((visibility("default"))) void *found_by_constructor;

__attribute__((constructor)) static void find(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned int) = NULL;
    *(void **)&init = dlsym(driver, "cuInit");
    if (init != NULL && init(0) == 0)
        found_by_constructor = dlsym(driver, "cuLaunchKernel");
}
