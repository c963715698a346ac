/*
 * Says where the functions are that a program gets: a line in, a JSON line out.
 *
 *   symbol NAME                     dlsym of the driver's handle
 *   nvml NAME                       dlsym of NVML's
 *   address NAME VERSION FLAGS      cuGetProcAddress, five arguments
 *   trampoline NAME                 dlsym of a library with functions named as the driver's
 *   next                            which marker RTLD_NEXT means in the library that asks
 *
 * An answer has the file and the exported name, both empty where there is none, and whether
 * dlerror has something to say afterwards.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *open_library(const char *name) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        fprintf(stderr, "where: %s\n", dlerror());
    return library;
}

static void *by_address(char **words) {
    int (*get)(const char *, void **, int, uint64_t, int *);
    void *function = NULL;
    int status;
    *(void **)&get = dlsym(open_library("libcuda.so.1"), "cuGetProcAddress_v2");
    const uint64_t flags = strtoull(words[3], NULL, 10);
    return get(words[1], &function, atoi(words[2]), flags, &status) == 0 ? function : NULL;
}

static void *find(char **words) {
    if (strcmp(words[0], "symbol") == 0)
        return dlsym(open_library("libcuda.so.1"), words[1]);
    if (strcmp(words[0], "nvml") == 0)
        return dlsym(open_library("libnvidia-ml.so.1"), words[1]);
    if (strcmp(words[0], "trampoline") == 0)
        return dlsym(open_library("libtrampoline.so"), words[1]);
    return by_address(words);
}

static void say_where(void *function) {
    const bool failed = dlerror() != NULL;
    Dl_info info = {0};
    if (function != NULL)
        dladdr(function, &info);
    const char *file = info.dli_fname != NULL ? strrchr(info.dli_fname, '/') : NULL;
    printf("{\"file\": \"%s\", \"name\": \"%s\", \"error\": %s}\n", file != NULL ? file + 1 : "",
           info.dli_sname != NULL ? info.dli_sname : "", failed ? "true" : "false");
}

static void say_next(void) {
    int (*ask)(void) = NULL;
    *(void **)&ask = dlsym(RTLD_DEFAULT, "next_marker");
    printf("{\"marker\": %d}\n", ask != NULL ? ask() : -1);
}

int main(void) {
    char line[256];
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *words[5] = {0};
        int count = 0;
        for (char *word = strtok(line, " \n"); word != NULL && count < 4;
             word = strtok(NULL, " \n"))
            words[count++] = word;
        if (count == 1)
            say_next();
        else if (count > 1)
            say_where(find(words));
    }
    return 0;
}
