/* Launches: a kernel's time goes into the engine's queue. */
#include <string.h>

#include "driver.h"

#define MICROSECOND_NS UINT64_C(1000)

/* The first argument, from whichever of the two ways a launch passes them. */
static bool first_argument(void **parameters, void **extra, uint32_t *value) {
    const void *argument = parameters == NULL ? NULL : parameters[0];
    for (; argument == NULL && extra != NULL && *extra != CU_LAUNCH_PARAM_END; extra += 2)
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            argument = extra[1];
    if (argument == NULL)
        return false;
    memcpy(value, argument, sizeof *value);
    return true;
}

/* Waits while the queue is full, as the real driver's launch does. */
static void submit(struct CUstream_st *stream, uint64_t duration_ns) {
    struct device *device = stream->context->device;
    struct engine *engine = &driver.engine;
    engine_enter(engine, device->gpu);
    while (!engine_has_room(engine, device->gpu, device->client)) {
        uint64_t oldest = engine->state->gpu[device->gpu].client[device->client].completed + 1;
        engine_leave(engine, device->gpu);
        device_wait(device, oldest);
        engine_enter(engine, device->gpu);
    }
    settle_events(device, engine->state->gpu[device->gpu].client[device->client].submitted + 1);
    stream_busy(stream, engine_submit(engine, device->gpu, device->client, duration_ns));
    engine_leave(engine, device->gpu);
}

static CUresult launch(CUfunction function, const unsigned shape[6], CUstream handle,
                       void **parameters, void **extra) {
    struct CUstream_st *stream;
    TRY(find_stream(handle, &stream));
    REQUIRE(function != NULL, CUDA_ERROR_INVALID_HANDLE);
    for (int i = 0; i < 6; i++)
        REQUIRE(shape[i] > 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE((uint64_t)shape[3] * shape[4] * shape[5] <= 1024, CUDA_ERROR_INVALID_VALUE);
    uint32_t microseconds = driver.engine.profile.kernel_us;
    if (function->spins)
        REQUIRE(first_argument(parameters, extra, &microseconds), CUDA_ERROR_INVALID_VALUE);
    /* Even an empty kernel takes the GPU a moment. */
    submit(stream, (microseconds == 0 ? 1 : microseconds) * MICROSECOND_NS);
    return CUDA_SUCCESS;
}

API cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                   void **parameters, void **extra) {
    (void)shared_bytes;
    return launch(function, (unsigned[6]){grid_x, grid_y, grid_z, block_x, block_y, block_z},
                  stream, parameters, extra);
}

API cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void **parameters, void **extra) {
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                          per_thread(stream), parameters, extra);
}

API cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                              unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                              unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                              void **parameters) {
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                          stream, parameters, NULL);
}

API cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void **parameters) {
    return cuLaunchCooperativeKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                     shared_bytes, per_thread(stream), parameters);
}

API cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters,
                     void **extra) {
    REQUIRE(config != NULL && (config->numAttrs == 0 || config->attrs != NULL),
            CUDA_ERROR_INVALID_VALUE);
    return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ,
                          config->blockDimX, config->blockDimY, config->blockDimZ,
                          config->sharedMemBytes, config->hStream, parameters, extra);
}

API cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **parameters,
                          void **extra) {
    REQUIRE(config != NULL, CUDA_ERROR_INVALID_VALUE);
    CUlaunchConfig own = *config;
    own.hStream = per_thread(own.hStream);
    return cuLaunchKernelEx(&own, function, parameters, extra);
}
