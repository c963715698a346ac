#include "models.h"

#include <string.h>

#include "release.h"

static const struct model models[] = {
    {
     .key = "V100",
     .name = "Tesla V100-SXM2-16GB",
     .memory_bytes = UINT64_C(16) << 30,
     .compute_major = 7,
     .multiprocessors = 80,
     .clock_khz = 1530000,
     .memory_clock_khz = 877000,
     .memory_bus_bits = 4096,
     .l2_bytes = 6 << 20,
     .shared_bytes = 96 << 10,
     .block_shared_bytes = 96 << 10,
     .pci_device_id = 0x1db110de,
     .nvlink = true,
     },
    {
     .key = "V100-PCIE",
     .name = "Tesla V100-PCIE-16GB",
     .memory_bytes = UINT64_C(16) << 30,
     .compute_major = 7,
     .multiprocessors = 80,
     .clock_khz = 1380000,
     .memory_clock_khz = 877000,
     .memory_bus_bits = 4096,
     .l2_bytes = 6 << 20,
     .shared_bytes = 96 << 10,
     .block_shared_bytes = 96 << 10,
     .pci_device_id = 0x1db410de,
     },
    {
     .key = "H100",
     .name = "NVIDIA H100 PCIe",
     .memory_bytes = UINT64_C(80) << 30,
     .compute_major = 9,
     .multiprocessors = 114,
     .clock_khz = 1755000,
     .memory_clock_khz = 1593000,
     .memory_bus_bits = 5120,
     .l2_bytes = 50 << 20,
     .shared_bytes = 228 << 10,
     .block_shared_bytes = 227 << 10,
     .pci_device_id = 0x233110de,
     },
    {.key = NULL},
};

const struct model *profile_models(void) {
    return models;
}

bool profile_use_model(struct profile *profile, const char *key, unsigned first, unsigned end) {
    for (const struct model *model = models; model->key != NULL; model++) {
        if (strcmp(model->key, key) == 0) {
            for (unsigned gpu = first; gpu < end; gpu++)
                profile->models[gpu] = *model;
            return true;
        }
    }
    return false;
}

void profile_set_pair(struct profile *profile, unsigned a, unsigned b, enum path path,
                      uint8_t nvlinks) {
    profile->path[a][b] = profile->path[b][a] = path;
    profile->nvlinks[a][b] = profile->nvlinks[b][a] = nvlinks;
}

/* The board of an SXM2 machine: quads joined by NVLink, two GPUs a PCI switch, half of them a
 * socket. PCIe cards: the same without NVLink. */
void profile_use_usual_topology(struct profile *profile) {
    unsigned half = (profile->gpus + 1) / 2;
    for (unsigned a = 0; a < profile->gpus; a++) {
        profile->numa[a] = profile->gpus > 1 && a >= half;
        for (unsigned b = 0; b < a; b++) {
            enum path path = a / 2 == b / 2                         ? PATH_PIX
                             : profile->numa[a] == profile->numa[b] ? PATH_PHB
                                                                    : PATH_SYS;
            bool nvlink = profile->models[a].nvlink && profile->models[b].nvlink;
            profile_set_pair(profile, a, b, path, nvlink && a / 4 == b / 4 ? 2 : 0);
        }
    }
}

void profile_use_defaults(struct profile *profile) {
    memset(profile, 0, sizeof *profile);
    profile_use_model(profile, "V100", 0, GPUS_MAX);
    profile->gpus = 1;
    profile->kernel_us = 10;
    profile->driver_version = NEWEST_DRIVER;
    profile->speeds = (struct speeds){
        .host = 12000,
        .copy = 370000,
        .fill = 750000,
        .nvlink = 24000,
        .path = {0, 12500, 12000, 10500, 9500, 9000},
    };
}
