/* Pools between processes: the file of a pool, and where in it a piece of memory is. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pool.h"

#define EXPORT_MAGIC UINT64_C(0x54524f5058454b41)

/* What the 64 opaque bytes are. */
struct export {
    uint64_t magic, offset, bytes;
};

API cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool handle,
                                     CUmemAllocationHandleType type, unsigned long long flags) {
    struct CUmemPoolHandle_st *pool;
    TRY(find_pool(handle, &pool));
    REQUIRE(shareable != NULL && flags == 0 && pool->backing.fd >= 0 && !pool->imported &&
                type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            CUDA_ERROR_INVALID_VALUE);
    int copy = fcntl(pool->backing.fd, F_DUPFD_CLOEXEC, 0);
    REQUIRE(copy >= 0, CUDA_ERROR_OPERATING_SYSTEM);
    *(int *)shareable = copy;
    return CUDA_SUCCESS;
}

/* The exporter pays; nothing can be allocated from an imported pool. */
API cuMemPoolImportFromShareableHandle(CUmemoryPool *handle, void *shareable,
                                       CUmemAllocationHandleType type, unsigned long long flags) {
    struct backing_header header;
    TRY(driver_ready());
    REQUIRE(handle != NULL && flags == 0 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            CUDA_ERROR_INVALID_VALUE);
    int fd = (int)(intptr_t)shareable;
    REQUIRE(backing_read(fd, BACKING_POOL, &header), CUDA_ERROR_INVALID_VALUE);
    struct device *device = backing_device(&header);
    REQUIRE(device != NULL || header.uuid[0] == '\0', CUDA_ERROR_INVALID_DEVICE);
    CUmemPoolProps properties = header.properties.pool;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
    if (device != NULL)
        properties.location.id = (int)(device - driver.devices);
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    REQUIRE(copy >= 0, CUDA_ERROR_OPERATING_SYSTEM);
    pthread_mutex_lock(&driver.lock);
    struct CUmemPoolHandle_st *pool = pool_make(&properties, device);
    if (pool != NULL) {
        pool->imported = true;
        pool->backing.fd = copy;
        *handle = pool;
    }
    pthread_mutex_unlock(&driver.lock);
    if (pool == NULL)
        close(copy);
    return pool == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

API cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr pointer) {
    struct export exported = {.magic = EXPORT_MAGIC};
    TRY(driver_ready());
    REQUIRE(data != NULL, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    const struct allocation *found = allocation_at(pointer, 0);
    bool from_file = found != NULL && found->kind == MEMORY_POOL && found->base == pointer &&
                     found->block->chunk->pool->backing.fd >= 0;
    if (from_file) {
        const struct chunk *chunk = found->block->chunk;
        exported.offset = chunk->offset + (pointer - chunk->base);
        exported.bytes = found->size;
    }
    pthread_mutex_unlock(&driver.lock);
    REQUIRE(from_file, CUDA_ERROR_INVALID_VALUE);
    memset(data, 0, sizeof *data);
    memcpy(data, &exported, sizeof exported);
    return CUDA_SUCCESS;
}

API cuMemPoolImportPointer(CUdeviceptr *pointer, CUmemoryPool handle,
                           CUmemPoolPtrExportData *data) {
    struct CUmemPoolHandle_st *pool;
    struct export exported;
    TRY(find_pool(handle, &pool));
    REQUIRE(pointer != NULL && data != NULL && pool->imported, CUDA_ERROR_INVALID_VALUE);
    memcpy(&exported, data, sizeof exported);
    REQUIRE(exported.magic == EXPORT_MAGIC, CUDA_ERROR_INVALID_VALUE);
    uint64_t base = backing_map(pool->backing.fd, exported.offset, exported.bytes, 0);
    REQUIRE(base != 0, CUDA_ERROR_INVALID_VALUE);
    struct allocation allocation = {.base = base,
                                    .size = exported.bytes,
                                    .kind = MEMORY_IMPORTED,
                                    .shared = true,
                                    .device = pool->device};
    pthread_mutex_lock(&driver.lock);
    bool inserted = allocation_add(&allocation);
    pthread_mutex_unlock(&driver.lock);
    if (!inserted)
        munmap((void *)base, exported.bytes);
    *pointer = base;
    return inserted ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
