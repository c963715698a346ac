/*
 * The processes on a GPU: a session sees only its own.
 *
 * NVML names processes by the host's pids, which mean nothing in a container
 * or belong to other processes there. So the list of processes that compute is
 * made from the session's account, with the pids of its own namespace and the
 * bytes that they are charged; of NVML's other lists only the entries with such
 * a pid remain.
 */
#include "account.h"
#include "lookup/real.h"
#include "nvml_cell.h"
#include "session.h"

#include "kubeshare_wire.h"

#include <stdbool.h>
#include <stddef.h>

struct own {
    struct ks_process_use uses[KS_PROCESSES_MAX];
    unsigned count;
};

/* The session's processes on a GPU; false if the GPU is not in the session. */
static bool find_own(nvmlDevice_t device, struct own *own) {
    const int cell = ks_nvml_cell(device);
    if (cell == KS_NO_CELL)
        return false;
    own->count = ks_account_processes((unsigned)cell, own->uses, KS_PROCESSES_MAX);
    return true;
}

static bool is_own(const struct own *own, unsigned pid) {
    for (unsigned i = 0; i < own->count; i++) {
        if (own->uses[i].pid == pid)
            return true;
    }
    return false;
}

/* Whether NVML has a list, though the caller has no room for an entry. */
static bool is_answer(nvmlReturn_t result) {
    return result == NVML_SUCCESS || result == NVML_ERROR_INSUFFICIENT_SIZE;
}

/* Writes how many there are to the caller's count, and returns whether they fit. */
static nvmlReturn_t fit(const struct own *own, unsigned *count) {
    const bool fits = own->count <= *count;
    *count = own->count;
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

/* ---- processes that compute --------------------------------------------------- */

#define NO_INSTANCES  (unsigned)NVML_NO_INSTANCE, (unsigned)NVML_NO_INSTANCE
#define ENTRY_v1(use) {(use).pid, (use).bytes}
#define ENTRY_v2(use) {(use).pid, (use).bytes, NO_INSTANCES}
#define DETAIL(use)   {(use).pid, (use).bytes, NO_INSTANCES, 0}

/* The body of a list, with the `type` and `entry` of its version. */
#define COMPUTE_PROCESSES(name, type, entry)                                                       \
    int name(nvmlDevice_t device, unsigned int *count, type *processes) {                          \
        struct own own;                                                                            \
        unsigned none = 0;                                                                         \
        if (count == NULL || (processes == NULL && *count != 0) || !find_own(device, &own))        \
            return KS_REAL(name)(device, count, processes);                                        \
        nvmlReturn_t result = KS_REAL(name)(device, &none, NULL);                                  \
        if (is_answer(result))                                                                     \
            result = fit(&own, count);                                                             \
        for (unsigned i = 0; result == NVML_SUCCESS && i < own.count; i++)                         \
            processes[i] = (type)entry(own.uses[i]);                                               \
        return result;                                                                             \
    }

COMPUTE_PROCESSES(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, ENTRY_v1)
COMPUTE_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_t, ENTRY_v2)
COMPUTE_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, ENTRY_v2)

/* ---- NVML's lists, without the processes of others ------------------------------ */

/* Moves the entries of own processes to the front, within the caller's array. */
#define KEEP_OWN(own, entries, count)                                                              \
    do {                                                                                           \
        unsigned kept = 0;                                                                         \
        for (unsigned i = 0; i < (count); i++) {                                                   \
            if (is_own(own, (entries)[i].pid))                                                     \
                (entries)[kept++] = (entries)[i];                                                  \
        }                                                                                          \
        (count) = kept;                                                                            \
    } while (0)

#define OTHER_PROCESSES(name, type)                                                                \
    int name(nvmlDevice_t device, unsigned int *count, type *processes) {                          \
        struct own own;                                                                            \
        const nvmlReturn_t result = KS_REAL(name)(device, count, processes);                       \
        if (result == NVML_SUCCESS && processes != NULL && find_own(device, &own))                 \
            KEEP_OWN(&own, processes, *count);                                                     \
        return result;                                                                             \
    }

OTHER_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
OTHER_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_t)
OTHER_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
OTHER_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
OTHER_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_t)
OTHER_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)

static nvmlReturn_t list_details(nvmlDevice_t device, const struct own *own,
                                 nvmlProcessDetailList_t *list) {
    nvmlProcessDetailList_t probe = {.version = list->version, .mode = list->mode};
    nvmlReturn_t result = KS_REAL(nvmlDeviceGetRunningProcessDetailList)(device, &probe);
    if (is_answer(result))
        result = fit(own, &list->count);
    for (unsigned i = 0; result == NVML_SUCCESS && i < own->count; i++)
        list->processes[i] = (nvmlProcessDetail_v1_t)DETAIL(own->uses[i]);
    return result;
}

int nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *list) {
    struct own own;
    if (list == NULL || (list->processes == NULL && list->count != 0) || !find_own(device, &own))
        return KS_REAL(nvmlDeviceGetRunningProcessDetailList)(device, list);
    if (list->mode == NVML_PROCESS_MODE_COMPUTE || list->mode == NVML_PROCESS_MODE_ALL)
        return list_details(device, &own, list);
    const nvmlReturn_t result = KS_REAL(nvmlDeviceGetRunningProcessDetailList)(device, list);
    if (result == NVML_SUCCESS && list->processes != NULL)
        KEEP_OWN(&own, list->processes, list->count);
    return result;
}

/* ---- how much each uses --------------------------------------------------------- */

/* NVML returns "not found" instead of an empty list. */
static nvmlReturn_t found(unsigned count) {
    return count > 0 ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

int nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                    unsigned int *count, unsigned long long last_seen) {
    struct own own;
    const nvmlReturn_t result =
        KS_REAL(nvmlDeviceGetProcessUtilization)(device, samples, count, last_seen);
    if (result != NVML_SUCCESS || samples == NULL || !find_own(device, &own))
        return result;
    KEEP_OWN(&own, samples, *count);
    return found(*count);
}

int nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                          nvmlProcessesUtilizationInfo_t *list) {
    struct own own;
    const nvmlReturn_t result = KS_REAL(nvmlDeviceGetProcessesUtilizationInfo)(device, list);
    if (result != NVML_SUCCESS || list->processes == NULL || !find_own(device, &own))
        return result;
    KEEP_OWN(&own, list->processes, list->count);
    return found(list->count);
}
