/* What can be asked of a device. */
#include <stdio.h>
#include <string.h>

#include "driver.h"

static const struct model *model_of(const struct device *device) {
    return &driver.engine.profile.models[device->gpu];
}

API cuDeviceGetCount(int *count) {
    TRY(driver_ready());
    REQUIRE(count != NULL, CUDA_ERROR_INVALID_VALUE);
    *count = driver.device_count;
    return CUDA_SUCCESS;
}

API cuDeviceGet(CUdevice *device, int ordinal) {
    struct device *found;
    TRY(find_device(ordinal, &found));
    REQUIRE(device != NULL, CUDA_ERROR_INVALID_VALUE);
    *device = ordinal;
    return CUDA_SUCCESS;
}

API cuDeviceGetName(char *name, int length, CUdevice ordinal) {
    struct device *device;
    TRY(find_device(ordinal, &device));
    REQUIRE(name != NULL && length > 0, CUDA_ERROR_INVALID_VALUE);
    snprintf(name, (size_t)length, "%s", driver.engine.state->gpu[device->gpu].model);
    return CUDA_SUCCESS;
}

API cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice ordinal) {
    struct device *device;
    TRY(find_device(ordinal, &device));
    REQUIRE(uuid != NULL, CUDA_ERROR_INVALID_VALUE);
    uint8_t bytes[16];
    profile_uuid(&driver.engine.profile, device->gpu, bytes);
    memcpy(uuid->bytes, bytes, sizeof bytes);
    return CUDA_SUCCESS;
}

API cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal) {
    struct device *device;
    TRY(find_device(ordinal, &device));
    REQUIRE(bytes != NULL, CUDA_ERROR_INVALID_VALUE);
    *bytes = driver.engine.state->gpu[device->gpu].memory_bytes;
    return CUDA_SUCCESS;
}

API cuDeviceComputeCapability(int *major, int *minor, CUdevice ordinal) {
    struct device *device;
    TRY(find_device(ordinal, &device));
    REQUIRE(major != NULL && minor != NULL, CUDA_ERROR_INVALID_VALUE);
    *major = model_of(device)->compute_major;
    *minor = model_of(device)->compute_minor;
    return CUDA_SUCCESS;
}

API cuDeviceGetPCIBusId(char *id, int length, CUdevice ordinal) {
    struct device *device;
    TRY(find_device(ordinal, &device));
    REQUIRE(id != NULL && length >= 13, CUDA_ERROR_INVALID_VALUE);
    snprintf(id, (size_t)length, "0000:%02X:00.0", profile_pci_bus(device->gpu));
    return CUDA_SUCCESS;
}

API cuDeviceGetByPCIBusId(CUdevice *device, const char *id) {
    unsigned domain = 0, bus, slot, function = 0;
    TRY(driver_ready());
    REQUIRE(device != NULL && id != NULL, CUDA_ERROR_INVALID_VALUE);
    if (sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        REQUIRE(sscanf(id, "%x:%x.%x", &bus, &slot, &function) >= 2, CUDA_ERROR_INVALID_VALUE);
    }
    for (int i = 0; i < driver.device_count; i++) {
        if (domain == 0 && slot == 0 && bus == profile_pci_bus(driver.devices[i].gpu)) {
            *device = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

/* What is the same for every model here. */
static const struct {
    CUdevice_attribute attribute;
    int value;
} common[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,                         1024                                    },
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,                               1024                                    },
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,                               1024                                    },
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,                               64                                      },
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,                                2147483647                              },
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,                                65535                                   },
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,                                65535                                   },
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,                   49152                                   },
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY,                         65536                                   },
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE,                                     32                                      },
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH,                                     2147483647                              },
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK,                       65536                                   },
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT,                             512                                     },
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP,                                   1                                       },
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY,                           1                                       },
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS,                            1                                       },
    {CU_DEVICE_ATTRIBUTE_ECC_ENABLED,                                   1                                       },
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,                THREADS_PER_MULTIPROCESSOR              },
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT,                            6                                       },
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING,                            1                                       },
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED,                   1                                       },
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,              65536                                   },
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,                                1                                       },
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED,                  1                                       },
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH,                            1                                       },
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR,                 32                                      },
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,                     1                                       },
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,       1                                       },
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,                       1                                       },
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,           1                                       },
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,   1                                       },
    {CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED,                   1                                       },
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,                        1                                       },
    {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR},
    {CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,         1                                       },
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,                 1                                       },
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR,                 1                                       },
    {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED,                           1                                       },
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1                                       },
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED,              1                                       },
    {CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED,                   1                                       },
    {CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,      1                                       },
};

/* Attributes that are not here are features that the fake does not have: 0. */
static int attribute_of(const struct device *device, CUdevice_attribute attribute) {
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        return model_of(device)->clock_khz;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return model_of(device)->multiprocessors;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
        return (int)driver.engine.profile.compute_mode;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return (int)profile_pci_bus(device->gpu);
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
        return model_of(device)->memory_clock_khz;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
        return model_of(device)->memory_bus_bits;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        return model_of(device)->l2_bytes;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        return model_of(device)->shared_bytes;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        return model_of(device)->block_shared_bytes;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return model_of(device)->compute_major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return model_of(device)->compute_minor;
    default:
        for (size_t i = 0; i < sizeof common / sizeof *common; i++)
            if (common[i].attribute == attribute)
                return common[i].value;
        return 0;
    }
}

/* The first number that is no attribute of CUDA_VERSION. */
#define ATTRIBUTES_END 162

API cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice ordinal) {
    struct device *device;
    TRY(find_device(ordinal, &device));
    REQUIRE(value != NULL && attribute >= 1 && attribute < ATTRIBUTES_END,
            CUDA_ERROR_INVALID_VALUE);
    *value = attribute_of(device, attribute);
    return CUDA_SUCCESS;
}
