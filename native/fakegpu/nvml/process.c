/*
 * The processes that use a GPU, with the pids that the caller's PID namespace
 * gives them: the kernel reports them for the record lock that each holds. A
 * process that this namespace does not see is left out.
 */
#include "../engine/timeline.h"
#include "machine.h"

#define NO_INSTANCE 0xFFFFFFFFu

static unsigned list(nvmlDevice_t device, nvmlProcessInfo_v2_t infos[CLIENTS_MAX]) {
    const struct gpu *gpu = &machine.engine.state->gpu[device->gpu];
    unsigned count = 0;
    engine_enter(&machine.engine, device->gpu);
    engine_reap(&machine.engine, device->gpu);
    for (uint32_t i = next_client(gpu, 0); i < CLIENTS_MAX; i = next_client(gpu, i + 1)) {
        const struct client *client = &gpu->client[i];
        pid_t pid = 0;
        if (engine_process_alive(&machine.engine, client->record, &pid) && pid != 0)
            infos[count++] = (nvmlProcessInfo_v2_t){(unsigned)pid, client->memory_bytes,
                                                    NO_INSTANCE, NO_INSTANCE};
    }
    engine_leave(&machine.engine, device->gpu);
    return count;
}

/* Finds the processes, and checks the caller's room for them as every version does. */
static nvmlReturn_t find(nvmlDevice_t device, unsigned *room, const void *infos,
                         nvmlProcessInfo_v2_t found[CLIENTS_MAX]) {
    TRY(check_device(device));
    REQUIRE(room != NULL && (infos != NULL || *room == 0), NVML_ERROR_INVALID_ARGUMENT);
    unsigned count = list(device, found);
    bool fits = count <= *room;
    *room = count;
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

API nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                         nvmlProcessInfo_v1_t *infos) {
    nvmlProcessInfo_v2_t found[CLIENTS_MAX];
    TRY(find(device, count, infos, found));
    for (unsigned i = 0; i < *count; i++)
        infos[i] = (nvmlProcessInfo_v1_t){found[i].pid, found[i].usedGpuMemory};
    return NVML_SUCCESS;
}

API nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                            nvmlProcessInfo_v2_t *infos) {
    nvmlProcessInfo_v2_t found[CLIENTS_MAX];
    TRY(find(device, count, infos, found));
    for (unsigned i = 0; i < *count; i++)
        infos[i] = found[i];
    return NVML_SUCCESS;
}

API nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                            nvmlProcessInfo_t *infos) {
    return nvmlDeviceGetComputeRunningProcesses_v2(device, count, infos);
}

API nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *details) {
    nvmlProcessInfo_v2_t found[CLIENTS_MAX];
    REQUIRE(details != NULL, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(details->version == nvmlProcessDetailList_v1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(details->mode <= NVML_PROCESS_MODE_ALL, NVML_ERROR_INVALID_ARGUMENT);
    if (details->mode == NVML_PROCESS_MODE_GRAPHICS || details->mode == NVML_PROCESS_MODE_MPS) {
        details->numProcArrayEntries = 0;
        return check_device(device);
    }
    TRY(find(device, &details->numProcArrayEntries, details->procArray, found));
    for (unsigned i = 0; i < details->numProcArrayEntries; i++)
        details->procArray[i] = (nvmlProcessDetail_v1_t){
            .pid = found[i].pid,
            .usedGpuMemory = found[i].usedGpuMemory,
            .gpuInstanceId = NO_INSTANCE,
            .computeInstanceId = NO_INSTANCE,
        };
    return NVML_SUCCESS;
}

static nvmlReturn_t none(nvmlDevice_t device, unsigned *count) {
    TRY(check_device(device));
    REQUIRE(count != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *count = 0;
    return NVML_SUCCESS;
}

API nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                          nvmlProcessInfo_v1_t *infos) {
    (void)infos;
    return none(device, count);
}

API nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                             nvmlProcessInfo_v2_t *infos) {
    (void)infos;
    return none(device, count);
}

API nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                             nvmlProcessInfo_t *infos) {
    (void)infos;
    return none(device, count);
}

/* ---- clients of an MPS server: all, if the profile has one -------------- */

API nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                            nvmlProcessInfo_v1_t *infos) {
    return machine.engine.profile.mps == 0
               ? none(device, count)
               : nvmlDeviceGetComputeRunningProcesses(device, count, infos);
}

API nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                               nvmlProcessInfo_v2_t *infos) {
    return machine.engine.profile.mps == 0
               ? none(device, count)
               : nvmlDeviceGetComputeRunningProcesses_v2(device, count, infos);
}

API nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                               nvmlProcessInfo_t *infos) {
    return nvmlDeviceGetMPSComputeRunningProcesses_v2(device, count, infos);
}
