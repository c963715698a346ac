#include "paths.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The version of all that a machine's first glibc had. */
#ifdef __x86_64__
#define FIRST_GLIBC "GLIBC_2.2.5"
#else
#define FIRST_GLIBC "GLIBC_2.17"
#endif

struct calls driver;
const char path_names[] = "direct default dlsym dlsym-ptsz dlvsym address address-v2 address-ptsz";

/* Every function at a version that no newer ABI of it comes before. */
struct request {
    const char *base, *exported, *twin; /* twin: as exported for per-thread default streams */
    int version;
};

static void *library;
static bool per_thread;
static void *(*find_symbol)(void *, const char *) = dlsym;

static void *by_symbol(const struct request *request) {
    return find_symbol(library, per_thread ? request->twin : request->exported);
}

static void *by_address(const struct request *request) {
    int (*get)(const char *, void **, int, cuuint64_t);
    void *function = NULL;
    *(void **)&get = dlsym(library, "cuGetProcAddress");
    return get(request->base, &function, request->version, 0) == 0 ? function : NULL;
}

static void *by_address_v2(const struct request *request) {
    int (*get)(const char *, void **, int, cuuint64_t, int *);
    void *function = NULL;
    int status;
    *(void **)&get = dlsym(library, "cuGetProcAddress_v2");
    const cuuint64_t flags = per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0;
    /* The twins came in CUDA 7 and later than their functions. */
    const int version = per_thread && request->version < 7000 && request->twin != request->exported
                            ? 7000
                            : request->version;
    return get(request->base, &function, version, flags, &status) == 0 ? function : NULL;
}

static bool find_all(void *(*find)(const struct request *)) {
#define CALL(member, base, suffix, version, twin, parameters)                                      \
    *(void **)&driver.member =                                                                     \
        find(&(struct request){#base, #base #suffix, #base #suffix #twin, version});               \
    if (driver.member == NULL) {                                                                   \
        fprintf(stderr, "probe: no %s\n", #base #suffix);                                          \
        return false;                                                                              \
    }
    CALLS
#undef CALL
    return true;
}

#ifdef LINKED
#define CALL(member, base, suffix, version, twin, parameters) extern int base##suffix parameters;
CALLS
#undef CALL

static bool take_linked(void) {
#define CALL(member, base, suffix, version, twin, parameters) driver.member = base##suffix;
    CALLS
#undef CALL
    return true;
}
#else
static bool take_linked(void) {
    return false;
}
#endif

/* As profilers and other preloaded libraries find the real dlsym. */
static bool find_dlsym_by_version(void) {
    void *(*old)(void *, const char *);
    *(void **)&old = dlvsym(RTLD_DEFAULT, "dlsym", FIRST_GLIBC);
    *(void **)&find_symbol = dlvsym(dlopen("libc.so.6", RTLD_LAZY), "dlsym", FIRST_GLIBC);
    return old != NULL && find_symbol == old;
}

bool find_driver(const char *path) {
    if (strcmp(path, "direct") == 0)
        return take_linked();
    const bool global = strcmp(path, "default") == 0;
    library = dlopen("libcuda.so.1", RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL));
    if (library == NULL)
        return false;
    per_thread = strstr(path, "-ptsz") != NULL;
    if (global)
        library = RTLD_DEFAULT;
    if (strcmp(path, "dlvsym") == 0)
        return find_dlsym_by_version() && find_all(by_symbol);
    if (strcmp(path, "address") == 0)
        return find_all(by_address);
    if (strncmp(path, "address-", 8) == 0)
        return find_all(by_address_v2);
    return (global || strncmp(path, "dlsym", 5) == 0) && find_all(by_symbol);
}

int nvml_memory(struct nvml_memory *memory, struct nvml_memory_v2 *memory_v2) {
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*init)(void), (*get_handle)(unsigned, void **);
    int (*get)(void *, struct nvml_memory *), (*get_v2)(void *, struct nvml_memory_v2 *);
    void *device;
    if (nvml == NULL)
        return -1;
    *(void **)&init = dlsym(nvml, "nvmlInit_v2");
    *(void **)&get_handle = dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&get = dlsym(nvml, "nvmlDeviceGetMemoryInfo");
    *(void **)&get_v2 = dlsym(nvml, "nvmlDeviceGetMemoryInfo_v2");
    int result = init();
    if (result == 0)
        result = get_handle(0, &device);
    if (result == 0)
        result = get(device, memory);
    return result != 0 ? result : get_v2(device, memory_v2);
}
