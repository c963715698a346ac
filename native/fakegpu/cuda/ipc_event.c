#include "ipc_event.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "ipc.h"
#include "queue.h"

/* Another process's queue does not wake this one: it is looked at. */
#define LOOK_NS 200000

/* ---- recordings ------------------------------------------------------------------ */

void ipc_event_recorded(const struct CUevent_st *event) {
    *event->shared = (struct ipc_event){.process = driver.engine.process,
                                        .front = event->rest,
                                        .client = event->context->device->client};
}

void ipc_event_deferred(const struct CUevent_st *event) {
    event->shared->process = driver.engine.process;
    event->shared->client = event->context->device->client;
    event->shared->deferred = 1;
}

/* What a process that died had recorded holds nothing up: its place may be another's by now. */
bool ipc_event_is_over(const struct CUevent_st *event) {
    const struct ipc_event *shared = event->shared;
    uint32_t gpu = event->context->device->gpu;
    const struct client *client = &driver.engine.state->gpu[gpu].client[shared->client];
    if (shared->process == 0 || client->process != shared->process ||
        !engine_process_lives(&driver.engine, shared->process))
        return true;
    struct front front = shared->front;
    return shared->deferred == 0 && front_first(&front, gpu, shared->client) == 0;
}

void ipc_event_wait(const struct CUevent_st *event) {
    const struct timespec pause = {0, LOOK_NS};
    uint32_t gpu = event->context->device->gpu;
    for (;;) {
        engine_enter(&driver.engine, gpu);
        bool over = ipc_event_is_over(event);
        engine_leave(&driver.engine, gpu);
        if (over)
            return;
        nanosleep(&pause, NULL);
    }
}

/* ---- handles ------------------------------------------------------------------------ */

static struct ipc_event *map(int fd) {
    void *mapped = mmap(NULL, sizeof(struct ipc_event), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

void ipc_event_end(struct CUevent_st *event) {
    if (event->shared == NULL)
        return;
    munmap(event->shared, sizeof *event->shared);
    event->shared = NULL;
    if (event->exported != 0)
        ipc_remove(event->exported);
}

/* Its first handle gives an event its file; driver.lock held. */
static CUresult share(CUevent event, struct ipc_handle *handle) {
    uint64_t number = event->exported != 0 ? event->exported : ++driver.last_id;
    int fd = ipc_make(handle, event->context->device->gpu, number, sizeof(struct ipc_event));
    REQUIRE(fd >= 0, CUDA_ERROR_MAP_FAILED);
    if (event->exported == 0) {
        struct ipc_event *shared = map(fd);
        engine_enter(&driver.engine, event->context->device->gpu);
        event->shared = shared;
        if (shared != NULL && event->state != EVENT_NEW)
            ipc_event_recorded(event);
        if (shared != NULL && event->state == EVENT_DEFERRED)
            ipc_event_deferred(event);
        engine_leave(&driver.engine, event->context->device->gpu);
        event->exported = number;
    }
    close(fd);
    return event->shared != NULL ? CUDA_SUCCESS : CUDA_ERROR_MAP_FAILED;
}

API cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event) {
    struct ipc_handle made;
    TRY(driver_ready());
    REQUIRE(handle != NULL && event != NULL, CUDA_ERROR_INVALID_VALUE);
    TRY(event_lives(event));
    REQUIRE((event->flags & CU_EVENT_INTERPROCESS) != 0 &&
                (event->shared == NULL || event->exported != 0),
            CUDA_ERROR_INVALID_HANDLE);
    ipc_sweep();
    pthread_mutex_lock(&driver.lock);
    CUresult result = share(event, &made);
    pthread_mutex_unlock(&driver.lock);
    TRY(result);
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &made, sizeof made);
    return CUDA_SUCCESS;
}

API cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle bytes) {
    struct CUctx_st *context;
    struct ipc_handle handle;
    TRY(current_context(&context));
    memcpy(&handle, &bytes, sizeof handle);
    REQUIRE(event != NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(ipc_is_handle(&handle) && handle.bytes == sizeof(struct ipc_event),
            CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(handle.process != driver.engine.process && ipc_device(&handle) == context->device,
            CUDA_ERROR_INVALID_CONTEXT);
    int fd = ipc_open(&handle);
    REQUIRE(fd >= 0, CUDA_ERROR_MAP_FAILED);
    struct ipc_event *shared = map(fd);
    close(fd);
    REQUIRE(shared != NULL, CUDA_ERROR_MAP_FAILED);
    struct CUevent_st *opened = calloc(1, sizeof *opened);
    if (opened == NULL) {
        munmap(shared, sizeof *shared);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    opened->context = context;
    opened->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    opened->shared = shared;
    pthread_mutex_lock(&driver.lock);
    event_list(opened);
    pthread_mutex_unlock(&driver.lock);
    *event = opened;
    return CUDA_SUCCESS;
}
