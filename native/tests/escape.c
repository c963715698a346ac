/*
 * A GPU program with all of libc in it: no loader reads the preload file.
 *
 * It makes a context on the first GPU, prints the result as a JSON line, and keeps it until
 * standard input ends. It does no more: in a static program a library that is opened has no
 * thread-local memory with every glibc, and the fake driver knows the current context by that.
 *
 *   escape             stays as it is
 *   escape PROGRAM     becomes another program, which has on the GPU what this one had: as one that
 *                      talks to the GPU without NVIDIA's libraries would
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DESCRIPTORS 256

static void *driver;

static void *find(const char *name) {
    void *function = dlsym(driver, name);
    if (function == NULL)
        exit(EXIT_FAILURE);
    return function;
}

static int become(char **command) {
    for (int fd = STDERR_FILENO + 1; fd < DESCRIPTORS; fd++)
        fcntl(fd, F_SETFD, 0);
    execv(command[0], command);
    return EXIT_FAILURE;
}

int main(int argc, char **argv) {
    int (*init)(unsigned), (*retain)(void **, int);
    void *context;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL)
        return EXIT_FAILURE;
    *(void **)&init = find("cuInit");
    *(void **)&retain = find("cuDevicePrimaryCtxRetain");
    int result = init(0);
    result = result ? result : retain(&context, 0);
    if (result == 0 && argc > 1)
        return become(argv + 1);
    printf("{\"result\": %d}\n", result);
    fflush(stdout);
    while (getchar() != EOF) {
    }
    return EXIT_SUCCESS;
}
