/* Copies and fills of the driver API's first ABI: addresses and sizes of 32 bits (legacy.c). */
#include "copy.h"

/* Defined elsewhere, called here: declared as the program's <cuda.h> would. */
API cuMemcpyHtoD_v2(CUdeviceptr destination, const void *source, size_t bytes);
API cuMemcpyDtoH_v2(void *destination, CUdeviceptr source, size_t bytes);
API cuMemcpyDtoD_v2(CUdeviceptr destination, CUdeviceptr source, size_t bytes);
API cuMemcpyHtoDAsync_v2(CUdeviceptr destination, const void *source, size_t bytes,
                         CUstream stream);
API cuMemcpyDtoHAsync_v2(void *destination, CUdeviceptr source, size_t bytes, CUstream stream);
API cuMemcpyDtoDAsync_v2(CUdeviceptr destination, CUdeviceptr source, size_t bytes,
                         CUstream stream);
API cuMemsetD8_v2(CUdeviceptr pointer, unsigned char value, size_t count);
API cuMemsetD16_v2(CUdeviceptr pointer, unsigned short value, size_t count);
API cuMemsetD32_v2(CUdeviceptr pointer, unsigned int value, size_t count);
API cuMemsetD2D8_v2(CUdeviceptr pointer, size_t pitch, unsigned char value, size_t width,
                    size_t height);
API cuMemsetD2D16_v2(CUdeviceptr pointer, size_t pitch, unsigned short value, size_t width,
                     size_t height);
API cuMemsetD2D32_v2(CUdeviceptr pointer, size_t pitch, unsigned int value, size_t width,
                     size_t height);
API cuMemcpyDtoA_v2(CUarray destination, size_t offset, CUdeviceptr source, size_t bytes);
API cuMemcpyAtoD_v2(CUdeviceptr destination, CUarray source, size_t offset, size_t bytes);
API cuMemcpyHtoA_v2(CUarray destination, size_t offset, const void *source, size_t bytes);
API cuMemcpyAtoH_v2(void *destination, CUarray source, size_t offset, size_t bytes);
API cuMemcpyAtoA_v2(CUarray destination, size_t offset, CUarray source, size_t from, size_t bytes);
API cuMemcpyHtoAAsync_v2(CUarray destination, size_t offset, const void *source, size_t bytes,
                         CUstream stream);
API cuMemcpyAtoHAsync_v2(void *destination, CUarray source, size_t offset, size_t bytes,
                         CUstream stream);

/* ---- one dimension ----------------------------------------------------------------- */

API cuMemcpyHtoD(CUdeviceptr_v1 destination, const void *source, unsigned int bytes) {
    return cuMemcpyHtoD_v2(destination, source, bytes);
}

API cuMemcpyDtoH(void *destination, CUdeviceptr_v1 source, unsigned int bytes) {
    return cuMemcpyDtoH_v2(destination, source, bytes);
}

API cuMemcpyDtoD(CUdeviceptr_v1 destination, CUdeviceptr_v1 source, unsigned int bytes) {
    return cuMemcpyDtoD_v2(destination, source, bytes);
}

API cuMemcpyHtoDAsync(CUdeviceptr_v1 destination, const void *source, unsigned int bytes,
                      CUstream stream) {
    return cuMemcpyHtoDAsync_v2(destination, source, bytes, stream);
}

API cuMemcpyDtoHAsync(void *destination, CUdeviceptr_v1 source, unsigned int bytes,
                      CUstream stream) {
    return cuMemcpyDtoHAsync_v2(destination, source, bytes, stream);
}

API cuMemcpyDtoDAsync(CUdeviceptr_v1 destination, CUdeviceptr_v1 source, unsigned int bytes,
                      CUstream stream) {
    return cuMemcpyDtoDAsync_v2(destination, source, bytes, stream);
}

API cuMemsetD8(CUdeviceptr_v1 pointer, unsigned char value, unsigned int count) {
    return cuMemsetD8_v2(pointer, value, count);
}

API cuMemsetD16(CUdeviceptr_v1 pointer, unsigned short value, unsigned int count) {
    return cuMemsetD16_v2(pointer, value, count);
}

API cuMemsetD32(CUdeviceptr_v1 pointer, unsigned int value, unsigned int count) {
    return cuMemsetD32_v2(pointer, value, count);
}

API cuMemsetD2D8(CUdeviceptr_v1 pointer, unsigned int pitch, unsigned char value,
                 unsigned int width, unsigned int height) {
    return cuMemsetD2D8_v2(pointer, pitch, value, width, height);
}

API cuMemsetD2D16(CUdeviceptr_v1 pointer, unsigned int pitch, unsigned short value,
                  unsigned int width, unsigned int height) {
    return cuMemsetD2D16_v2(pointer, pitch, value, width, height);
}

API cuMemsetD2D32(CUdeviceptr_v1 pointer, unsigned int pitch, unsigned int value,
                  unsigned int width, unsigned int height) {
    return cuMemsetD2D32_v2(pointer, pitch, value, width, height);
}

/* ---- arrays -------------------------------------------------------------------------- */

API cuMemcpyDtoA(CUarray destination, unsigned int offset, CUdeviceptr_v1 source,
                 unsigned int bytes) {
    return cuMemcpyDtoA_v2(destination, offset, source, bytes);
}

API cuMemcpyAtoD(CUdeviceptr_v1 destination, CUarray source, unsigned int offset,
                 unsigned int bytes) {
    return cuMemcpyAtoD_v2(destination, source, offset, bytes);
}

API cuMemcpyHtoA(CUarray destination, unsigned int offset, const void *source, unsigned int bytes) {
    return cuMemcpyHtoA_v2(destination, offset, source, bytes);
}

API cuMemcpyAtoH(void *destination, CUarray source, unsigned int offset, unsigned int bytes) {
    return cuMemcpyAtoH_v2(destination, source, offset, bytes);
}

API cuMemcpyAtoA(CUarray destination, unsigned int offset, CUarray source, unsigned int from,
                 unsigned int bytes) {
    return cuMemcpyAtoA_v2(destination, offset, source, from, bytes);
}

API cuMemcpyHtoAAsync(CUarray destination, unsigned int offset, const void *source,
                      unsigned int bytes, CUstream stream) {
    return cuMemcpyHtoAAsync_v2(destination, offset, source, bytes, stream);
}

API cuMemcpyAtoHAsync(void *destination, CUarray source, unsigned int offset, unsigned int bytes,
                      CUstream stream) {
    return cuMemcpyAtoHAsync_v2(destination, source, offset, bytes, stream);
}

/* ---- two and three dimensions ---------------------------------------------------------- */

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
