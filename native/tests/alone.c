/*
 * A program without a dynamic loader that opens the driver all the same, built as a static
 * position-independent executable by gcc: prints what cuInit returns, and whose it is.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    Dl_info info = {0};
    int (*init)(unsigned int) = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver != NULL)
        *(void **)&init = dlsym(driver, "cuInit");
    if (init == NULL) {
        fprintf(stderr, "alone: %s\n", dlerror());
        return 1;
    }
    const int result = init(0);
    dladdr(*(void **)&init, &info);
    const char *file = info.dli_fname != NULL ? strrchr(info.dli_fname, '/') : NULL;
    printf("{\"result\": %d, \"file\": \"%s\"}\n", result, file != NULL ? file + 1 : "");
    return 0;
}
