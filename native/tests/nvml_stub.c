/*
 * An NVML whose GPU is also used by strangers: every list has process 1, the caller, and another
 * whose pid no process has. Each checks the caller's room as NVML does. The GPU's UUID is
 * $STUB_UUID.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define API       __attribute__((visibility("default"))) int
#define PROCESSES 3u
#define NOBODY    0x7FFFFFF0u
#define STRANGERS (UINT64_C(5) << 30)

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, INSUFFICIENT_SIZE = 7 };

struct process_v1 {
    unsigned pid;
    unsigned long long bytes;
};

struct process_v2 {
    unsigned pid;
    unsigned long long bytes;
    unsigned instances[2];
};

struct detail {
    unsigned pid;
    unsigned long long bytes;
    unsigned instances[2];
    unsigned long long protected_bytes;
};

struct details {
    unsigned version, mode, count;
    struct detail *processes;
};

struct sample {
    unsigned pid;
    unsigned long long time;
    unsigned parts[4];
};

struct usage {
    unsigned long long time;
    unsigned pid, parts[6];
};

struct usages {
    unsigned version, count;
    unsigned long long last_seen;
    struct usage *processes;
};

static unsigned pid_of(unsigned i) {
    return i == 0 ? 1 : i == 1 ? (unsigned)getpid() : NOBODY;
}

static int fit(unsigned *count, const void *room) {
    if (count == NULL || (room == NULL && *count != 0))
        return INVALID_ARGUMENT;
    const bool fits = *count >= PROCESSES;
    *count = PROCESSES;
    return fits ? SUCCESS : INSUFFICIENT_SIZE;
}

API nvmlInit_v2(void);
API nvmlInit_v2(void) {
    return SUCCESS;
}

API nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
API nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    static int handle;
    *device = &handle;
    return index == 0 ? SUCCESS : INVALID_ARGUMENT;
}

API nvmlDeviceGetUUID(void *device, char *uuid, unsigned length);
API nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    const char *name = getenv("STUB_UUID");
    (void)device;
    snprintf(uuid, length, "%s", name != NULL ? name : "");
    return SUCCESS;
}

#define LIST(name, type)                                                                           \
    API name(void *device, unsigned *count, type *processes);                                      \
    API name(void *device, unsigned *count, type *processes) {                                     \
        const int result = fit(count, processes);                                                  \
        (void)device;                                                                              \
        for (unsigned i = 0; result == SUCCESS && i < PROCESSES; i++)                              \
            processes[i] = (type){.pid = pid_of(i), .bytes = STRANGERS};                           \
        return result;                                                                             \
    }
#define LISTS(kind)                                                                                \
    LIST(nvmlDeviceGet##kind##RunningProcesses, struct process_v1)                                 \
    LIST(nvmlDeviceGet##kind##RunningProcesses_v2, struct process_v2)                              \
    LIST(nvmlDeviceGet##kind##RunningProcesses_v3, struct process_v2)

LISTS(Compute)
LISTS(Graphics)
LISTS(MPSCompute)

API nvmlDeviceGetRunningProcessDetailList(void *device, struct details *list);
API nvmlDeviceGetRunningProcessDetailList(void *device, struct details *list) {
    const int result = fit(&list->count, list->processes);
    (void)device;
    for (unsigned i = 0; result == SUCCESS && i < PROCESSES; i++)
        list->processes[i] = (struct detail){.pid = pid_of(i), .bytes = STRANGERS};
    return result;
}

API nvmlDeviceGetProcessUtilization(void *device, struct sample *samples, unsigned *count,
                                    unsigned long long last_seen);
API nvmlDeviceGetProcessUtilization(void *device, struct sample *samples, unsigned *count,
                                    unsigned long long last_seen) {
    const int result = fit(count, samples);
    (void)device;
    for (unsigned i = 0; result == SUCCESS && i < PROCESSES; i++)
        samples[i] = (struct sample){.pid = pid_of(i), .time = last_seen + 1, .parts = {50}};
    return result;
}

API nvmlDeviceGetProcessesUtilizationInfo(void *device, struct usages *list);
API nvmlDeviceGetProcessesUtilizationInfo(void *device, struct usages *list) {
    const int result = fit(&list->count, list->processes);
    (void)device;
    for (unsigned i = 0; result == SUCCESS && i < PROCESSES; i++)
        list->processes[i] = (struct usage){.pid = pid_of(i), .parts = {50}};
    return result;
}

API nvmlDeviceGetUtilizationRates(void *device, unsigned percent[2]);
API nvmlDeviceGetUtilizationRates(void *device, unsigned percent[2]) {
    (void)device;
    percent[0] = 80;
    percent[1] = 60;
    return SUCCESS;
}

API nvmlDeviceGetBAR1MemoryInfo(void *device, unsigned long long memory[3]);
API nvmlDeviceGetBAR1MemoryInfo(void *device, unsigned long long memory[3]) {
    (void)device;
    memory[0] = 4 * STRANGERS;
    memory[1] = 3 * STRANGERS;
    memory[2] = STRANGERS;
    return SUCCESS;
}
