/*
 * nvidia-smi, for machines whose GPUs are fake: what NVML says, in the forms
 * that people and programs know. It loads NVML as the real one does, so that
 * whatever stands between a program and NVML stands here too.
 */
#ifndef FAKEGPU_SMI_CALLS_H
#define FAKEGPU_SMI_CALLS_H

#include <nvml.h>
#include <stdbool.h>
#include <stddef.h>

/* The calls that are made: name, arguments. */
#define NVML_CALLS(CALL)                                                                           \
    CALL(nvmlInit_v2, (void))                                                                      \
    CALL(nvmlSystemGetDriverVersion, (char *, unsigned))                                           \
    CALL(nvmlSystemGetCudaDriverVersion_v2, (int *))                                               \
    CALL(nvmlSystemGetProcessName, (unsigned, char *, unsigned))                                   \
    CALL(nvmlDeviceGetCount_v2, (unsigned *))                                                      \
    CALL(nvmlDeviceGetHandleByIndex_v2, (unsigned, nvmlDevice_t *))                                \
    CALL(nvmlDeviceGetName, (nvmlDevice_t, char *, unsigned))                                      \
    CALL(nvmlDeviceGetUUID, (nvmlDevice_t, char *, unsigned))                                      \
    CALL(nvmlDeviceGetPciInfo_v3, (nvmlDevice_t, nvmlPciInfo_t *))                                 \
    CALL(nvmlDeviceGetMemoryInfo, (nvmlDevice_t, nvmlMemory_t *))                                  \
    CALL(nvmlDeviceGetUtilizationRates, (nvmlDevice_t, nvmlUtilization_t *))                       \
    CALL(nvmlDeviceGetComputeMode, (nvmlDevice_t, nvmlComputeMode_t *))                            \
    CALL(nvmlDeviceGetPersistenceMode, (nvmlDevice_t, nvmlEnableState_t *))                        \
    CALL(nvmlDeviceGetMigMode, (nvmlDevice_t, unsigned *, unsigned *))                             \
    CALL(nvmlDeviceGetMaxMigDeviceCount, (nvmlDevice_t, unsigned *))                               \
    CALL(nvmlDeviceGetMigDeviceHandleByIndex, (nvmlDevice_t, unsigned, nvmlDevice_t *))            \
    CALL(nvmlDeviceGetCudaComputeCapability, (nvmlDevice_t, int *, int *))                         \
    CALL(nvmlDeviceGetComputeRunningProcesses_v3, (nvmlDevice_t, unsigned *, nvmlProcessInfo_t *)) \
    CALL(nvmlDeviceGetTopologyCommonAncestor,                                                      \
         (nvmlDevice_t, nvmlDevice_t, nvmlGpuTopologyLevel_t *))                                   \
    CALL(nvmlDeviceGetNvLinkState, (nvmlDevice_t, unsigned, nvmlEnableState_t *))                  \
    CALL(nvmlDeviceGetNvLinkRemotePciInfo_v2, (nvmlDevice_t, unsigned, nvmlPciInfo_t *))           \
    CALL(nvmlDeviceGetCpuAffinity, (nvmlDevice_t, unsigned, unsigned long *))                      \
    CALL(nvmlDeviceGetNumaNodeId, (nvmlDevice_t, unsigned *))

struct nvml {
#define CALL(name, arguments) nvmlReturn_t(*name) arguments;
    NVML_CALLS(CALL)
#undef CALL
    const char *(*nvmlErrorString)(nvmlReturn_t);
};

extern struct nvml nvml;

#define PROCESSES_MOST 512u

/** Loads NVML and starts it; else says why not, and returns the exit code for that. */
int nvml_start(void);

/** The GPUs that were asked for. */
struct chosen {
    unsigned index;
    nvmlDevice_t device;
    char uuid[96];
    char bus[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE];
};

/** Each forms part of the output; the exit code. */
int print_table(const struct chosen *gpus, unsigned count);
int print_list(const struct chosen *gpus, unsigned count);
int print_topology(const struct chosen *gpus, unsigned count);

/** What `--format` says. */
struct format {
    bool header, units;
};

/** Answers --query-gpu and --query-compute-apps: a field a column. */
int query_gpus(const struct chosen *gpus, unsigned count, char *fields, struct format format);
int query_processes(const struct chosen *gpus, unsigned count, char *fields, struct format format);

/** The processes on a GPU; returns how many. */
unsigned processes_of(nvmlDevice_t device, nvmlProcessInfo_t infos[PROCESSES_MOST]);

/** The program that a process runs, or what is said where that cannot be seen. */
void process_name(unsigned pid, char *name, size_t size);

#endif
