/* Addresses: reserved, mapped to physical memory, and made accessible. */
#include "virtual.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HOST_PAGE UINT64_C(4096)

struct reservation {
    uint64_t base, size;
    struct reservation *next;
};

static struct reservation *reservations; /* driver.lock */

/* The place of the reservation that holds [address, address + bytes); what it points to is NULL
 * where none does. driver.lock held. */
static struct reservation **reserved_at(uint64_t address, uint64_t bytes) {
    struct reservation **place = &reservations;
    while (*place != NULL && !(address >= (*place)->base && bytes <= (*place)->size &&
                               address - (*place)->base <= (*place)->size - bytes))
        place = &(*place)->next;
    return place;
}

/* Whether nothing is mapped in a range. driver.lock held. */
static bool is_empty(uint64_t address, uint64_t bytes) {
    for (uint64_t at = address; at < address + bytes; at += UNIT_PAGE)
        if (allocation_at(at, 0) != NULL)
            return false;
    return true;
}

static uint64_t reserve(uint64_t size, uint64_t alignment, uint64_t hint) {
    char *mapped = mmap((void *)hint, size + alignment, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED)
        return 0;
    uint64_t start = (uint64_t)mapped;
    uint64_t base = round_up(start, alignment);
    if (base > start)
        munmap(mapped, base - start);
    munmap((void *)(base + size), start + alignment - base);
    return base;
}

API cuMemAddressReserve(CUdeviceptr *pointer, size_t size, size_t alignment, CUdeviceptr hint,
                        unsigned long long flags) {
    TRY(driver_ready());
    REQUIRE(pointer != NULL && size > 0 && size % HOST_PAGE == 0 && flags == 0 &&
                (alignment & (alignment - 1)) == 0,
            CUDA_ERROR_INVALID_VALUE);
    if (alignment < UNIT_PAGE)
        alignment = UNIT_PAGE;
    REQUIRE(size < UINT64_C(1) << 46 && alignment < UINT64_C(1) << 46, CUDA_ERROR_OUT_OF_MEMORY);
    struct reservation *added = malloc(sizeof *added);
    REQUIRE(added != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    added->base = reserve(size, alignment, hint);
    added->size = size;
    if (added->base == 0) {
        free(added);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&driver.lock);
    added->next = reservations;
    reservations = added;
    pthread_mutex_unlock(&driver.lock);
    *pointer = added->base;
    return CUDA_SUCCESS;
}

API cuMemAddressFree(CUdeviceptr pointer, size_t size) {
    TRY(driver_ready());
    pthread_mutex_lock(&driver.lock);
    struct reservation **place = reserved_at(pointer, size);
    struct reservation *found = *place;
    bool whole =
        found != NULL && found->base == pointer && found->size == size && is_empty(pointer, size);
    if (whole) {
        *place = found->next;
        munmap((void *)pointer, size);
        free(found);
    }
    pthread_mutex_unlock(&driver.lock);
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- mapping -------------------------------------------------------------------- */

/* driver.lock held. */
static CUresult map(uint64_t base, uint64_t size, CUmemGenericAllocationHandle handle) {
    struct physical *physical = physical_of(handle);
    const struct reservation *range = *reserved_at(base, size);
    REQUIRE(physical != NULL && range != NULL && size <= physical->size && is_empty(base, size),
            CUDA_ERROR_INVALID_VALUE);
    struct mapping *mapping = calloc(1, sizeof *mapping);
    REQUIRE(mapping != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    *mapping = (struct mapping){
        .physical = physical, .range_base = range->base, .range_size = range->size};
    struct allocation allocation = {.base = base,
                                    .size = size,
                                    .kind = MEMORY_MAPPED,
                                    .shared = true,
                                    .hidden = true,
                                    .device = physical->device,
                                    .mapping = mapping};
    if (!allocation_add(&allocation)) {
        free(mapping);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    physical->mappings++;
    return CUDA_SUCCESS;
}

API cuMemMap(CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long flags) {
    TRY(driver_ready());
    REQUIRE(size > 0 && size % UNIT_PAGE == 0 && pointer % UNIT_PAGE == 0 && offset == 0 &&
                flags == 0,
            CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    CUresult result = map(pointer, size, handle);
    pthread_mutex_unlock(&driver.lock);
    return result;
}

/* Whether a range consists of whole mappings. driver.lock held. */
static bool is_whole(uint64_t address, uint64_t bytes) {
    while (bytes > 0) {
        const struct allocation *found = allocation_at(address, 0);
        if (found == NULL || found->kind != MEMORY_MAPPED || found->base != address ||
            found->size > bytes)
            return false;
        address += found->size;
        bytes -= found->size;
    }
    return true;
}

static void unmap(struct allocation *found) {
    struct mapping *mapping = found->mapping;
    mmap((void *)found->base, found->size, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    allocation_remove(found);
    mapping->physical->mappings--;
    physical_put(mapping->physical);
    free(mapping);
}

/* Work that may still use the memory ends first. */
API cuMemUnmap(CUdeviceptr pointer, size_t size) {
    struct allocation first;
    TRY(driver_ready());
    REQUIRE(size > 0 && find_allocation(pointer, 0, &first), CUDA_ERROR_INVALID_VALUE);
    if (first.device != NULL)
        device_wait_all(first.device);
    pthread_mutex_lock(&driver.lock);
    bool whole = is_whole(pointer, size);
    for (uint64_t at = pointer; whole && at < pointer + size;) {
        struct allocation *found = allocation_at(at, 0);
        at += found->size;
        unmap(found);
    }
    pthread_mutex_unlock(&driver.lock);
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- access ----------------------------------------------------------------------- */

/* Where a location stands in a mapping's table, or -1. */
static int place_of(const CUmemLocation *location) {
    const struct device *device = device_at(location);
    if (device != NULL)
        return (int)(device - driver.devices);
    return is_host(location) ? (int)GPUS_MAX : -1;
}

/* The bytes are mapped into this process when access is first allowed. */
static bool show(struct allocation *found) {
    const struct physical *physical = found->mapping->physical;
    if (found->hidden)
        found->hidden =
            backing_map(physical_file(physical), physical->offset, found->size, found->base) == 0;
    return !found->hidden;
}

static bool set_access(struct allocation *found, const CUmemAccessDesc *wanted, size_t count) {
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        found->mapping->access[place_of(&wanted[i].location)] = (unsigned char)wanted[i].flags;
        any = any || wanted[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    }
    return !any || show(found);
}

API cuMemSetAccess(CUdeviceptr pointer, size_t size, const CUmemAccessDesc *wanted, size_t count) {
    TRY(driver_ready());
    REQUIRE(size > 0 && wanted != NULL && count > 0, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++)
        REQUIRE(place_of(&wanted[i].location) >= 0, CUDA_ERROR_INVALID_DEVICE);
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&driver.lock);
    if (!is_whole(pointer, size))
        result = CUDA_ERROR_INVALID_VALUE;
    for (uint64_t at = pointer; result == CUDA_SUCCESS && at < pointer + size;) {
        struct allocation *found = allocation_at(at, 0);
        at += found->size;
        if (!set_access(found, wanted, count))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&driver.lock);
    return result;
}

API cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr pointer) {
    TRY(driver_ready());
    REQUIRE(flags != NULL && location != NULL, CUDA_ERROR_INVALID_VALUE);
    int place = place_of(location);
    REQUIRE(place >= 0, CUDA_ERROR_INVALID_DEVICE);
    pthread_mutex_lock(&driver.lock);
    const struct allocation *found = allocation_at(pointer, 0);
    bool mapped = found != NULL && found->kind == MEMORY_MAPPED;
    if (mapped)
        *flags = found->mapping->access[place];
    pthread_mutex_unlock(&driver.lock);
    return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
