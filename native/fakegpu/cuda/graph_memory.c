#include "graph_memory.h"

#include <stdlib.h>
#include <sys/mman.h>

static uint64_t greatest(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* ---- a node's addresses ------------------------------------------------------------ */

CUresult graph_memory_make(struct device *device, uint64_t bytes, struct graph_memory **made) {
    uint64_t size = round_up(bytes, UNIT_PAGE);
    REQUIRE(bytes > 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(bytes <= UINT64_C(1) << 46, CUDA_ERROR_OUT_OF_MEMORY);
    struct graph_memory *memory = calloc(1, sizeof *memory);
    void *mapped = memory == NULL ? MAP_FAILED
                                  : mmap(NULL, size, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool good = mapped != MAP_FAILED;
    if (good) {
        *memory = (struct graph_memory){device, (uint64_t)mapped, size, 1, false};
        struct allocation allocation = {.base = memory->base,
                                        .size = size,
                                        .kind = MEMORY_GRAPH,
                                        .device = device,
                                        .graph_memory = memory};
        pthread_mutex_lock(&driver.lock);
        good = device_attach(device) && allocation_add(&allocation);
        pthread_mutex_unlock(&driver.lock);
        if (!good)
            munmap(mapped, size);
    }
    if (!good)
        free(memory);
    else
        *made = memory;
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void graph_memory_hold(struct graph_memory *memory) {
    pthread_mutex_lock(&driver.lock);
    memory->nodes++;
    pthread_mutex_unlock(&driver.lock);
}

/* driver.lock held. */
static void end_if_unused(struct graph_memory *memory) {
    if (memory->nodes > 0 || memory->live)
        return;
    struct allocation *allocation = allocation_at(memory->base, 0);
    if (allocation != NULL && allocation->graph_memory == memory)
        allocation_drop(allocation);
    free(memory);
}

void graph_memory_drop(struct graph_memory *memory) {
    pthread_mutex_lock(&driver.lock);
    memory->nodes--;
    end_if_unused(memory);
    pthread_mutex_unlock(&driver.lock);
}

/* ---- what a device keeps for graphs --------------------------------------------------- */

/* driver.lock held. */
static bool grow(struct device *device, uint64_t bytes) {
    struct graph_account *account = &device->graphs;
    uint64_t wanted = account->used + bytes;
    if (wanted > account->reserved) {
        if (!device_charge(device, wanted - account->reserved))
            return false;
        account->reserved = wanted;
        account->reserved_high = greatest(account->reserved_high, wanted);
    }
    account->used = wanted;
    account->used_high = greatest(account->used_high, wanted);
    return true;
}

CUresult graph_memory_take(struct graph_memory *memory) {
    pthread_mutex_lock(&driver.lock);
    CUresult result = memory->live                          ? CUDA_ERROR_INVALID_VALUE
                      : grow(memory->device, memory->bytes) ? CUDA_SUCCESS
                                                            : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        memory->live = true;
    pthread_mutex_unlock(&driver.lock);
    return result;
}

bool graph_memory_give(CUdeviceptr pointer) {
    pthread_mutex_lock(&driver.lock);
    const struct allocation *allocation = allocation_at(pointer, 0);
    struct graph_memory *memory =
        allocation != NULL && allocation->base == pointer && allocation->kind == MEMORY_GRAPH
            ? allocation->graph_memory
            : NULL;
    bool live = memory != NULL && memory->live;
    if (live) {
        memory->device->graphs.used -= memory->bytes;
        memory->live = false;
        end_if_unused(memory);
    }
    pthread_mutex_unlock(&driver.lock);
    return live;
}

/* driver.lock held. */
static void trim(struct device *device) {
    struct graph_account *account = &device->graphs;
    if (account->reserved > account->used)
        device_uncharge(device, account->reserved - account->used);
    account->reserved = account->used;
}

static bool live_on(const struct allocation *allocation, const void *device) {
    return allocation->kind == MEMORY_GRAPH && allocation->graph_memory->live &&
           allocation->device == device;
}

void graph_memory_forget(struct device *device) {
    struct allocation *allocation;
    while ((allocation = allocation_where(live_on, device)) != NULL) {
        allocation->graph_memory->live = false;
        end_if_unused(allocation->graph_memory);
    }
    device->graphs.used = 0;
    trim(device);
}

/* ---- the API ------------------------------------------------------------------------------ */

API cuDeviceGraphMemTrim(CUdevice ordinal) {
    struct device *device;
    TRY(find_device(ordinal, &device));
    device_wait_all(device);
    pthread_mutex_lock(&driver.lock);
    trim(device);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

API cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void *value) {
    struct device *device;
    TRY(find_device(ordinal, &device));
    REQUIRE(value != NULL && attribute <= CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH,
            CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    const struct graph_account *account = &device->graphs;
    *(uint64_t *)value = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT ? account->used
                         : attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH  ? account->used_high
                         : attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT
                             ? account->reserved
                             : account->reserved_high;
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

/* Only the high marks can be set, to what is there now. */
API cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void *value) {
    struct device *device;
    TRY(find_device(ordinal, &device));
    REQUIRE(value != NULL && *(uint64_t *)value == 0 &&
                (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ||
                 attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH),
            CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    struct graph_account *account = &device->graphs;
    if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        account->used_high = account->used;
    else
        account->reserved_high = account->reserved;
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}
