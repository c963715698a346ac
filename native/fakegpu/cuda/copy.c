/*
 * Copies. Their bytes move when they are asked for, or when their turn comes
 * where their stream is held up: kernels here change no memory, so no program
 * can tell the difference. The synchronous ones wait for their stream, before and
 * after.
 */
#include "copy.h"

#include <string.h>

#include "allocation.h"
#include "array.h"
#include "capture.h"
#include "transfer.h"

bool on_gpu(CUdeviceptr pointer, size_t bytes) {
    return memory_usable(pointer, bytes);
}

/* In one address space an address that the driver does not know is the program's own. */
static bool usable(CUdeviceptr pointer, size_t bytes) {
    return pointer != 0 && (on_gpu(pointer, bytes) || !on_gpu(pointer, 0));
}

/* ---- the form of all copies -------------------------------------------------------- */

/* One side: where its first byte is, how far apart rows and slices are, and whose it is. */
struct side {
    char *start;
    size_t pitch, slice;
    const struct device *device; /* NULL: the host's */
    const char *end;             /* of an array; NULL: not known */
};

static CUresult find_array_side(struct side *side, CUarray handle) {
    struct CUarray_st *array;
    TRY(find_array(handle, &array));
    REQUIRE(array->bytes != NULL, CUDA_ERROR_INVALID_VALUE);
    *side =
        (struct side){array->bytes, array->row, array->row * array->rows, array->context->device,
                      array->bytes + array->row * array->rows * array->slices};
    return CUDA_SUCCESS;
}

static CUresult find_side(struct side *side, CUmemorytype type, const void *host,
                          CUdeviceptr device, CUarray array, size_t width, size_t pitch,
                          size_t height) {
    if (type == CU_MEMORYTYPE_ARRAY)
        return find_array_side(side, array);
    REQUIRE(type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE ||
                type == CU_MEMORYTYPE_UNIFIED,
            CUDA_ERROR_INVALID_VALUE);
    side->end = NULL;
    side->pitch = pitch == 0 ? width : pitch;
    side->slice = side->pitch * height;
    side->start = type == CU_MEMORYTYPE_HOST ? (char *)host : (char *)device;
    side->device = type == CU_MEMORYTYPE_HOST ? NULL : device_of(device);
    REQUIRE(side->start != NULL && side->pitch >= width, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

/* Goes to the first byte, and checks that all that are copied are there. */
static CUresult go_to(struct side *side, size_t x, size_t y, size_t z, const CUDA_MEMCPY3D *form,
                      CUmemorytype type) {
    side->start += z * side->slice + y * side->pitch + x;
    if (form->WidthInBytes == 0 || form->Height == 0 || form->Depth == 0)
        return CUDA_SUCCESS;
    uint64_t extent =
        (form->Depth - 1) * side->slice + (form->Height - 1) * side->pitch + form->WidthInBytes;
    REQUIRE(side->end == NULL ||
                (x + form->WidthInBytes <= side->pitch && side->start + extent <= side->end),
            CUDA_ERROR_INVALID_VALUE);
    REQUIRE(type != CU_MEMORYTYPE_DEVICE || on_gpu((CUdeviceptr)side->start, extent),
            CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

static CUresult find_sides(const CUDA_MEMCPY3D *form, struct side *to, struct side *from) {
    TRY(find_side(from, form->srcMemoryType, form->srcHost, form->srcDevice, form->srcArray,
                  form->WidthInBytes, form->srcPitch,
                  form->srcHeight == 0 ? form->Height : form->srcHeight));
    TRY(find_side(to, form->dstMemoryType, form->dstHost, form->dstDevice, form->dstArray,
                  form->WidthInBytes, form->dstPitch,
                  form->dstHeight == 0 ? form->Height : form->dstHeight));
    TRY(go_to(from, form->srcXInBytes, form->srcY, form->srcZ, form, form->srcMemoryType));
    return go_to(to, form->dstXInBytes, form->dstY, form->dstZ, form, form->dstMemoryType);
}

CUresult copy_operation(struct operation *operation, const CUDA_MEMCPY3D *form) {
    struct side to, from;
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    TRY(find_sides(form, &to, &from));
    *operation = (struct operation){.kind = OPERATION_COPY, .copy = *form};
    set_copy_time(operation, to.device, from.device,
                  form->WidthInBytes * form->Height * form->Depth);
    return CUDA_SUCCESS;
}

void copy_bytes(const CUDA_MEMCPY3D *form) {
    struct side to, from;
    if (find_sides(form, &to, &from) != CUDA_SUCCESS)
        return;
    for (size_t slice = 0; slice < form->Depth; slice++)
        for (size_t row = 0; row < form->Height; row++)
            memmove(to.start + slice * to.slice + row * to.pitch,
                    from.start + slice * from.slice + row * from.pitch, form->WidthInBytes);
}

CUresult copy_form(const CUDA_MEMCPY3D *form, CUstream handle, bool wait) {
    struct CUstream_st *stream;
    struct operation operation;
    TRY(find_stream(handle, &stream));
    if (wait) {
        TRY(progress_call(stream));
        TRY(stream_wait(stream));
    }
    TRY(copy_operation(&operation, form));
    TRY(stream_do(stream, &operation));
    return wait ? stream_wait(stream) : CUDA_SUCCESS;
}

/* ---- one dimension --------------------------------------------------------- */

CUresult copy_row(CUdeviceptr destination, CUdeviceptr source, size_t bytes, bool known,
                  CUstream stream, bool wait) {
    const CUDA_MEMCPY3D form = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .srcDevice = source,
                                .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .dstDevice = destination,
                                .WidthInBytes = bytes,
                                .Height = 1,
                                .Depth = 1};
    struct CUstream_st *found;
    TRY(find_stream(stream, &found));
    REQUIRE(known, CUDA_ERROR_INVALID_VALUE);
    if (bytes == 0)
        return wait ? stream_wait(found) : CUDA_SUCCESS;
    return copy_form(&form, stream, wait);
}

/* Each copy in its four forms: waiting or not, for either kind of default stream. `known` tells
 * which of its addresses must be the driver's. */
#define COPY(name, form, async_form, destination_type, source_type, known)                         \
    API name##form(destination_type destination, source_type source, size_t bytes) {               \
        return copy_row((CUdeviceptr)destination, (CUdeviceptr)source, bytes, known,               \
                        CU_STREAM_LEGACY, true);                                                   \
    }                                                                                              \
    API name##form##_ptds(destination_type destination, source_type source, size_t bytes) {        \
        return copy_row((CUdeviceptr)destination, (CUdeviceptr)source, bytes, known,               \
                        CU_STREAM_PER_THREAD, true);                                               \
    }                                                                                              \
    API name##async_form(destination_type destination, source_type source, size_t bytes,           \
                         CUstream stream) {                                                        \
        return copy_row((CUdeviceptr)destination, (CUdeviceptr)source, bytes, known, stream,       \
                        false);                                                                    \
    }                                                                                              \
    API name##async_form##_ptsz(destination_type destination, source_type source, size_t bytes,    \
                                CUstream stream) {                                                 \
        return copy_row((CUdeviceptr)destination, (CUdeviceptr)source, bytes, known,               \
                        per_thread(stream), false);                                                \
    }

COPY(cuMemcpy, , Async, CUdeviceptr, CUdeviceptr,
     usable(destination, bytes) && usable(source, bytes))
COPY(cuMemcpyHtoD, _v2, Async_v2, CUdeviceptr, const void *,
     on_gpu(destination, bytes) && source != NULL)
COPY(cuMemcpyDtoH, _v2, Async_v2, void *, CUdeviceptr, on_gpu(source, bytes) && destination != NULL)
COPY(cuMemcpyDtoD, _v2, Async_v2, CUdeviceptr, CUdeviceptr,
     on_gpu(destination, bytes) && on_gpu(source, bytes))

static CUresult copy_peer(CUdeviceptr destination, CUcontext to, CUdeviceptr source, CUcontext from,
                          size_t bytes, CUstream stream, bool wait) {
    struct CUctx_st *context;
    TRY(find_context(to, &context));
    TRY(find_context(from, &context));
    return copy_row(destination, source, bytes, on_gpu(destination, bytes) && on_gpu(source, bytes),
                    stream, wait);
}

API cuMemcpyPeer(CUdeviceptr destination, CUcontext to, CUdeviceptr source, CUcontext from,
                 size_t bytes) {
    return copy_peer(destination, to, source, from, bytes, CU_STREAM_LEGACY, true);
}

API cuMemcpyPeer_ptds(CUdeviceptr destination, CUcontext to, CUdeviceptr source, CUcontext from,
                      size_t bytes) {
    return copy_peer(destination, to, source, from, bytes, CU_STREAM_PER_THREAD, true);
}

API cuMemcpyPeerAsync(CUdeviceptr destination, CUcontext to, CUdeviceptr source, CUcontext from,
                      size_t bytes, CUstream stream) {
    return copy_peer(destination, to, source, from, bytes, stream, false);
}

API cuMemcpyPeerAsync_ptsz(CUdeviceptr destination, CUcontext to, CUdeviceptr source,
                           CUcontext from, size_t bytes, CUstream stream) {
    return copy_peer(destination, to, source, from, bytes, per_thread(stream), false);
}
