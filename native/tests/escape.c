/*
 * A GPU program with all of libc in it: no loader reads what it was to preload.
 *
 * It makes a context on the first GPU, says with which result as a JSON line, and keeps it until
 * standard input ends. It does no more: in a static program a library that is opened has no
 * thread-local memory with every glibc, and the fake driver knows the current context by that.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *driver;

static void *find(const char *name) {
    void *function = dlsym(driver, name);
    if (function == NULL)
        exit(EXIT_FAILURE);
    return function;
}

int main(void) {
    int (*init)(unsigned), (*retain)(void **, int);
    void *context;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL)
        return EXIT_FAILURE;
    *(void **)&init = find("cuInit");
    *(void **)&retain = find("cuDevicePrimaryCtxRetain");
    int result = init(0);
    result = result ? result : retain(&context, 0);
    printf("{\"result\": %d}\n", result);
    fflush(stdout);
    while (getchar() != EOF) {
    }
    return EXIT_SUCCESS;
}
