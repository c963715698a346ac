/* How the GPUs are joined, as a matrix. */
#include <stdio.h>
#include <string.h>

#include "calls.h"

#define LINKS_MOST    18u
#define CPU_WORDS     32u
#define BITS_PER_WORD (8 * (unsigned)sizeof(unsigned long))

static unsigned nvlinks(const struct chosen *a, const struct chosen *b) {
    unsigned count = 0;
    for (unsigned link = 0; link < LINKS_MOST; link++) {
        nvmlEnableState_t active = NVML_FEATURE_DISABLED;
        nvmlPciInfo_t remote;
        if (nvml.nvmlDeviceGetNvLinkState(a->device, link, &active) == NVML_SUCCESS &&
            active == NVML_FEATURE_ENABLED &&
            nvml.nvmlDeviceGetNvLinkRemotePciInfo_v2(a->device, link, &remote) == NVML_SUCCESS)
            count += strcmp(remote.busId, b->bus) == 0;
    }
    return count;
}

static void print_link(const struct chosen *a, const struct chosen *b) {
    static const struct {
        nvmlGpuTopologyLevel_t level;
        const char *name;
    } levels[] = {
        {NVML_TOPOLOGY_INTERNAL,   "PIX" },
        {NVML_TOPOLOGY_SINGLE,     "PIX" },
        {NVML_TOPOLOGY_MULTIPLE,   "PXB" },
        {NVML_TOPOLOGY_HOSTBRIDGE, "PHB" },
        {NVML_TOPOLOGY_NODE,       "NODE"},
        {NVML_TOPOLOGY_SYSTEM,     "SYS" },
    };
    nvmlGpuTopologyLevel_t level;
    unsigned links = nvlinks(a, b);
    const char *name = "N/A";
    if (nvml.nvmlDeviceGetTopologyCommonAncestor(a->device, b->device, &level) == NVML_SUCCESS)
        for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
            if (levels[i].level == level)
                name = levels[i].name;
    if (links > 0)
        printf("NV%u\t", links);
    else
        printf("%s\t", name);
}

/* The CPUs near a GPU, as "0-19,40-59". */
static void print_cpus(const struct chosen *gpu) {
    unsigned long set[CPU_WORDS] = {0};
    bool first = true;
    if (nvml.nvmlDeviceGetCpuAffinity(gpu->device, CPU_WORDS, set) != NVML_SUCCESS)
        return;
    for (unsigned cpu = 0; cpu < CPU_WORDS * BITS_PER_WORD; cpu++) {
        unsigned last = cpu;
        while (last < CPU_WORDS * BITS_PER_WORD &&
               (set[last / BITS_PER_WORD] >> (last % BITS_PER_WORD) & 1) != 0)
            last++;
        if (last == cpu)
            continue;
        printf("%s%u", first ? "" : ",", cpu);
        if (last - cpu > 1)
            printf("-%u", last - 1);
        first = false;
        cpu = last;
    }
}

int print_topology(const struct chosen *gpus, unsigned count) {
    unsigned node;
    printf("\t\x1b[4m");
    for (unsigned i = 0; i < count; i++)
        printf("GPU%u\t", gpus[i].index);
    printf("CPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n");
    for (unsigned i = 0; i < count; i++) {
        printf("GPU%u\t", gpus[i].index);
        for (unsigned j = 0; j < count; j++) {
            if (i == j)
                printf(" X \t");
            else
                print_link(&gpus[i], &gpus[j]);
        }
        print_cpus(&gpus[i]);
        if (nvml.nvmlDeviceGetNumaNodeId(gpus[i].device, &node) == NVML_SUCCESS)
            printf("\t%u\t\tN/A\n", node);
        else
            printf("\tN/A\t\tN/A\n");
    }
    return 0;
}
