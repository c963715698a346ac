/* Handles, and what can be asked of one GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"

nvmlReturn_t check_handle(nvmlDevice_t device) {
    TRY(machine_ready());
    for (unsigned i = 0; i < machine.device_count; i++)
        if (device == &machine.devices[i] ||
            (device >= machine.migs[i] && device < machine.migs[i] + migs_of(&machine.devices[i])))
            return NVML_SUCCESS;
    return NVML_ERROR_INVALID_ARGUMENT;
}

unsigned place_of(nvmlDevice_t device) {
    unsigned place = 0;
    while (machine.devices[place].gpu != device->gpu)
        place++;
    return place;
}

static const struct gpu *gpu_of(nvmlDevice_t device) {
    return &machine.engine.state->gpu[device->gpu];
}

/* Brings the GPU up to date, so that what the profile plans for it happens on any query. */
uint64_t xids_of(nvmlDevice_t device) {
    engine_enter(&machine.engine, device->gpu);
    uint64_t xids = gpu_of(device)->xids;
    engine_leave(&machine.engine, device->gpu);
    return xids;
}

nvmlReturn_t check_device(nvmlDevice_t device) {
    TRY(check_handle(device));
    if (machine.engine.profile.faults[device->gpu].xid != 0)
        xids_of(device);
    REQUIRE(!__atomic_load_n(&gpu_of(device)->lost, __ATOMIC_RELAXED), NVML_ERROR_GPU_IS_LOST);
    return NVML_SUCCESS;
}

/* ---- handles ------------------------------------------------------------- */

API nvmlDeviceGetCount_v2(unsigned int *count) {
    TRY(machine_ready());
    REQUIRE(count != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *count = machine.device_count;
    return NVML_SUCCESS;
}

API nvmlDeviceGetCount(unsigned int *count) {
    return nvmlDeviceGetCount_v2(count);
}

API nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    TRY(machine_ready());
    REQUIRE(device != NULL && index < machine.device_count, NVML_ERROR_INVALID_ARGUMENT);
    *device = &machine.devices[index];
    return NVML_SUCCESS;
}

API nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

API nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    TRY(machine_ready());
    REQUIRE(uuid != NULL && device != NULL, NVML_ERROR_INVALID_ARGUMENT);
    if (strncmp(uuid, "MIG-", 4) == 0)
        return find_mig(uuid, device);
    for (unsigned i = 0; i < machine.device_count; i++) {
        if (strcmp(gpu_of(&machine.devices[i])->uuid, uuid) == 0) {
            *device = &machine.devices[i];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

API nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device) {
    unsigned domain, bus, slot, function = 0;
    TRY(machine_ready());
    REQUIRE(id != NULL && device != NULL, NVML_ERROR_INVALID_ARGUMENT);
    if (sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        REQUIRE(sscanf(id, "%x:%x.%x", &bus, &slot, &function) >= 2, NVML_ERROR_INVALID_ARGUMENT);
    }
    for (unsigned i = 0; i < machine.device_count; i++) {
        if (domain == 0 && slot == 0 && bus == profile_pci_bus(machine.devices[i].gpu)) {
            *device = &machine.devices[i];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

API nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(id, device);
}

/* ---- identity -------------------------------------------------------------- */

API nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    TRY(check_handle(device));
    char whole[128];
    snprintf(whole, sizeof whole, "%.80s MIG %ug", gpu_of(device)->model,
             MIGS_MAX / (device->mig == 0 ? 1 : migs_of(device)));
    return answer_text(name, length, device->mig == 0 ? gpu_of(device)->model : whole);
}

API nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    TRY(check_handle(device));
    char own[48];
    if (device->mig == 0)
        return answer_text(uuid, length, gpu_of(device)->uuid);
    profile_mig_text(&machine.engine.profile, device->gpu, device->mig - 1, own);
    return answer_text(uuid, length, own);
}

API nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    TRY(check_handle(device));
    REQUIRE(index != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *index = device->mig == 0 ? place_of(device) : device->mig - 1;
    return NVML_SUCCESS;
}

API nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
    TRY(check_handle(device));
    REQUIRE(minor != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *minor = device->gpu;
    return NVML_SUCCESS;
}

void fill_pci(nvmlPciInfo_t *pci, uint32_t gpu, bool legacy) {
    unsigned bus = profile_pci_bus(gpu);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", bus);
    pci->domain = 0;
    pci->bus = bus;
    pci->device = 0;
    pci->pciDeviceId = machine.engine.profile.models[gpu].pci_device_id;
    pci->pciSubSystemId = machine.engine.profile.models[gpu].pci_device_id;
    if (!legacy)
        snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", bus);
}

API nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    TRY(check_handle(device));
    REQUIRE(pci != NULL, NVML_ERROR_INVALID_ARGUMENT);
    fill_pci(pci, device->gpu, false);
    return NVML_SUCCESS;
}

/* Its callers' structure is shorter than today's. */
API nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    TRY(check_handle(device));
    REQUIRE(pci != NULL, NVML_ERROR_INVALID_ARGUMENT);
    fill_pci(pci, device->gpu, true);
    return NVML_SUCCESS;
}

API nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *brand) {
    TRY(check_handle(device));
    REQUIRE(brand != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *brand = NVML_BRAND_TESLA;
    return NVML_SUCCESS;
}

API nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *architecture) {
    TRY(check_handle(device));
    REQUIRE(architecture != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *architecture = NVML_DEVICE_ARCH_VOLTA;
    return NVML_SUCCESS;
}

API nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    TRY(check_handle(device));
    REQUIRE(major != NULL && minor != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *major = machine.engine.profile.models[device->gpu].compute_major;
    *minor = machine.engine.profile.models[device->gpu].compute_minor;
    return NVML_SUCCESS;
}

/* ---- memory -------------------------------------------------------------------- */

static uint64_t used(nvmlDevice_t device) {
    engine_enter(&machine.engine, device->gpu);
    engine_reap(&machine.engine, device->gpu);
    uint64_t bytes = engine_memory_used(&machine.engine, device->gpu);
    engine_leave(&machine.engine, device->gpu);
    return bytes;
}

API nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    TRY(check_device(device));
    REQUIRE(memory != NULL, NVML_ERROR_INVALID_ARGUMENT);
    memory->total = gpu_of(device)->memory_bytes / (device->mig == 0 ? 1 : migs_of(device));
    memory->used = device->mig == 0 ? used(device) : 0;
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

API nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    TRY(check_device(device));
    REQUIRE(memory != NULL, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(memory->version == nvmlMemory_v2, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    memory->total = gpu_of(device)->memory_bytes;
    memory->reserved = 0;
    memory->used = used(device);
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

/* All of the memory can be mapped over the bus; nothing here ever does. */
API nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory) {
    TRY(check_device(device));
    REQUIRE(memory != NULL, NVML_ERROR_INVALID_ARGUMENT);
    uint64_t bytes = gpu_of(device)->memory_bytes;
    *memory = (nvmlBAR1Memory_t){.bar1Total = bytes, .bar1Free = bytes, .bar1Used = 0};
    return NVML_SUCCESS;
}

API nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int *bits) {
    TRY(check_device(device));
    REQUIRE(bits != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *bits = (unsigned)machine.engine.profile.models[device->gpu].memory_bus_bits;
    return NVML_SUCCESS;
}

/* ---- health ------------------------------------------------------------------------ */

/* Rows that the GPU has put others in the place of: each uncorrectable error is one. */
API nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected,
                              unsigned int *uncorrectable, unsigned int *pending,
                              unsigned int *failed) {
    TRY(check_device(device));
    REQUIRE(corrected != NULL && uncorrectable != NULL && pending != NULL && failed != NULL,
            NVML_ERROR_INVALID_ARGUMENT);
    *corrected = *uncorrectable = *pending = *failed = 0;
    engine_enter(&machine.engine, device->gpu);
    const struct gpu *gpu = gpu_of(device);
    for (uint64_t n = gpu->xids > XIDS_MAX ? gpu->xids - XIDS_MAX : 0; n < gpu->xids; n++) {
        uint32_t xid = gpu->xid[n % XIDS_MAX].number;
        *uncorrectable += xid == XID_ROW_REMAPPED;
        *pending |= xid == XID_ROW_REMAPPED;
        *failed |= xid == XID_REMAP_FAILED;
    }
    engine_leave(&machine.engine, device->gpu);
    return NVML_SUCCESS;
}

/* ---- utilisation ----------------------------------------------------------------- */

/* Since the older of the last two samples, which all processes share. */
API nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilisation) {
    TRY(check_device(device));
    REQUIRE(utilisation != NULL, NVML_ERROR_INVALID_ARGUMENT);
    uint64_t now = engine_enter(&machine.engine, device->gpu);
    const struct gpu *gpu = gpu_of(device);
    uint64_t busy_ns = gpu->busy_ns - gpu->sampled_busy_ns[1];
    uint64_t elapsed_ns = now - gpu->sampled_ns[1];
    engine_leave(&machine.engine, device->gpu);
    utilisation->gpu = (unsigned)(busy_ns * 100 / elapsed_ns);
    utilisation->memory = 0;
    return NVML_SUCCESS;
}
