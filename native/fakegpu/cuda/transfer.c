#include "transfer.h"

#include "allocation.h"

/* Shorter transfers are not worth waking up for: they are done at once. */
#define TRANSFER_LEAST_NS UINT64_C(20000)

/* When each GPU's copy engine is free again, a direction; atomic. */
static uint64_t busy_until[GPUS_MAX][2];

static uint64_t nanoseconds(uint64_t bytes, uint64_t megabytes_a_second) {
    return megabytes_a_second == 0 ? 0 : bytes * 1000 / megabytes_a_second;
}

const struct device *device_of(CUdeviceptr address) {
    struct allocation found;
    bool known = find_allocation(address, 0, &found);
    return !known || found.kind == MEMORY_HOST || found.kind == MEMORY_REGISTERED ? NULL
                                                                                  : found.device;
}

static uint64_t between(const struct device *to, const struct device *from, uint64_t bytes) {
    const struct profile *profile = &driver.engine.profile;
    unsigned links = profile->nvlinks[to->gpu][from->gpu];
    if (links > 0)
        return nanoseconds(bytes, (uint64_t)links * profile->speeds.nvlink);
    return nanoseconds(bytes, profile->speeds.path[profile->path[to->gpu][from->gpu] / 10]);
}

void set_copy_time(struct operation *operation, const struct device *to, const struct device *from,
                   uint64_t bytes) {
    const struct speeds *speeds = &driver.engine.profile.speeds;
    if (to != NULL && from != NULL) {
        operation->duration_ns =
            to == from ? nanoseconds(bytes, speeds->copy) : between(to, from, bytes);
    } else if (to != NULL || from != NULL) {
        uint64_t time_ns = nanoseconds(bytes, speeds->host);
        operation->transfer_ns = time_ns < TRANSFER_LEAST_NS ? 0 : time_ns;
        operation->copy_engine = &busy_until[(to != NULL ? to : from)->gpu][to != NULL];
    }
}

void set_fill_time(struct operation *operation, uint64_t bytes) {
    operation->duration_ns = nanoseconds(bytes, driver.engine.profile.speeds.fill);
}

uint64_t begin_transfer(const struct operation *operation, uint64_t now_ns) {
    uint64_t before = __atomic_load_n(operation->copy_engine, __ATOMIC_RELAXED);
    uint64_t end;
    do {
        end = (before > now_ns ? before : now_ns) + operation->transfer_ns;
    } while (!__atomic_compare_exchange_n(operation->copy_engine, &before, end, true,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return end;
}
