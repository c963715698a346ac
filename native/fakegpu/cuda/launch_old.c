/* Launches as they were before CUDA 4, and over several GPUs: still there for old programs. */
#include <string.h>

#include "driver.h"

/* ---- a function remembers its block and its arguments ------------------------------ */

API cuFuncSetBlockShape(CUfunction function, int x, int y, int z) {
    TRY(driver_ready());
    REQUIRE(function != NULL && x > 0 && y > 0 && z > 0, CUDA_ERROR_INVALID_VALUE);
    function->block[0] = (unsigned)x;
    function->block[1] = (unsigned)y;
    function->block[2] = (unsigned)z;
    return CUDA_SUCCESS;
}

API cuFuncSetSharedSize(CUfunction function, unsigned int bytes) {
    TRY(driver_ready());
    REQUIRE(function != NULL, CUDA_ERROR_INVALID_VALUE);
    function->shared_bytes = bytes;
    return CUDA_SUCCESS;
}

API cuParamSetSize(CUfunction function, unsigned int bytes) {
    TRY(driver_ready());
    REQUIRE(function != NULL && bytes <= 4096, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

/* The first argument is all that a kernel here reads. */
API cuParamSetv(CUfunction function, int offset, void *value, unsigned int bytes) {
    TRY(driver_ready());
    REQUIRE(function != NULL && offset >= 0 && value != NULL, CUDA_ERROR_INVALID_VALUE);
    if (offset == 0)
        memcpy(&function->first_argument, value,
               bytes < sizeof function->first_argument ? bytes : sizeof function->first_argument);
    return CUDA_SUCCESS;
}

API cuParamSeti(CUfunction function, int offset, unsigned int value) {
    return cuParamSetv(function, offset, &value, sizeof value);
}

API cuParamSetf(CUfunction function, int offset, float value) {
    return cuParamSetv(function, offset, &value, sizeof value);
}

API cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
    REQUIRE(function != NULL && width > 0 && height > 0, CUDA_ERROR_INVALID_VALUE);
    void *parameters[] = {&function->first_argument};
    return cuLaunchKernel(function, (unsigned)width, (unsigned)height, 1, function->block[0],
                          function->block[1], function->block[2], function->shared_bytes, stream,
                          parameters, NULL);
}

API cuLaunchGrid(CUfunction function, int width, int height) {
    return cuLaunchGridAsync(function, width, height, CU_STREAM_LEGACY);
}

API cuLaunch(CUfunction function) {
    return cuLaunchGrid(function, 1, 1);
}

/* ---- one launch a GPU ---------------------------------------------------------------- */

API cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int count,
                                         unsigned int flags) {
    REQUIRE(launches != NULL && count > 0 && flags < 4, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count; i++)
        REQUIRE(launches[i].hStream != NULL && launches[i].hStream != CU_STREAM_LEGACY &&
                    launches[i].hStream != CU_STREAM_PER_THREAD,
                CUDA_ERROR_INVALID_HANDLE);
    for (unsigned i = 0; i < count; i++) {
        const CUDA_LAUNCH_PARAMS *launch = &launches[i];
        TRY(cuLaunchKernel(launch->function, launch->gridDimX, launch->gridDimY, launch->gridDimZ,
                           launch->blockDimX, launch->blockDimY, launch->blockDimZ,
                           launch->sharedMemBytes, launch->hStream, launch->kernelParams, NULL));
    }
    return CUDA_SUCCESS;
}
