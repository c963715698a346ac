#include "account.h"

#include "deferred.h"

uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

bool device_attach(struct device *device) {
    if (!device->attached)
        device->attached = engine_attach(&driver.engine, device->gpu, &device->client);
    return device->attached;
}

bool device_charge(struct device *device, uint64_t bytes) {
    engine_enter(&driver.engine, device->gpu);
    bool room = engine_allocate(&driver.engine, device->gpu, device->client, bytes);
    engine_leave(&driver.engine, device->gpu);
    return room;
}

void device_uncharge(struct device *device, uint64_t bytes) {
    engine_enter(&driver.engine, device->gpu);
    engine_release(&driver.engine, device->gpu, device->client, bytes);
    engine_leave(&driver.engine, device->gpu);
}

void device_wait_all(struct device *device) {
    if (!device->attached)
        return;
    deferred_wait_device(device);
    engine_enter(&driver.engine, device->gpu);
    uint64_t last = driver.engine.state->gpu[device->gpu].client[device->client].submitted;
    engine_leave(&driver.engine, device->gpu);
    engine_wait_all(&driver.engine, device->gpu, device->client, last);
}

struct device *device_at(const CUmemLocation *location) {
    struct device *device;
    int ordinal = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id
                  : location->type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN
                      ? location->localized.deviceId
                      : -1;
    return find_device(ordinal, &device) == CUDA_SUCCESS ? device : NULL;
}

bool is_host(const CUmemLocation *location) {
    return location->type == CU_MEM_LOCATION_TYPE_HOST ||
           location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
           location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}
