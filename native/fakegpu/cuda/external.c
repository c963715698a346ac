/*
 * Memory of other interfaces, by file descriptor. There is no graphics driver
 * here that could have made it and be charged for it; so it is charged to the
 * process that imports it, as if it had been made there just then. A
 * descriptor that this driver exported costs nothing: its exporter pays.
 */
#include "external.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocation.h"
#include "array.h"
#include "backing.h"

struct CUextMemory_st {
    struct CUctx_st *context;
    int fd;
    uint64_t start; /* of the memory in the file */
    uint64_t size, charged;
    struct CUextMemory_st *next;
};

static struct CUextMemory_st *imported; /* driver.lock */

/* ---- beginning and end ------------------------------------------------------- */

/* driver.lock held. */
static void end(struct CUextMemory_st **place) {
    struct CUextMemory_st *memory = *place;
    *place = memory->next;
    if (memory->charged > 0)
        device_uncharge(memory->context->device, memory->charged);
    close(memory->fd);
    free(memory);
}

void release_external_of(const struct CUctx_st *context) {
    for (struct CUextMemory_st **place = &imported; *place != NULL;) {
        if ((*place)->context == context)
            end(place);
        else
            place = &(*place)->next;
    }
}

/* What it points to is NULL where there is no such memory. driver.lock held. */
static struct CUextMemory_st **place_of(const struct CUextMemory_st *handle) {
    struct CUextMemory_st **place = &imported;
    while (*place != NULL && *place != handle)
        place = &(*place)->next;
    return place;
}

static CUresult find(CUexternalMemory handle, struct CUextMemory_st **memory) {
    TRY(driver_ready());
    pthread_mutex_lock(&driver.lock);
    *memory = *place_of(handle);
    pthread_mutex_unlock(&driver.lock);
    return *memory != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API cuImportExternalMemory(CUexternalMemory *handle,
                           const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *wanted) {
    struct CUctx_st *context;
    struct backing_header header;
    struct stat file;
    TRY(current_context(&context));
    REQUIRE(handle != NULL && wanted != NULL && wanted->size > 0 &&
                wanted->size < UINT64_C(1) << 46,
            CUDA_ERROR_INVALID_VALUE);
    MODELLED(wanted->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD ||
                 wanted->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD,
             "external memory other than a file descriptor's");
    int fd = wanted->handle.fd;
    REQUIRE(fstat(fd, &file) == 0, CUDA_ERROR_INVALID_VALUE);
    bool ours = backing_read(fd, BACKING_PHYSICAL, &header);
    uint64_t charge = ours ? 0 : round_up(wanted->size, UNIT_PAGE);
    struct CUextMemory_st *memory = calloc(1, sizeof *memory);
    if (memory == NULL || (charge > 0 && !device_charge(context->device, charge))) {
        free(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *memory = (struct CUextMemory_st){.context = owning_context(context),
                                      .fd = fd,
                                      .start = ours ? BACKING_PAGE : 0,
                                      .size = wanted->size,
                                      .charged = charge};
    pthread_mutex_lock(&driver.lock);
    memory->next = imported;
    imported = memory;
    pthread_mutex_unlock(&driver.lock);
    *handle = memory;
    return CUDA_SUCCESS;
}

API cuDestroyExternalMemory(CUexternalMemory handle) {
    struct CUextMemory_st *memory;
    TRY(find(handle, &memory));
    context_wait(memory->context);
    pthread_mutex_lock(&driver.lock);
    end(place_of(handle));
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

/* ---- mapped --------------------------------------------------------------------- */

/* The file's bytes where it has them; of a file that only stands for memory, fresh ones. */
static uint64_t map(const struct CUextMemory_st *memory, uint64_t offset, uint64_t size,
                    bool *shared) {
    struct stat file;
    uint64_t start = memory->start + offset;
    *shared = start % BACKING_PAGE == 0 && fstat(memory->fd, &file) == 0 && S_ISREG(file.st_mode) &&
              (uint64_t)file.st_size >= start + size;
    if (*shared)
        return backing_map(memory->fd, start, size, 0);
    void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return mapped == MAP_FAILED ? 0 : (uint64_t)mapped;
}

API cuExternalMemoryGetMappedBuffer(CUdeviceptr *pointer, CUexternalMemory handle,
                                    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *wanted) {
    struct CUextMemory_st *memory;
    struct CUctx_st *context;
    bool shared;
    TRY(current_context(&context));
    TRY(find(handle, &memory));
    REQUIRE(pointer != NULL && wanted != NULL && wanted->flags == 0 && wanted->size > 0 &&
                wanted->size <= memory->size && wanted->offset <= memory->size - wanted->size,
            CUDA_ERROR_INVALID_VALUE);
    uint64_t base = map(memory, wanted->offset, wanted->size, &shared);
    REQUIRE(base != 0, CUDA_ERROR_MAP_FAILED);
    struct allocation allocation = {.base = base,
                                    .size = wanted->size,
                                    .kind = MEMORY_IMPORTED,
                                    .shared = shared,
                                    .context = owning_context(context),
                                    .device = memory->context->device};
    pthread_mutex_lock(&driver.lock);
    bool inserted = allocation_add(&allocation);
    pthread_mutex_unlock(&driver.lock);
    if (!inserted)
        munmap((void *)base, wanted->size);
    *pointer = base;
    return inserted ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuExternalMemoryGetMappedMipmappedArray(
    CUmipmappedArray *mipmap, CUexternalMemory handle,
    const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *wanted) {
    struct CUextMemory_st *memory;
    struct CUctx_st *context;
    TRY(current_context(&context));
    TRY(find(handle, &memory));
    REQUIRE(mipmap != NULL && wanted != NULL && wanted->offset < memory->size &&
                wanted->numLevels > 0,
            CUDA_ERROR_INVALID_VALUE);
    return mipmap_make(context, &wanted->arrayDesc, wanted->numLevels, false, mipmap);
}
