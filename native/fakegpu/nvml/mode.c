/* Modes of a GPU, and the MIG devices that it may be cut into. They are shown, and no more: the
 * fake driver runs all work on the whole GPU. */
#include <string.h>

#include "machine.h"

unsigned migs_of(nvmlDevice_t device) {
    return machine.engine.profile.migs[device->gpu];
}

API nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode) {
    TRY(check_device(device));
    REQUIRE(mode != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *mode = (nvmlComputeMode_t)machine.engine.profile.compute_mode;
    return NVML_SUCCESS;
}

API nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    TRY(check_device(device));
    REQUIRE(mode != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *mode = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

/* ---- MIG ---------------------------------------------------------------------- */

/* A GPU that is not cut is a model older than MIG. */
API nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    TRY(check_device(device));
    REQUIRE(current != NULL && pending != NULL, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(migs_of(device) > 0, NVML_ERROR_NOT_SUPPORTED);
    *current = *pending = 1;
    return NVML_SUCCESS;
}

API nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    TRY(check_device(device));
    REQUIRE(count != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *count = migs_of(device) > 0 ? MIGS_MAX : 0;
    return NVML_SUCCESS;
}

API nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig) {
    TRY(check_device(device));
    REQUIRE(is_mig != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *is_mig = device->mig != 0;
    return NVML_SUCCESS;
}

API nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                        nvmlDevice_t *mig) {
    TRY(check_device(device));
    REQUIRE(mig != NULL && device->mig == 0 && index < MIGS_MAX, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(migs_of(device) > 0, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(index < migs_of(device), NVML_ERROR_NOT_FOUND);
    *mig = &machine.migs[place_of(device)][index];
    return NVML_SUCCESS;
}

API nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device) {
    TRY(check_device(mig));
    REQUIRE(device != NULL && mig->mig != 0, NVML_ERROR_INVALID_ARGUMENT);
    *device = &machine.devices[place_of(mig)];
    return NVML_SUCCESS;
}

API nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id) {
    TRY(check_device(device));
    REQUIRE(id != NULL, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(device->mig != 0, NVML_ERROR_NOT_SUPPORTED);
    *id = device->mig;
    return NVML_SUCCESS;
}

API nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id) {
    TRY(check_device(device));
    REQUIRE(id != NULL, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(device->mig != 0, NVML_ERROR_NOT_SUPPORTED);
    *id = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t find_mig(const char *uuid, nvmlDevice_t *device) {
    char text[48];
    for (unsigned i = 0; i < machine.device_count; i++) {
        for (unsigned mig = 0; mig < migs_of(&machine.devices[i]); mig++) {
            profile_mig_text(&machine.engine.profile, machine.devices[i].gpu, mig, text);
            if (strcmp(text, uuid) == 0) {
                *device = &machine.migs[i][mig];
                return NVML_SUCCESS;
            }
        }
    }
    return NVML_ERROR_NOT_FOUND;
}
