/*
 * Says where the functions are that a program gets: a line in, a JSON line out.
 *
 *   symbol NAME                     dlsym of the driver's handle
 *   default NAME                    dlsym of everything that is loaded: without the driver, or
 *   global NAME                     after it was opened with RTLD_GLOBAL
 *   nvml NAME                       dlsym of NVML's
 *   file PATH NAME                  dlsym of the handle that dlopen gives for a path
 *   version NAME VERSION            dlvsym of the driver's handle
 *   namespace NAME                  dlsym of the handle that dlmopen gives in a new namespace
 *   deep-linked NAME                what an object that is linked to the driver has under a name
 *                                   when it was opened with RTLD_DEEPBIND (deepbind.c)
 *   deep-dlsym NAME                 dlsym of such an object
 *   local NAME                      RTLD_DEFAULT of that object, opened without it
 *   behind NAME                     RTLD_NEXT of that object, opened without it
 *   address NAME VERSION FLAGS      cuGetProcAddress, five arguments
 *   address-v1 NAME VERSION FLAGS   cuGetProcAddress, four arguments; both were themselves found
 *                                   by cuGetProcAddress
 *   call NAME VERSION               calls what cuGetProcAddress gives, with two pointers to eight
 *                                   bytes; `result` is what it returns
 *   trampoline NAME                 dlsym of a library with functions named as the driver's
 *   constructed                     what a library's constructor found before main (constructor.c)
 *   next                            which marker RTLD_NEXT means in the library that asks
 *   empty                           cuGetProcAddress of the empty name at version 0: the pointer
 *                                   that it leaves, and what it returns by result and status
 *
 * An answer has the file and the exported name, both empty where there is none, and whether
 * dlerror returns an error afterwards.
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

typedef int address_function(const char *, void **, int, uint64_t, int *);
typedef int address_function_v1(const char *, void **, int, uint64_t);

/* cuGetProcAddress as the CUDA runtime finds it: by itself. */
static void *address_by_itself(int version) {
    address_function *first;
    void *found = NULL;
    int status;
    *(void **)&first = dlsym(open_library("libcuda.so.1"), "cuGetProcAddress_v2");
    return first("cuGetProcAddress", &found, version, 0, &status) == 0 ? found : NULL;
}

static void *by_address(char **words) {
    address_function *get;
    void *function = NULL;
    int status;
    *(void **)&get = address_by_itself(12000);
    const uint64_t flags = strtoull(words[3], NULL, 10);
    return get(words[1], &function, atoi(words[2]), flags, &status) == 0 ? function : NULL;
}

static void *by_address_v1(char **words) {
    address_function_v1 *get;
    void *function = NULL;
    *(void **)&get = address_by_itself(11030);
    const uint64_t flags = strtoull(words[3], NULL, 10);
    return get(words[1], &function, atoi(words[2]), flags) == 0 ? function : NULL;
}

static void *of_driver(char **words) {
    return dlsym(open_library("libcuda.so.1"), words[1]);
}

static void *of_default(char **words) {
    if (strcmp(words[0], "global") == 0)
        dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    return dlsym(RTLD_DEFAULT, words[1]);
}

static void *of_nvml(char **words) {
    return dlsym(open_library("libnvidia-ml.so.1"), words[1]);
}

static void *of_file(char **words) {
    return dlsym(open_library(words[1]), words[2]);
}

static void *of_version(char **words) {
    return dlvsym(open_library("libcuda.so.1"), words[1], words[2]);
}

static void *of_namespace(char **words) {
    static void *library;
    if (library == NULL)
        library = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
    return dlsym(library, words[1]);
}

static void *of_trampoline(char **words) {
    return dlsym(open_library("libtrampoline.so"), words[1]);
}

static void *of_deepbind(char **words) {
    void *object = dlopen("libdeepbind.so", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    void *(*ask)(const char *);
    *(void **)&ask =
        dlsym(object, strcmp(words[0], "deep-linked") == 0 ? "deep_linked" : "deep_dlsym");
    return ask != NULL ? ask(words[1]) : NULL;
}

static void *of_behind(char **words) {
    void *object = dlopen("libdeepbind.so", RTLD_NOW | RTLD_LOCAL);
    void *(*ask)(const char *);
    *(void **)&ask = dlsym(object, strcmp(words[0], "local") == 0 ? "default_dlsym" : "next_dlsym");
    return ask != NULL ? ask(words[1]) : NULL;
}

static void *of_constructor(char **words) {
    (void)words;
    void **found = dlsym(RTLD_DEFAULT, "found_by_constructor");
    return found != NULL ? *found : NULL;
}

static const struct way {
    const char *name;
    int words;
    void *(*find)(char **words);
} ways[] = {
    {"symbol",      2, of_driver     },
    {"default",     2, of_default    },
    {"global",      2, of_default    },
    {"nvml",        2, of_nvml       },
    {"file",        3, of_file       },
    {"version",     3, of_version    },
    {"namespace",   2, of_namespace  },
    {"deep-linked", 2, of_deepbind   },
    {"deep-dlsym",  2, of_deepbind   },
    {"behind",      2, of_behind     },
    {"local",       2, of_behind     },
    {"address",     4, by_address    },
    {"address-v1",  4, by_address_v1 },
    {"trampoline",  2, of_trampoline },
    {"constructed", 1, of_constructor},
};

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

static void say_empty(void) {
    address_function *get;
    void *function = &function;
    int status = -1;
    *(void **)&get = dlsym(open_library("libcuda.so.1"), "cuGetProcAddress_v2");
    const int result = get("", &function, 0, 0, &status);
    printf("{\"result\": %d, \"is_null\": %s, \"status\": %d}\n", result,
           function == NULL ? "true" : "false", status);
}

static void say_call(char **words) {
    char *question[] = {"address", words[1], words[2], "0"};
    uint64_t one = 0, other = 0;
    int (*function)(void *, void *);
    *(void **)&function = by_address(question);
    printf("{\"result\": %d}\n", function != NULL ? function(&one, &other) : -1);
}

static void answer(char **words, int count) {
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(words[0], ways[i].name) == 0 && count == ways[i].words) {
            say_where(ways[i].find(words));
            return;
        }
    }
    fprintf(stderr, "where: no such question: %s\n", words[0]);
    exit(2);
}

int main(void) {
    char line[4096];
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *words[5] = {0};
        int count = 0;
        for (char *word = strtok(line, " \n"); word != NULL && count < 4;
             word = strtok(NULL, " \n"))
            words[count++] = word;
        if (count == 0)
            continue;
        if (strcmp(words[0], "next") == 0)
            say_next();
        else if (strcmp(words[0], "empty") == 0)
            say_empty();
        else if (strcmp(words[0], "call") == 0 && count == 3)
            say_call(words);
        else
            answer(words, count);
    }
    return 0;
}
