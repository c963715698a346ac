/* Copies of rows, slices and arrays, and between GPUs. */
#include <assert.h>
#include <string.h>

#include "copy.h"

/* ---- two and three dimensions ------------------------------------------------ */

static CUresult copy_2d(const CUDA_MEMCPY2D *form, CUstream stream, bool wait) {
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    const CUDA_MEMCPY3D same = {COPIED_ROWS(form), .Depth = 1};
    return copy_form(&same, stream, wait);
}

API cuMemcpy2D_v2(const CUDA_MEMCPY2D *form) {
    return copy_2d(form, CU_STREAM_LEGACY, true);
}

API cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D *form) {
    return copy_2d(form, CU_STREAM_PER_THREAD, true);
}

API cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *form) {
    return copy_2d(form, CU_STREAM_LEGACY, true);
}

API cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *form) {
    return copy_2d(form, CU_STREAM_PER_THREAD, true);
}

API cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *form, CUstream stream) {
    return copy_2d(form, stream, false);
}

API cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D *form, CUstream stream) {
    return copy_2d(form, per_thread(stream), false);
}

API cuMemcpy3D_v2(const CUDA_MEMCPY3D *form) {
    return copy_form(form, CU_STREAM_LEGACY, true);
}

API cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D *form) {
    return copy_form(form, CU_STREAM_PER_THREAD, true);
}

API cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *form, CUstream stream) {
    return copy_form(form, stream, false);
}

API cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D *form, CUstream stream) {
    return copy_form(form, per_thread(stream), false);
}

/* ---- between contexts ------------------------------------------------------------ */

static CUresult copy_between(const CUDA_MEMCPY3D_PEER *form, CUstream stream, bool wait) {
    struct CUctx_st *context;
    CUDA_MEMCPY3D same;
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    TRY(find_context(form->srcContext, &context));
    TRY(find_context(form->dstContext, &context));
    /* The two structures differ in what is reserved in one and the contexts in the other. */
    static_assert(sizeof same == sizeof *form, "one is the other's twin");
    memcpy(&same, form, sizeof same);
    same.reserved0 = same.reserved1 = NULL;
    return copy_form(&same, stream, wait);
}

API cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *form) {
    return copy_between(form, CU_STREAM_LEGACY, true);
}

API cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER *form) {
    return copy_between(form, CU_STREAM_PER_THREAD, true);
}

API cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *form, CUstream stream) {
    return copy_between(form, stream, false);
}

API cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER *form, CUstream stream) {
    return copy_between(form, per_thread(stream), false);
}

/* ---- arrays, a row of bytes at an offset --------------------------------------------- */

struct end {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t offset;
};

static struct end at_array(CUarray array, size_t offset) {
    return (struct end){.type = CU_MEMORYTYPE_ARRAY, .array = array, .offset = offset};
}

static struct end at_device(CUdeviceptr pointer) {
    return (struct end){.type = CU_MEMORYTYPE_DEVICE, .device = pointer};
}

static struct end at_host(const void *pointer) {
    return (struct end){.type = CU_MEMORYTYPE_HOST, .host = pointer};
}

static CUresult copy_ends(struct end to, struct end from, size_t bytes, CUstream stream,
                          bool wait) {
    const CUDA_MEMCPY3D form = {.srcXInBytes = from.offset,
                                .srcMemoryType = from.type,
                                .srcHost = from.host,
                                .srcDevice = from.device,
                                .srcArray = from.array,
                                .dstXInBytes = to.offset,
                                .dstMemoryType = to.type,
                                .dstHost = (void *)to.host,
                                .dstDevice = to.device,
                                .dstArray = to.array,
                                .WidthInBytes = bytes,
                                .Height = 1,
                                .Depth = 1};
    return copy_form(&form, stream, wait);
}

#define WAITING(name, parameters, to, from)                                                        \
    API name##_v2 parameters {                                                                     \
        return copy_ends(to, from, bytes, CU_STREAM_LEGACY, true);                                 \
    }                                                                                              \
    API name##_v2_ptds parameters {                                                                \
        return copy_ends(to, from, bytes, CU_STREAM_PER_THREAD, true);                             \
    }

WAITING(cuMemcpyDtoA, (CUarray array, size_t offset, CUdeviceptr pointer, size_t bytes),
        at_array(array, offset), at_device(pointer))
WAITING(cuMemcpyAtoD, (CUdeviceptr pointer, CUarray array, size_t offset, size_t bytes),
        at_device(pointer), at_array(array, offset))
WAITING(cuMemcpyHtoA, (CUarray array, size_t offset, const void *pointer, size_t bytes),
        at_array(array, offset), at_host(pointer))
WAITING(cuMemcpyAtoH, (void *pointer, CUarray array, size_t offset, size_t bytes), at_host(pointer),
        at_array(array, offset))
WAITING(cuMemcpyAtoA,
        (CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes),
        at_array(to, to_offset), at_array(from, from_offset))

API cuMemcpyHtoAAsync_v2(CUarray array, size_t offset, const void *pointer, size_t bytes,
                         CUstream stream) {
    return copy_ends(at_array(array, offset), at_host(pointer), bytes, stream, false);
}

API cuMemcpyAtoHAsync_v2(void *pointer, CUarray array, size_t offset, size_t bytes,
                         CUstream stream) {
    return copy_ends(at_host(pointer), at_array(array, offset), bytes, stream, false);
}
