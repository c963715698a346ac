/*
 * The driver API's first ABI, of 2007: addresses and sizes of 32 bits. Programs
 * built for it ask for the names without suffix; what they allocate lies where
 * such an address reaches. What only calls the 64-bit function is in
 * forward.def.
 */
#include "allocation.h"
#include "copy.h"

/* Defined elsewhere, called here: declared as the program's <cuda.h> would. */
API cuMemGetInfo_v2(size_t *free, size_t *total);
API cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal);
API cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr pointer);
API cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *pointer, unsigned int flags);

/* More than fits is as much as can be said. */
static unsigned narrow(uint64_t value) {
    return value > UINT32_MAX ? UINT32_MAX : (unsigned)value;
}

API cuMemGetInfo(unsigned int *free, unsigned int *total) {
    size_t wide_free, wide_total;
    TRY(cuMemGetInfo_v2(&wide_free, &wide_total));
    if (free != NULL)
        *free = narrow(wide_free);
    if (total != NULL)
        *total = narrow(wide_total);
    return CUDA_SUCCESS;
}

API cuDeviceTotalMem(unsigned int *bytes, CUdevice ordinal) {
    size_t wide;
    REQUIRE(bytes != NULL, CUDA_ERROR_INVALID_VALUE);
    TRY(cuDeviceTotalMem_v2(&wide, ordinal));
    *bytes = narrow(wide);
    return CUDA_SUCCESS;
}

API cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int bytes) {
    uint64_t base;
    REQUIRE(pointer != NULL, CUDA_ERROR_INVALID_VALUE);
    TRY(memory_allocate(bytes, MEMORY_DEVICE, 0, true, &base));
    *pointer = (CUdeviceptr_v1)base;
    return CUDA_SUCCESS;
}

API cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width,
                    unsigned int height, unsigned int element) {
    uint64_t base;
    REQUIRE(pointer != NULL && pitch != NULL && width > 0 && height > 0 &&
                (element == 4 || element == 8 || element == 16),
            CUDA_ERROR_INVALID_VALUE);
    uint64_t row = round_up(width, UNIT_SMALL);
    TRY(memory_allocate(row * height, MEMORY_DEVICE, 0, true, &base));
    *pointer = (CUdeviceptr_v1)base;
    *pitch = (unsigned)row;
    return CUDA_SUCCESS;
}

API cuMemGetAddressRange(CUdeviceptr_v1 *base, unsigned int *size, CUdeviceptr_v1 pointer) {
    CUdeviceptr wide_base;
    size_t wide_size;
    TRY(cuMemGetAddressRange_v2(&wide_base, &wide_size, pointer));
    if (base != NULL)
        *base = (CUdeviceptr_v1)wide_base;
    if (size != NULL)
        *size = narrow(wide_size);
    return CUDA_SUCCESS;
}

/* ---- the host's memory ----------------------------------------------------------- */

API cuMemHostGetDevicePointer(CUdeviceptr_v1 *device, void *pointer, unsigned int flags) {
    CUdeviceptr wide;
    REQUIRE(device != NULL, CUDA_ERROR_INVALID_VALUE);
    TRY(cuMemHostGetDevicePointer_v2(&wide, pointer, flags));
    REQUIRE(wide <= UINT32_MAX, CUDA_ERROR_INVALID_VALUE);
    *device = (CUdeviceptr_v1)wide;
    return CUDA_SUCCESS;
}

/* ---- copies in two and three dimensions ------------------------------------------ */

static CUresult copy_2d(const CUDA_MEMCPY2D_v1 *form, CUstream stream, bool wait) {
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    const CUDA_MEMCPY3D same = {COPIED_ROWS(form), .Depth = 1};
    return copy_form(&same, stream, wait);
}

static CUresult copy_3d(const CUDA_MEMCPY3D_v1 *form, CUstream stream, bool wait) {
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    const CUDA_MEMCPY3D same = {
        COPIED_ROWS(form),  .srcZ = form->srcZ,           .srcHeight = form->srcHeight,
        .dstZ = form->dstZ, .dstHeight = form->dstHeight, .Depth = form->Depth};
    return copy_form(&same, stream, wait);
}

API cuMemcpy2D(const CUDA_MEMCPY2D_v1 *form) {
    return copy_2d(form, CU_STREAM_LEGACY, true);
}

API cuMemcpy2DUnaligned(const CUDA_MEMCPY2D_v1 *form) {
    return copy_2d(form, CU_STREAM_LEGACY, true);
}

API cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1 *form, CUstream stream) {
    return copy_2d(form, stream, false);
}

API cuMemcpy3D(const CUDA_MEMCPY3D_v1 *form) {
    return copy_3d(form, CU_STREAM_LEGACY, true);
}

API cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1 *form, CUstream stream) {
    return copy_3d(form, stream, false);
}
