/* How GPUs are joined to each other, to CPUs and to memory. */
#include <stdlib.h>
#include <unistd.h>

#include "machine.h"

#define LINKS_MAX     6 /* NVLinks of one GPU of the models here */
#define BITS_PER_WORD (8 * (unsigned)sizeof(unsigned long))

static const struct profile *profile(void) {
    return &machine.engine.profile;
}

static void set_range(unsigned long *set, unsigned words, unsigned long first, unsigned long last) {
    for (unsigned long i = first; i <= last && i < (unsigned long)words * BITS_PER_WORD; i++)
        set[i / BITS_PER_WORD] |= 1UL << (i % BITS_PER_WORD);
}

/* A list as "0-19,40-59"; if the profile has none, all CPUs of this machine. */
static void set_cpus(unsigned long *set, unsigned words, const char *list) {
    if (*list == '\0') {
        long online = sysconf(_SC_NPROCESSORS_CONF);
        set_range(set, words, 0, online > 0 ? (unsigned long)online - 1 : 0);
        return;
    }
    while (*list != '\0') {
        char *end;
        unsigned long first = strtoul(list, &end, 10);
        unsigned long last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
        set_range(set, words, first, last);
        if (*end != ',')
            return;
        list = end + 1;
    }
}

API nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b,
                                        nvmlGpuTopologyLevel_t *level) {
    TRY(check_device(a));
    TRY(check_device(b));
    REQUIRE(level != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *level = (nvmlGpuTopologyLevel_t)profile()->path[a->gpu][b->gpu];
    return NVML_SUCCESS;
}

API nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
                                     unsigned int *count, nvmlDevice_t *devices) {
    unsigned found = 0;
    TRY(check_device(device));
    REQUIRE(count != NULL && (*count == 0 || devices != NULL), NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned i = 0; i < machine.device_count; i++) {
        nvmlDevice_t other = &machine.devices[i];
        if (other == device ||
            (nvmlGpuTopologyLevel_t)profile()->path[device->gpu][other->gpu] != level)
            continue;
        if (found < *count)
            devices[found] = other;
        found++;
    }
    *count = found;
    return NVML_SUCCESS;
}

static bool is_near(uint32_t gpu, unsigned cpu) {
    unsigned long set[1024 / BITS_PER_WORD] = {0};
    set_cpus(set, sizeof set / sizeof *set, profile()->cpus[profile()->numa[gpu]]);
    return cpu < 1024 && (set[cpu / BITS_PER_WORD] >> (cpu % BITS_PER_WORD) & 1) != 0;
}

/* The GPUs near one CPU. */
API nvmlSystemGetTopologyGpuSet(unsigned int cpu, unsigned int *count, nvmlDevice_t *devices) {
    unsigned found = 0;
    TRY(machine_ready());
    REQUIRE(count != NULL && (*count == 0 || devices != NULL), NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned i = 0; i < machine.device_count; i++) {
        if (!is_near(machine.devices[i].gpu, cpu))
            continue;
        if (found < *count)
            devices[found] = &machine.devices[i];
        found++;
    }
    *count = found;
    return NVML_SUCCESS;
}

/* Each GPU here has a board of its own. */
API nvmlDeviceOnSameBoard(nvmlDevice_t a, nvmlDevice_t b, int *same) {
    TRY(check_device(a));
    TRY(check_device(b));
    REQUIRE(same != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *same = a->gpu == b->gpu;
    return NVML_SUCCESS;
}

API nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuP2PCapsIndex_t index,
                           nvmlGpuP2PStatus_t *status) {
    TRY(check_device(a));
    TRY(check_device(b));
    REQUIRE(status != NULL && a != b, NVML_ERROR_INVALID_ARGUMENT);
    bool nvlink = profile()->nvlinks[a->gpu][b->gpu] > 0;
    bool good = index == NVML_P2P_CAPS_INDEX_NVLINK || index == NVML_P2P_CAPS_INDEX_ATOMICS
                    ? nvlink
                    : index != NVML_P2P_CAPS_INDEX_PCI || !nvlink;
    *status = good ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

/* ---- NVLink --------------------------------------------------------------- */

#define NOTHING GPUS_MAX       /* at the other end of a link */
#define SWITCH  (GPUS_MAX + 1) /* the same */

/* The GPU at the other end of a link, a switch, or nothing: links go to the peers in order. */
static uint32_t peer(uint32_t gpu, unsigned link) {
    for (uint32_t other = 0; other < profile()->gpus; other++) {
        unsigned links = profile()->nvlinks[gpu][other];
        if (link < links)
            return profile()->nvswitch ? SWITCH : other;
        if (!profile()->nvswitch)
            link -= links;
    }
    return NOTHING;
}

static nvmlReturn_t check_link(nvmlDevice_t device, unsigned link, const void *answer) {
    TRY(check_device(device));
    REQUIRE(profile()->models[device->gpu].nvlink || peer(device->gpu, 0) != NOTHING,
            NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(answer != NULL && (link < LINKS_MAX || peer(device->gpu, link) != NOTHING),
            NVML_ERROR_INVALID_ARGUMENT);
    return NVML_SUCCESS;
}

API nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *active) {
    TRY(check_link(device, link, active));
    *active = peer(device->gpu, link) != NOTHING ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

/* The switches of this machine are on no PCI bus. */
API nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                        nvmlPciInfo_t *pci) {
    TRY(check_link(device, link, pci));
    uint32_t other = peer(device->gpu, link);
    REQUIRE(other < GPUS_MAX, NVML_ERROR_NOT_SUPPORTED);
    fill_pci(pci, other, false);
    return NVML_SUCCESS;
}

/* Its callers' structure is shorter than today's. */
API nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci) {
    TRY(check_link(device, link, pci));
    uint32_t other = peer(device->gpu, link);
    REQUIRE(other < GPUS_MAX, NVML_ERROR_NOT_SUPPORTED);
    fill_pci(pci, other, true);
    return NVML_SUCCESS;
}

API nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                        nvmlIntNvLinkDeviceType_t *type) {
    TRY(check_link(device, link, type));
    *type = peer(device->gpu, link) == SWITCH ? NVML_NVLINK_DEVICE_TYPE_SWITCH
                                              : NVML_NVLINK_DEVICE_TYPE_GPU;
    return NVML_SUCCESS;
}

API nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int *version) {
    TRY(check_link(device, link, version));
    *version = 2;
    return NVML_SUCCESS;
}

API nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link,
                                  nvmlNvLinkCapability_t capability, unsigned int *has) {
    TRY(check_link(device, link, has));
    *has = capability == NVML_NVLINK_CAP_P2P_SUPPORTED ||
           capability == NVML_NVLINK_CAP_P2P_ATOMICS || capability == NVML_NVLINK_CAP_VALID;
    return NVML_SUCCESS;
}

/* ---- CPUs and memory --------------------------------------------------------- */

API nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words, unsigned long *set) {
    TRY(check_device(device));
    REQUIRE(set != NULL && words > 0, NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned i = 0; i < words; i++)
        set[i] = 0;
    set_cpus(set, words, profile()->cpus[profile()->numa[device->gpu]]);
    return NVML_SUCCESS;
}

API nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int words, unsigned long *set,
                                        nvmlAffinityScope_t scope) {
    REQUIRE(scope <= 1, NVML_ERROR_INVALID_ARGUMENT);
    return nvmlDeviceGetCpuAffinity(device, words, set);
}

API nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words, unsigned long *set,
                                nvmlAffinityScope_t scope) {
    TRY(check_device(device));
    REQUIRE(set != NULL && words > 0 && scope <= 1, NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned i = 0; i < words; i++)
        set[i] = 0;
    set[0] = 1UL << profile()->numa[device->gpu];
    return NVML_SUCCESS;
}

/* The node that a GPU's memory is, where the CPU can address it; not the node that it is near. */
API nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node) {
    TRY(check_device(device));
    REQUIRE(node != NULL, NVML_ERROR_INVALID_ARGUMENT);
    return NVML_ERROR_NOT_SUPPORTED;
}
