/*
 * What it takes a process to start on a GPU: the driver is opened, a few hundred functions are
 * looked up as the CUDA runtime does it, and a context comes and goes.
 *
 *   start-bench COUNT     so many processes one after another, then so many at once; prints JSON
 *   start-bench           is one of them
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <spawn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static const char *const names[] = {
#define DRIVER_NAME(base, version, symbol, thread) #base,
#include "driver_names.def"
#undef DRIVER_NAME
};

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int start_on_gpu(void) {
    CUresult (*address)(const char *, void **, int, cuuint64_t, int *);
    CUresult (*init)(unsigned), (*retain)(CUcontext *, CUdevice), (*release)(CUdevice);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *function;
    int status;
    CUcontext context;
    if (driver == NULL)
        return 1;
    *(void **)&address = dlsym(driver, "cuGetProcAddress_v2");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (i == 0 || strcmp(names[i], names[i - 1]) != 0)
            address(names[i], &function, 13000, 0, &status);
    }
    address("cuInit", (void **)&init, 13000, 0, &status);
    address("cuDevicePrimaryCtxRetain", (void **)&retain, 13000, 0, &status);
    address("cuDevicePrimaryCtxRelease", (void **)&release, 13000, 0, &status);
    return init(0) != 0 || retain(&context, 0) != 0 || release(0) != 0;
}

static pid_t start(void) {
    char *const arguments[] = {"start-bench", NULL};
    pid_t pid = -1;
    posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ);
    return pid;
}

static bool ended_well(pid_t pid) {
    int status;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int count, char **arguments) {
    static pid_t pids[1024];
    const int processes = count == 2 ? atoi(arguments[1]) : 0;
    bool well = processes <= 1024;
    if (processes == 0)
        return start_on_gpu();
    const int64_t first = now();
    for (int i = 0; i < processes && well; i++)
        well = ended_well(start());
    const int64_t second = now();
    for (int i = 0; i < processes && well; i++)
        pids[i] = start();
    for (int i = 0; i < processes && well; i++)
        well = ended_well(pids[i]);
    if (!well) {
        fprintf(stderr, "start-bench: a process did not end well\n");
        return 1;
    }
    printf("{\"one_after_another_ns\": %lld, \"at_once_ns\": %lld}\n", (long long)(second - first),
           (long long)(now() - second));
    return 0;
}
