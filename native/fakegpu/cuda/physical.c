/* Physical memory and its handles. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "virtual.h"

/* Handles are numbers: a place in this table, from 1, and how often it has been used before, so
 * that a stale one is known as such. driver.lock. */
static struct {
    struct {
        struct physical *physical;
        uint32_t generation;
    } *slot;
    uint32_t used, room;
    uint32_t lowest; /* no free place is below */
} table;

/* The file of all physical memory that cannot leave the process. */
static struct backing common = {.fd = -1};

static CUmemGenericAllocationHandle handle_of(const struct physical *physical) {
    return (CUmemGenericAllocationHandle)table.slot[physical->slot].generation << 32 |
           (physical->slot + 1);
}

struct physical *physical_of(CUmemGenericAllocationHandle handle) {
    uint32_t place = (uint32_t)handle - 1;
    if (place >= table.used || table.slot[place].generation != handle >> 32)
        return NULL;
    struct physical *physical = table.slot[place].physical;
    return physical != NULL && physical->handles > 0 ? physical : NULL;
}

static bool enter_in_table(struct physical *physical) {
    uint32_t place = table.lowest;
    while (place < table.used && table.slot[place].physical != NULL)
        place++;
    if (place == table.room) {
        uint32_t room = table.room == 0 ? 64 : table.room * 2;
        void *grown = realloc(table.slot, room * sizeof *table.slot);
        if (grown == NULL)
            return false;
        table.slot = grown;
        memset(&table.slot[table.room], 0, (room - table.room) * sizeof *table.slot);
        table.room = room;
    }
    if (place == table.used)
        table.used++;
    table.slot[place].physical = physical;
    physical->id = ++driver.last_id;
    table.slot[place].generation++;
    table.lowest = place + 1;
    physical->slot = place;
    return true;
}

int physical_file(const struct physical *physical) {
    return physical->backing.fd >= 0 ? physical->backing.fd : common.fd;
}

void physical_put(struct physical *physical) {
    if (physical->handles > 0 || physical->mappings > 0 || physical->imports > 0)
        return;
    struct physical *origin = physical->origin;
    if (physical->backing.fd >= 0)
        close(physical->backing.fd);
    else
        backing_give(&common, physical->offset, physical->size);
    if (physical->charged > 0)
        device_uncharge(physical->device, physical->charged);
    table.slot[physical->slot].physical = NULL;
    if (physical->slot < table.lowest)
        table.lowest = physical->slot;
    free(physical);
    if (origin != NULL) {
        origin->imports--;
        physical_put(origin);
    }
}

/* ---- making it ------------------------------------------------------------------ */

static CUresult check(const CUmemAllocationProp *properties, struct device **device) {
    REQUIRE(properties != NULL, CUDA_ERROR_INVALID_VALUE);
    MODELLED(properties->type == CU_MEM_ALLOCATION_TYPE_PINNED, "managed physical memory");
    *device = device_at(&properties->location);
    REQUIRE(*device != NULL || is_host(&properties->location), CUDA_ERROR_INVALID_DEVICE);
    MODELLED(properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ||
                 properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
             "physical memory with handles other than file descriptors");
    return CUDA_SUCCESS;
}

/* Where its bytes will be. driver.lock held. */
static bool place(struct physical *physical) {
    if (physical->properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE)
        return (common.fd >= 0 || backing_make(&common, NULL)) &&
               backing_take(&common, physical->size, &physical->offset);
    struct backing_header header = {.kind = BACKING_PHYSICAL,
                                    .bytes = physical->size,
                                    .properties.physical = physical->properties};
    if (physical->device != NULL)
        memcpy(header.uuid, driver.engine.state->gpu[physical->device->gpu].uuid,
               sizeof header.uuid);
    if (!backing_make(&physical->backing, &header)) {
        physical->backing.fd = -1;
        return false;
    }
    return backing_take(&physical->backing, physical->size, &physical->offset);
}

static bool charge(struct physical *physical) {
    if (physical->device == NULL)
        return true;
    if (!device_attach(physical->device) || !device_charge(physical->device, physical->size))
        return false;
    physical->charged = physical->size;
    return true;
}

/* driver.lock held. */
static CUresult create(const CUmemAllocationProp *properties, struct device *device, uint64_t size,
                       CUmemGenericAllocationHandle *handle) {
    struct physical *physical = calloc(1, sizeof *physical);
    REQUIRE(physical != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    physical->device = device;
    physical->size = size;
    physical->properties = *properties;
    physical->handles = 1;
    physical->backing.fd = -1;
    if (charge(physical) && place(physical) && enter_in_table(physical)) {
        *handle = handle_of(physical);
        return CUDA_SUCCESS;
    }
    if (physical->charged > 0)
        device_uncharge(device, physical->charged);
    if (physical->backing.fd >= 0)
        close(physical->backing.fd);
    free(physical);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

API cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                const CUmemAllocationProp *properties, unsigned long long flags) {
    struct device *device;
    TRY(driver_ready());
    TRY(check(properties, &device));
    REQUIRE(handle != NULL && size > 0 && size % UNIT_PAGE == 0 && flags == 0,
            CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    CUresult result = create(properties, device, size, handle);
    pthread_mutex_unlock(&driver.lock);
    return result;
}

API cuMemRelease(CUmemGenericAllocationHandle handle) {
    TRY(driver_ready());
    pthread_mutex_lock(&driver.lock);
    struct physical *physical = physical_of(handle);
    if (physical != NULL) {
        physical->handles--;
        physical_put(physical);
    }
    pthread_mutex_unlock(&driver.lock);
    return physical != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    TRY(driver_ready());
    REQUIRE(handle != NULL, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    const struct allocation *found = allocation_at((uint64_t)address, 0);
    bool mapped = found != NULL && found->kind == MEMORY_MAPPED;
    if (mapped) {
        found->mapping->physical->handles++;
        *handle = handle_of(found->mapping->physical);
    }
    pthread_mutex_unlock(&driver.lock);
    return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- questions --------------------------------------------------------------------- */

API cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                  CUmemAllocationGranularity_flags option) {
    struct device *device;
    TRY(driver_ready());
    TRY(check(properties, &device));
    REQUIRE(granularity != NULL && (unsigned)option <= CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
            CUDA_ERROR_INVALID_VALUE);
    *granularity = UNIT_PAGE;
    return CUDA_SUCCESS;
}

API cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                           CUmemGenericAllocationHandle handle) {
    TRY(driver_ready());
    REQUIRE(properties != NULL, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    const struct physical *physical = physical_of(handle);
    if (physical != NULL)
        *properties = physical->properties;
    pthread_mutex_unlock(&driver.lock);
    return physical != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- between processes -------------------------------------------------------------- */

API cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                 CUmemAllocationHandleType type, unsigned long long flags) {
    TRY(driver_ready());
    REQUIRE(shareable != NULL && flags == 0, CUDA_ERROR_INVALID_VALUE);
    MODELLED(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
             "a shareable handle other than a file descriptor");
    pthread_mutex_lock(&driver.lock);
    const struct physical *physical = physical_of(handle);
    int copy = physical != NULL && physical->backing.fd >= 0
                   ? fcntl(physical->backing.fd, F_DUPFD_CLOEXEC, 0)
                   : -1;
    pthread_mutex_unlock(&driver.lock);
    REQUIRE(copy >= 0, CUDA_ERROR_INVALID_VALUE);
    *(int *)shareable = copy;
    return CUDA_SUCCESS;
}

static bool is_same_file(int one, int other) {
    struct stat a, b;
    return fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* The memory of this process that a descriptor was exported from, or NULL. driver.lock held. */
static struct physical *exported_here(int fd) {
    for (uint32_t place = 0; place < table.used; place++) {
        struct physical *physical = table.slot[place].physical;
        if (physical != NULL && physical->origin == NULL && physical->backing.fd >= 0 &&
            is_same_file(physical->backing.fd, fd))
            return physical;
    }
    return NULL;
}

/* The exporter pays, for what it imported itself until that is released too. The descriptor stays
 * the caller's. */
API cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                   CUmemAllocationHandleType type) {
    struct backing_header header;
    TRY(driver_ready());
    REQUIRE(handle != NULL, CUDA_ERROR_INVALID_VALUE);
    MODELLED(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
             "a shareable handle other than a file descriptor");
    int fd = (int)(intptr_t)shareable;
    REQUIRE(backing_read(fd, BACKING_PHYSICAL, &header), CUDA_ERROR_INVALID_VALUE);
    struct device *device = backing_device(&header);
    REQUIRE(device != NULL || header.uuid[0] == '\0', CUDA_ERROR_INVALID_DEVICE);
    struct physical *physical = calloc(1, sizeof *physical);
    REQUIRE(physical != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    *physical = (struct physical){.device = device,
                                  .size = header.bytes,
                                  .handles = 1,
                                  .properties = header.properties.physical,
                                  .backing = {.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)},
                                  .offset = BACKING_PAGE};
    if (device != NULL)
        physical->properties.location.id = (int)(device - driver.devices);
    pthread_mutex_lock(&driver.lock);
    struct physical *origin = exported_here(fd);
    bool entered = physical->backing.fd >= 0 && enter_in_table(physical);
    if (entered) {
        *handle = handle_of(physical);
        physical->origin = origin;
        if (origin != NULL)
            origin->imports++;
    }
    pthread_mutex_unlock(&driver.lock);
    if (entered)
        return CUDA_SUCCESS;
    if (physical->backing.fd >= 0)
        close(physical->backing.fd);
    free(physical);
    return CUDA_ERROR_OUT_OF_MEMORY;
}
