/* How the GPUs are joined, as a matrix. */
#include <stdio.h>
#include <string.h>

#include "calls.h"

#define LINKS_MOST    18u
#define CPU_WORDS     32u
#define NODE_WORDS    1u
#define SCOPE_NODE    0u /* NVML_AFFINITY_SCOPE_NODE */
#define BITS_PER_WORD (8 * (unsigned)sizeof(unsigned long))

/* The active NVLinks of a GPU that lead to another one, or to switches if that is NULL. */
static unsigned links_to(const struct chosen *gpu, const struct chosen *other) {
    unsigned count = 0;
    for (unsigned link = 0; link < LINKS_MOST; link++) {
        nvmlEnableState_t active = NVML_FEATURE_DISABLED;
        nvmlIntNvLinkDeviceType_t type = NVML_NVLINK_DEVICE_TYPE_GPU;
        nvmlPciInfo_t remote;
        if (nvml.nvmlDeviceGetNvLinkState(gpu->device, link, &active) != NVML_SUCCESS ||
            active != NVML_FEATURE_ENABLED)
            continue;
        if (nvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu->device, link, &type) == NVML_SUCCESS &&
            type == NVML_NVLINK_DEVICE_TYPE_SWITCH)
            count += other == NULL;
        else if (other != NULL && nvml.nvmlDeviceGetNvLinkRemotePciInfo_v2(gpu->device, link,
                                                                           &remote) == NVML_SUCCESS)
            count += strcmp(remote.busId, other->bus) == 0;
    }
    return count;
}

static unsigned nvlinks(const struct chosen *a, const struct chosen *b) {
    unsigned direct = links_to(a, b), one = links_to(a, NULL), other = links_to(b, NULL);
    return direct > 0 ? direct : one < other ? one : other;
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

/* A set of numbers, as "0-19,40-59". */
static void print_set(const unsigned long *set, unsigned words) {
    bool first = true;
    for (unsigned i = 0; i < words * BITS_PER_WORD; i++) {
        unsigned last = i;
        while (last < words * BITS_PER_WORD &&
               (set[last / BITS_PER_WORD] >> (last % BITS_PER_WORD) & 1) != 0)
            last++;
        if (last == i)
            continue;
        printf("%s%u", first ? "" : ",", i);
        if (last - i > 1)
            printf("-%u", last - 1);
        first = false;
        i = last;
    }
}

/* The CPUs and the NUMA nodes near a GPU, and the node that its own memory is. */
static void print_affinity(const struct chosen *gpu) {
    unsigned long cpus[CPU_WORDS] = {0}, nodes[NODE_WORDS] = {0};
    unsigned node;
    if (nvml.nvmlDeviceGetCpuAffinity(gpu->device, CPU_WORDS, cpus) == NVML_SUCCESS)
        print_set(cpus, CPU_WORDS);
    printf("\t");
    if (nvml.nvmlDeviceGetMemoryAffinity(gpu->device, NODE_WORDS, nodes, SCOPE_NODE) ==
        NVML_SUCCESS)
        print_set(nodes, NODE_WORDS);
    else
        printf("N/A");
    if (nvml.nvmlDeviceGetNumaNodeId(gpu->device, &node) == NVML_SUCCESS)
        printf("\t\t%u\n", node);
    else
        printf("\t\tN/A\n");
}

int print_topology(const struct chosen *gpus, unsigned count) {
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
        print_affinity(&gpus[i]);
    }
    return 0;
}
