/* The table that nvidia-smi shows when it is asked for nothing in particular, and the list. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "calls.h"

#define MIB  (1ull << 20)
#define RULE "+---------------------------------------------------------------------------------+"

unsigned processes_of(nvmlDevice_t device, nvmlProcessInfo_t infos[PROCESSES_MOST]) {
    unsigned count = PROCESSES_MOST;
    if (nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, &count, infos) != NVML_SUCCESS)
        return 0;
    return count;
}

void process_name(unsigned pid, char *name, size_t size) {
    if (nvml.nvmlSystemGetProcessName(pid, name, (unsigned)size) != NVML_SUCCESS || *name == '\0')
        snprintf(name, size, "[Not Found]");
}

__attribute__((format(printf, 1, 2))) static void print_line(const char *format, ...) {
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    printf("| %-79.79s |\n", line);
}

static void print_gpu(const struct chosen *gpu) {
    static const char *const modes[] = {"Default", "E. Thread", "Prohibited", "E. Process"};
    char name[96] = "?";
    char used[48];
    nvmlMemory_t memory;
    nvmlUtilization_t rates = {0, 0};
    nvmlComputeMode_t mode = NVML_COMPUTEMODE_DEFAULT;
    unsigned mig = 0, pending;
    nvml.nvmlDeviceGetName(gpu->device, name, sizeof name);
    nvmlReturn_t result = nvml.nvmlDeviceGetMemoryInfo(gpu->device, &memory);
    if (result != NVML_SUCCESS) {
        print_line("%3u  %-32.32s %-16s  ERR! %s", gpu->index, name, gpu->bus,
                   nvml.nvmlErrorString(result));
        return;
    }
    nvml.nvmlDeviceGetUtilizationRates(gpu->device, &rates);
    nvml.nvmlDeviceGetComputeMode(gpu->device, &mode);
    nvml.nvmlDeviceGetMigMode(gpu->device, &mig, &pending);
    snprintf(used, sizeof used, "%lluMiB / %lluMiB", memory.used / MIB, memory.total / MIB);
    print_line("%3u  %-32.32s %-16s %24s", gpu->index, name, gpu->bus, used);
    print_line("%3s  %-32s %-16s %23u%%", "", mig != 0 ? "MIG enabled" : "",
               (unsigned)mode < 4 ? modes[mode] : "?", rates.gpu);
}

static unsigned print_processes(const struct chosen *gpu) {
    nvmlProcessInfo_t infos[PROCESSES_MOST];
    char name[128];
    unsigned count = processes_of(gpu->device, infos);
    for (unsigned i = 0; i < count; i++) {
        process_name(infos[i].pid, name, sizeof name);
        print_line("%3u  N/A  N/A  %10u  C      %-31.31s %9lluMiB", gpu->index, infos[i].pid, name,
                   infos[i].usedGpuMemory / MIB);
    }
    return count;
}

int print_table(const struct chosen *gpus, unsigned count) {
    char version[80] = "?", now[64];
    int cuda = 0;
    unsigned processes = 0;
    time_t seconds = time(NULL);
    struct tm local;
    nvml.nvmlSystemGetDriverVersion(version, sizeof version);
    nvml.nvmlSystemGetCudaDriverVersion_v2(&cuda);
    strftime(now, sizeof now, "%a %b %e %H:%M:%S %Y", localtime_r(&seconds, &local));
    printf("%s\n%s\n", now, RULE);
    print_line("NVIDIA-SMI of the fake GPU    Driver Version: %-12s CUDA Version: %d.%d", version,
               cuda / 1000, cuda % 1000 / 10);
    puts(RULE);
    print_line("%3s  %-32s %-16s %24s", "GPU", "Name", "Bus-Id", "Memory-Usage");
    print_line("%3s  %-32s %-16s %24s", "", "MIG", "Compute M.", "GPU-Util");
    puts(RULE);
    for (unsigned i = 0; i < count; i++)
        print_gpu(&gpus[i]);
    printf("%s\n\n%s\n", RULE, RULE);
    print_line("Processes:");
    print_line("%3s  %-3s  %-3s  %10s  %-4s   %-31s %12s", "GPU", "GI", "CI", "PID", "Type",
               "Process name", "GPU Memory");
    for (unsigned i = 0; i < count; i++)
        processes += print_processes(&gpus[i]);
    if (processes == 0)
        print_line("No running processes found");
    puts(RULE);
    return 0;
}

int print_list(const struct chosen *gpus, unsigned count) {
    char name[96], uuid[96];
    unsigned most;
    nvmlDevice_t mig;
    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof name, "?");
        nvml.nvmlDeviceGetName(gpus[i].device, name, sizeof name);
        printf("GPU %u: %s (UUID: %s)\n", gpus[i].index, name, gpus[i].uuid);
        if (nvml.nvmlDeviceGetMaxMigDeviceCount(gpus[i].device, &most) != NVML_SUCCESS)
            continue;
        for (unsigned j = 0; j < most; j++) {
            if (nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpus[i].device, j, &mig) != NVML_SUCCESS)
                continue;
            nvml.nvmlDeviceGetName(mig, name, sizeof name);
            nvml.nvmlDeviceGetUUID(mig, uuid, sizeof uuid);
            const char *kind = strstr(name, "MIG ");
            printf("  %-16s Device %2u: (UUID: %s)\n", kind == NULL ? "MIG" : kind, j, uuid);
        }
    }
    return 0;
}
