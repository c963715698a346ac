/* Launches: a kernel's time goes into the engine's queue. */
#include <string.h>

#include "capture.h"
#include "deferred.h"

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

/* Checks a launch, and returns its duration and the argument that gave it. */
static CUresult measure(CUfunction function, const unsigned shape[6], void **parameters,
                        void **extra, uint32_t *argument, uint64_t *duration_ns) {
    REQUIRE(function != NULL, CUDA_ERROR_INVALID_HANDLE);
    for (int i = 0; i < 6; i++)
        REQUIRE(shape[i] > 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE((uint64_t)shape[3] * shape[4] * shape[5] <= 1024, CUDA_ERROR_INVALID_VALUE);
    *argument = driver.engine.profile.kernel_us;
    if (function->argument_ns > 0 || function->breaks)
        REQUIRE(first_argument(parameters, extra, argument), CUDA_ERROR_INVALID_VALUE);
    *duration_ns = function->argument_ns > 0 ? (uint64_t)*argument * function->argument_ns
                                             : driver.engine.profile.kernel_us * MICROSECOND_NS;
    /* Even an empty kernel takes the GPU a moment. */
    if (*duration_ns < MICROSECOND_NS)
        *duration_ns = MICROSECOND_NS;
    return CUDA_SUCCESS;
}

CUresult kernel_operation(struct operation *operation, CUfunction function, const unsigned shape[6],
                          unsigned shared_bytes, void **parameters, void **extra) {
    memset(operation, 0, sizeof *operation);
    operation->kind = OPERATION_KERNEL;
    operation->kernel.function = function;
    operation->kernel.shared_bytes = shared_bytes;
    memcpy(operation->kernel.shape, shape, sizeof operation->kernel.shape);
    TRY(measure(function, shape, parameters, extra, &operation->kernel.argument,
                &operation->duration_ns));
    operation->kernel.breaks = function->breaks;
    return CUDA_SUCCESS;
}

static CUresult launch(CUfunction function, const unsigned shape[6], unsigned shared_bytes,
                       CUstream handle, void **parameters, void **extra) {
    struct CUstream_st *stream;
    struct operation operation;
    uint32_t argument;
    uint64_t duration_ns;
    TRY(find_stream(handle, &stream));
    call_costs(&driver.engine.profile.costs.launch, stream->context);
    if (function != NULL)
        TRY(module_enter(function->module, stream->context));
    if (captures_any() || deferred_any() || (function != NULL && function->breaks)) {
        TRY(kernel_operation(&operation, function, shape, shared_bytes, parameters, extra));
        return stream_do(stream, &operation);
    }
    TRY(measure(function, shape, parameters, extra, &argument, &duration_ns));
    stream_submit(stream, duration_ns);
    return CUDA_SUCCESS;
}

API cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                   void **parameters, void **extra) {
    return launch(function, (unsigned[6]){grid_x, grid_y, grid_z, block_x, block_y, block_z},
                  shared_bytes, stream, parameters, extra);
}

/* All blocks have to be there at once. */
API cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                              unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                              unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                              void **parameters) {
    uint64_t threads = (uint64_t)block_x * block_y * block_z;
    uint64_t blocks = (uint64_t)grid_x * grid_y * grid_z;
    int multiprocessors = current_model()->multiprocessors;
    if (threads > 0 && threads <= 1024)
        REQUIRE(blocks <= (uint64_t)(blocks_that_fit((int)threads, shared_bytes) * multiprocessors),
                CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                          stream, parameters, NULL);
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
