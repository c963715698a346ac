/*
 * Copies whose arguments decide whether they use the GPU. A copy inside the GPU takes GPU time as a
 * kernel does, and waits at the gate; a copy from or to the host does not.
 */
#include "gate/gate.h"
#include "lookup/driver_calls.h"
#include "lookup/real.h"

/* An address that no allocation of the driver contains is the host's. */
static bool is_of_host(CUdeviceptr pointer) {
    int type = 0;
    return KS_DRIVER(pointer_get_attribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer) !=
               CUDA_SUCCESS ||
           type == CU_MEMORYTYPE_HOST;
}

#define IS_INSIDE_GPU(destination, source) (!is_of_host(source) && !is_of_host(destination))

/* An end of the unified kind has its address in the field for the GPU's. */
#define END_IS_OF_HOST(copy, end)                                                                  \
    ((copy)->end##_memory_type == CU_MEMORYTYPE_HOST ||                                            \
     ((copy)->end##_memory_type == CU_MEMORYTYPE_UNIFIED && is_of_host((copy)->end##_device)))
#define IS_COPY_INSIDE_GPU(copy)                                                                   \
    ((copy) != NULL && !END_IS_OF_HOST(copy, source) && !END_IS_OF_HOST(copy, destination))

#define COPY(name, parameters, arguments, target, is_inside_gpu)                                   \
    int name parameters {                                                                          \
        if (!(is_inside_gpu))                                                                      \
            return KS_REAL(name) arguments;                                                        \
        CUresult result = ks_enter(target);                                                        \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        result = KS_REAL(name) arguments;                                                          \
        ks_leave();                                                                                \
        return result;                                                                             \
    }

#define COPY_BYTES(name, kind)                                                                     \
    COPY(name, (CUdeviceptr destination, CUdeviceptr source, size_t bytes),                        \
         (destination, source, bytes), KS_STREAM_##kind(NULL), IS_INSIDE_GPU(destination, source))
#define COPY_BYTES_ASYNC(name, kind)                                                               \
    COPY(name, (CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream),       \
         (destination, source, bytes, stream), KS_STREAM_##kind(stream),                           \
         IS_INSIDE_GPU(destination, source))
#define COPY_ROWS(name, type, kind)                                                                \
    COPY(name, (const type *copy), (copy), KS_STREAM_##kind(NULL), IS_COPY_INSIDE_GPU(copy))
#define COPY_ROWS_ASYNC(name, type, kind)                                                          \
    COPY(name, (const type *copy, CUstream stream), (copy, stream), KS_STREAM_##kind(stream),      \
         IS_COPY_INSIDE_GPU(copy))

COPY_BYTES(cuMemcpy, LEGACY)
COPY_BYTES(cuMemcpy_ptds, PER_THREAD)
COPY_BYTES_ASYNC(cuMemcpyAsync, LEGACY)
COPY_BYTES_ASYNC(cuMemcpyAsync_ptsz, PER_THREAD)

COPY_ROWS(cuMemcpy2D, CUDA_MEMCPY2D_v1, LEGACY)
COPY_ROWS(cuMemcpy2D_v2, CUDA_MEMCPY2D, LEGACY)
COPY_ROWS(cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D, PER_THREAD)
COPY_ROWS_ASYNC(cuMemcpy2DAsync, CUDA_MEMCPY2D_v1, LEGACY)
COPY_ROWS_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, LEGACY)
COPY_ROWS_ASYNC(cuMemcpy2DAsync_v2_ptsz, CUDA_MEMCPY2D, PER_THREAD)
COPY_ROWS(cuMemcpy2DUnaligned, CUDA_MEMCPY2D_v1, LEGACY)
COPY_ROWS(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, LEGACY)
COPY_ROWS(cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D, PER_THREAD)

COPY_ROWS(cuMemcpy3D, CUDA_MEMCPY3D_v1, LEGACY)
COPY_ROWS(cuMemcpy3D_v2, CUDA_MEMCPY3D, LEGACY)
COPY_ROWS(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, PER_THREAD)
COPY_ROWS_ASYNC(cuMemcpy3DAsync, CUDA_MEMCPY3D_v1, LEGACY)
COPY_ROWS_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, LEGACY)
COPY_ROWS_ASYNC(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D, PER_THREAD)
