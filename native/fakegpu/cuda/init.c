/* Initialisation, and which GPUs this process sees. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"
#include "ipc.h"
#include "names.h"
#include "queue.h"

struct driver driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

enum readiness { NOT_READY, READY, FORKED };
static int readiness; /* atomic */

CUresult driver_ready(void) {
    REQUIRE(!in_host_function(), CUDA_ERROR_NOT_PERMITTED);
    return __atomic_load_n(&readiness, __ATOMIC_ACQUIRE) == READY ? CUDA_SUCCESS
                                                                  : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult find_device(CUdevice ordinal, struct device **device) {
    TRY(driver_ready());
    REQUIRE(ordinal >= 0 && ordinal < driver.device_count, CUDA_ERROR_INVALID_DEVICE);
    *device = &driver.devices[ordinal];
    return CUDA_SUCCESS;
}

/* As with the real driver a child cannot use its parent's GPU. */
static void after_fork_in_child(void) {
    __atomic_store_n(&readiness, FORKED, __ATOMIC_RELEASE);
    engine_forget(&driver.engine);
}

static void show(unsigned gpu) {
    driver.devices[driver.device_count++].gpu = gpu;
}

/* One entry of CUDA_VISIBLE_DEVICES: an index into `present`, or the beginning of a UUID that only
 * one GPU has. Returns GPUS_MAX for what names none. */
static unsigned named(const char *entry, const uint32_t *present, unsigned count) {
    char *end;
    unsigned found = GPUS_MAX;
    long index = strtol(entry, &end, 10);
    if (end != entry && *end == '\0')
        return index >= 0 && index < (long)count ? present[index] : GPUS_MAX;
    if (strncmp(entry, "GPU-", 4) != 0)
        return GPUS_MAX;
    for (unsigned i = 0; i < count; i++) {
        if (strncmp(driver.engine.state->gpu[present[i]].uuid, entry, strlen(entry)) != 0)
            continue;
        if (found != GPUS_MAX)
            return GPUS_MAX;
        found = present[i];
    }
    return found;
}

/* The list ends at the first entry that names no GPU; one that comes twice leaves none at all. */
static void show_chosen(char *list, const uint32_t *present, unsigned count) {
    char *rest;
    for (char *entry = strtok_r(list, ", ", &rest); entry != NULL;
         entry = strtok_r(NULL, ", ", &rest)) {
        unsigned gpu = named(entry, present, count);
        if (gpu == GPUS_MAX)
            return;
        for (int i = 0; i < driver.device_count; i++) {
            if (driver.devices[i].gpu == gpu) {
                driver.device_count = 0;
                return;
            }
        }
        show(gpu);
    }
}

static void choose_devices(void) {
    uint32_t present[GPUS_MAX];
    unsigned count = engine_present(&driver.engine, present);
    const char *chosen = getenv("CUDA_VISIBLE_DEVICES");
    char *list = chosen == NULL ? NULL : strdup(chosen);
    if (list == NULL) {
        for (unsigned i = 0; i < count; i++)
            show(present[i]);
        return;
    }
    show_chosen(list, present, count);
    free(list);
}

static CUresult initialise(void) {
    Dl_info here;
    char error[512];
    const char *library = dladdr(&driver, &here) != 0 ? here.dli_fname : "";
    if (!engine_open(&driver.engine, ENGINE_RUN, library, error, sizeof error)) {
        fprintf(stderr, "fakegpu: %s\n", error);
        return CUDA_ERROR_SYSTEM_NOT_READY;
    }
    queues_choose();
    ipc_sweep();
    choose_devices();
    for (int i = 0; i < driver.device_count; i++)
        driver.devices[i].primary.device = &driver.devices[i];
    pthread_atfork(NULL, NULL, after_fork_in_child);
    return CUDA_SUCCESS;
}

API cuInit(unsigned int flags) {
    REQUIRE(flags == 0, CUDA_ERROR_INVALID_VALUE);
    CUresult result = CUDA_SUCCESS;
    int seen = __atomic_load_n(&readiness, __ATOMIC_ACQUIRE);
    REQUIRE(seen != FORKED, CUDA_ERROR_NOT_INITIALIZED);
    pthread_mutex_lock(&driver.lock);
    if (driver.engine.state == NULL)
        result = initialise();
    if (result == CUDA_SUCCESS && driver.device_count == 0)
        result = CUDA_ERROR_NO_DEVICE;
    if (result == CUDA_SUCCESS)
        __atomic_store_n(&readiness, READY, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&driver.lock);
    return result;
}

API cuDriverGetVersion(int *version) {
    REQUIRE(version != NULL, CUDA_ERROR_INVALID_VALUE);
    *version = cuda_version;
    return CUDA_SUCCESS;
}
