/*
 * nvidia-smi for machines whose GPUs are fake: prints what NVML reports, as far
 * as tests and documentation use it. It loads NVML as the real one does, so a
 * library that stands between a program and NVML stands here too.
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
    CALL(nvmlDeviceGetMigMode, (nvmlDevice_t, unsigned *, unsigned *))                             \
    CALL(nvmlDeviceGetMaxMigDeviceCount, (nvmlDevice_t, unsigned *))                               \
    CALL(nvmlDeviceGetMigDeviceHandleByIndex, (nvmlDevice_t, unsigned, nvmlDevice_t *))            \
    CALL(nvmlDeviceGetCudaComputeCapability, (nvmlDevice_t, int *, int *))                         \
    CALL(nvmlDeviceGetComputeRunningProcesses_v3, (nvmlDevice_t, unsigned *, nvmlProcessInfo_t *)) \
    CALL(nvmlDeviceGetTopologyCommonAncestor,                                                      \
         (nvmlDevice_t, nvmlDevice_t, nvmlGpuTopologyLevel_t *))                                   \
    CALL(nvmlDeviceGetNvLinkState, (nvmlDevice_t, unsigned, nvmlEnableState_t *))                  \
    CALL(nvmlDeviceGetNvLinkRemotePciInfo_v2, (nvmlDevice_t, unsigned, nvmlPciInfo_t *))           \
    CALL(nvmlDeviceGetNvLinkRemoteDeviceType,                                                      \
         (nvmlDevice_t, unsigned, nvmlIntNvLinkDeviceType_t *))                                    \
    CALL(nvmlDeviceGetCpuAffinity, (nvmlDevice_t, unsigned, unsigned long *))                      \
    CALL(nvmlDeviceGetMemoryAffinity,                                                              \
         (nvmlDevice_t, unsigned, unsigned long *, nvmlAffinityScope_t))                           \
    CALL(nvmlDeviceGetNumaNodeId, (nvmlDevice_t, unsigned *))

struct nvml {
#define CALL(name, arguments) nvmlReturn_t(*name) arguments;
    NVML_CALLS(CALL)
#undef CALL
    const char *(*nvmlErrorString)(nvmlReturn_t);
};

extern struct nvml nvml;

#define PROCESSES_MOST 512u

/** Loads and starts NVML; prints why it cannot, and returns the exit code for that. */
int nvml_start(void);

/** A GPU that the command line names. */
struct chosen {
    unsigned index;
    nvmlDevice_t device;
    char uuid[96];
    char bus[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE];
};

/** Each prints one form of output, and returns the exit code. */
int print_table(const struct chosen *gpus, unsigned count);
int print_list(const struct chosen *gpus, unsigned count);
int print_topology(const struct chosen *gpus, unsigned count);

/** The value of `--format`. */
struct format {
    bool header, units;
};

/** Answers --query-gpu and --query-compute-apps: one column for each field. */
int query(const struct chosen *gpus, unsigned count, bool processes, char *fields,
          struct format format);

/** The processes on a GPU; returns how many. */
unsigned processes_of(nvmlDevice_t device, nvmlProcessInfo_t infos[PROCESSES_MOST]);

/** The program that a process runs; "[Not Found]" if that cannot be seen. */
void process_name(unsigned pid, char *name, size_t size);

#endif
