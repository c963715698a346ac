/* Memory of another process, by a handle. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "allocation.h"
#include "ipc.h"

#define HOST_PAGE UINT64_C(4096)

static_assert(sizeof(struct ipc_handle) <= CU_IPC_HANDLE_SIZE, "a handle fits its bytes");

/* ---- given -------------------------------------------------------------------- */

/* Copies the pages that have ever been written: those of the rest are zero on both sides. */
static bool copy_written(uint64_t base, uint64_t bytes, int fd) {
    unsigned char resident[256];
    for (uint64_t done = 0; done < bytes;) {
        uint64_t part = bytes - done;
        if (part > sizeof resident * HOST_PAGE)
            part = sizeof resident * HOST_PAGE;
        if (mincore((void *)(base + done), part, resident) != 0)
            return false;
        for (uint64_t page = 0; page * HOST_PAGE < part; page++) {
            uint64_t at = done + page * HOST_PAGE;
            uint64_t length = bytes - at < HOST_PAGE ? bytes - at : HOST_PAGE;
            if ((resident[page] & 1) != 0 &&
                pwrite(fd, (const void *)(base + at), length, (off_t)at) != (ssize_t)length)
                return false;
        }
        done += part;
    }
    return true;
}

/* Puts a file in the place of an allocation's own pages. driver.lock held. */
static CUresult share(struct allocation *found, struct ipc_handle *handle) {
    int fd = ipc_make(handle, found->device->gpu, found->id, found->size);
    REQUIRE(fd >= 0, CUDA_ERROR_MAP_FAILED);
    bool shared = found->shared;
    if (!shared && copy_written(found->base, found->size, fd))
        shared = mmap((void *)found->base, found->size, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0) != MAP_FAILED;
    close(fd);
    if (!shared)
        ipc_remove(found->id);
    found->shared = shared;
    return shared ? CUDA_SUCCESS : CUDA_ERROR_MAP_FAILED;
}

API cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer) {
    struct CUctx_st *context;
    struct ipc_handle made;
    TRY(current_context(&context));
    REQUIRE(handle != NULL, CUDA_ERROR_INVALID_VALUE);
    ipc_sweep();
    pthread_mutex_lock(&driver.lock);
    struct allocation *found = allocation_at(pointer, 0);
    CUresult result = found != NULL && found->kind == MEMORY_DEVICE ? share(found, &made)
                                                                    : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&driver.lock);
    TRY(result);
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &made, sizeof made);
    return CUDA_SUCCESS;
}

/* ---- taken --------------------------------------------------------------------- */

struct opening {
    const struct CUctx_st *context;
    const struct ipc_handle *handle;
};

static bool is_opened(const struct allocation *allocation, const void *argument) {
    const struct opening *opening = argument;
    return allocation->kind == MEMORY_OPENED && allocation->context == opening->context &&
           allocation->opened.process == opening->handle->process &&
           allocation->opened.number == opening->handle->number;
}

static CUresult map(CUdeviceptr *pointer, struct CUctx_st *context, struct device *device,
                    const struct ipc_handle *handle) {
    int fd = ipc_open(handle);
    REQUIRE(fd >= 0, CUDA_ERROR_MAP_FAILED);
    void *mapped =
        mmap(NULL, handle->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    close(fd);
    REQUIRE(mapped != MAP_FAILED, CUDA_ERROR_MAP_FAILED);
    struct allocation allocation = {
        .base = (uint64_t)mapped,
        .size = handle->bytes,
        .kind = MEMORY_OPENED,
        .shared = true,
        .context = context,
        .device = device,
        .opened = {.process = handle->process, .number = handle->number, .times = 1}
    };
    if (!allocation_add(&allocation)) {
        munmap(mapped, handle->bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pointer = allocation.base;
    return CUDA_SUCCESS;
}

/* The exporter pays. A handle that this context has open already is the same memory. */
API cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle bytes, unsigned int flags) {
    struct CUctx_st *context;
    struct ipc_handle handle;
    TRY(current_context(&context));
    memcpy(&handle, &bytes, sizeof handle);
    REQUIRE(pointer != NULL && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS,
            CUDA_ERROR_INVALID_VALUE);
    REQUIRE(ipc_is_handle(&handle), CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(handle.process != driver.engine.process, CUDA_ERROR_INVALID_CONTEXT);
    struct device *device = ipc_device(&handle);
    REQUIRE(device != NULL, CUDA_ERROR_INVALID_DEVICE);
    CUresult result = CUDA_SUCCESS;
    const struct opening opening = {context, &handle};
    pthread_mutex_lock(&driver.lock);
    struct allocation *open = allocation_where(is_opened, &opening);
    if (open != NULL) {
        open->opened.times++;
        *pointer = open->base;
    } else {
        result = map(pointer, context, device, &handle);
    }
    pthread_mutex_unlock(&driver.lock);
    return result;
}

API cuIpcCloseMemHandle(CUdeviceptr pointer) {
    struct allocation found;
    TRY(driver_ready());
    REQUIRE(find_allocation(pointer, 0, &found) && found.base == pointer &&
                found.kind == MEMORY_OPENED,
            CUDA_ERROR_INVALID_VALUE);
    context_wait(found.context);
    pthread_mutex_lock(&driver.lock);
    struct allocation *still = allocation_at(pointer, 0);
    if (still != NULL && still->id == found.id && --still->opened.times == 0)
        allocation_drop(still);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}
