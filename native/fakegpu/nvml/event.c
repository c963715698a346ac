/* Events: the errors of GPUs (XID), for programs that wait for them. */
#include <stdlib.h>
#include <time.h>

#include "machine.h"

#define NO_INSTANCE 0xFFFFFFFFu

/* How often a waiting set looks. */
#define LOOK_NS 5000000L

struct watched {
    bool registered;
    uint64_t seen; /* errors before registration, and those already returned */
};

struct nvmlEventSet_st {
    struct watched watched[GPUS_MAX]; /* by the machine's devices */
};

API nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    TRY(check_device(device));
    REQUIRE(types != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *types = nvmlEventTypeXidCriticalError;
    return NVML_SUCCESS;
}

API nvmlEventSetCreate(nvmlEventSet_t *set) {
    TRY(machine_ready());
    REQUIRE(set != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *set = calloc(1, sizeof **set);
    return *set == NULL ? NVML_ERROR_MEMORY : NVML_SUCCESS;
}

API nvmlEventSetFree(nvmlEventSet_t set) {
    TRY(machine_ready());
    REQUIRE(set != NULL, NVML_ERROR_INVALID_ARGUMENT);
    free(set);
    return NVML_SUCCESS;
}

API nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    TRY(check_device(device));
    REQUIRE(set != NULL, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE((types & ~(unsigned long long)nvmlEventTypeXidCriticalError) == 0,
            NVML_ERROR_NOT_SUPPORTED);
    struct watched *watched = &set->watched[place_of(device)];
    if (types != 0)
        *watched = (struct watched){true, xids_of(device)};
    return NVML_SUCCESS;
}

/* The oldest error that a set has not returned yet. */
static bool take(nvmlEventSet_t set, nvmlEventData_t *data) {
    for (unsigned i = 0; i < machine.device_count; i++) {
        struct watched *watched = &set->watched[i];
        nvmlDevice_t device = &machine.devices[i];
        if (!watched->registered)
            continue;
        uint64_t xids = xids_of(device);
        if (xids == watched->seen)
            continue;
        if (xids - watched->seen > XIDS_MAX)
            watched->seen = xids - XIDS_MAX;
        const struct gpu *gpu = &machine.engine.state->gpu[device->gpu];
        uint32_t number = gpu->xid[watched->seen++ % XIDS_MAX].number;
        *data = (nvmlEventData_t){device, nvmlEventTypeXidCriticalError, number, NO_INSTANCE,
                                  NO_INSTANCE};
        return true;
    }
    return false;
}

API nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int milliseconds) {
    TRY(machine_ready());
    REQUIRE(set != NULL && data != NULL, NVML_ERROR_INVALID_ARGUMENT);
    const struct timespec look = {0, LOOK_NS};
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (!take(set, data)) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        int64_t waited_ms =
            (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000;
        if (waited_ms >= milliseconds)
            return NVML_ERROR_TIMEOUT;
        clock_nanosleep(CLOCK_MONOTONIC, 0, &look, NULL);
    }
    return NVML_SUCCESS;
}

/* Its callers' structure ends before the instances. */
API nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int milliseconds) {
    nvmlEventData_t whole;
    REQUIRE(data != NULL, NVML_ERROR_INVALID_ARGUMENT);
    TRY(nvmlEventSetWait_v2(set, &whole, milliseconds));
    data->device = whole.device;
    data->eventType = whole.eventType;
    data->eventData = whole.eventData;
    return NVML_SUCCESS;
}
