/*
 * Copies and fills. They take no time on the engine, and are done when they
 * are called: kernels here change no memory, so the order of submission is the
 * only one that a program could tell apart. The synchronous ones first wait
 * for their stream, as with the real driver.
 */
#include <string.h>
#include <sys/mman.h>

#include "allocation.h"

#define PAGE UINT64_C(4096)

static bool on_gpu(CUdeviceptr pointer, size_t bytes) {
    return memory_usable(pointer, bytes);
}

/* In one address space an address that the driver does not know is the program's own. */
static bool usable(CUdeviceptr pointer, size_t bytes) {
    return pointer != 0 && (on_gpu(pointer, bytes) || !on_gpu(pointer, 0));
}

static CUresult ordered(CUstream handle, bool wait) {
    struct CUstream_st *stream;
    TRY(find_stream(handle, &stream));
    return wait ? stream_wait(stream) : CUDA_SUCCESS;
}

static CUresult copy(CUdeviceptr destination, CUdeviceptr source, size_t bytes, bool known,
                     CUstream stream, bool wait) {
    TRY(ordered(stream, wait));
    REQUIRE(known, CUDA_ERROR_INVALID_VALUE);
    if (bytes > 0)
        memmove((void *)destination, (const void *)source, bytes);
    return CUDA_SUCCESS;
}

/* ---- one dimension --------------------------------------------------------- */

/* Each copy in its four forms: waiting or not, for either kind of default stream. `known` tells
 * which of its addresses must be the driver's. */
#define COPY(name, form, async_form, destination_type, source_type, known)                         \
    API name##form(destination_type destination, source_type source, size_t bytes) {               \
        return copy((CUdeviceptr)destination, (CUdeviceptr)source, bytes, known, CU_STREAM_LEGACY, \
                    true);                                                                         \
    }                                                                                              \
    API name##form##_ptds(destination_type destination, source_type source, size_t bytes) {        \
        return copy((CUdeviceptr)destination, (CUdeviceptr)source, bytes, known,                   \
                    CU_STREAM_PER_THREAD, true);                                                   \
    }                                                                                              \
    API name##async_form(destination_type destination, source_type source, size_t bytes,           \
                         CUstream stream) {                                                        \
        return copy((CUdeviceptr)destination, (CUdeviceptr)source, bytes, known, stream, false);   \
    }                                                                                              \
    API name##async_form##_ptsz(destination_type destination, source_type source, size_t bytes,    \
                                CUstream stream) {                                                 \
        return copy((CUdeviceptr)destination, (CUdeviceptr)source, bytes, known,                   \
                    per_thread(stream), false);                                                    \
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
    return copy(destination, source, bytes, on_gpu(destination, bytes) && on_gpu(source, bytes),
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

/* ---- two dimensions ---------------------------------------------------------- */

/* Where the first byte of one side is; NULL for what the fake does not have (arrays). */
static char *side(CUmemorytype type, const void *host, CUdeviceptr device, size_t x, size_t y,
                  size_t pitch) {
    switch (type) {
    case CU_MEMORYTYPE_HOST:
        return (char *)host + y * pitch + x;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        return (char *)device + y * pitch + x;
    default:
        return NULL;
    }
}

static CUresult copy_2d(const CUDA_MEMCPY2D *form, CUstream stream, bool wait) {
    REQUIRE(form != NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(form->srcMemoryType != CU_MEMORYTYPE_ARRAY &&
                form->dstMemoryType != CU_MEMORYTYPE_ARRAY,
            CUDA_ERROR_NOT_SUPPORTED);
    size_t source_pitch = form->srcPitch == 0 ? form->WidthInBytes : form->srcPitch;
    size_t destination_pitch = form->dstPitch == 0 ? form->WidthInBytes : form->dstPitch;
    const char *source = side(form->srcMemoryType, form->srcHost, form->srcDevice,
                              form->srcXInBytes, form->srcY, source_pitch);
    char *destination = side(form->dstMemoryType, form->dstHost, form->dstDevice, form->dstXInBytes,
                             form->dstY, destination_pitch);
    REQUIRE(source != NULL && destination != NULL && source_pitch >= form->WidthInBytes &&
                destination_pitch >= form->WidthInBytes,
            CUDA_ERROR_INVALID_VALUE);
    TRY(ordered(stream, wait));
    for (size_t row = 0; row < form->Height; row++)
        memmove(destination + row * destination_pitch, source + row * source_pitch,
                form->WidthInBytes);
    return CUDA_SUCCESS;
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

/* ---- fills ---------------------------------------------------------------------- */

/* Zeroes over whole pages are given back to the kernel instead of written: the memory of a GPU is
 * larger than that of many a machine that runs this. */
static void zero(uint64_t start, uint64_t bytes) {
    uint64_t first = (start + PAGE - 1) / PAGE * PAGE;
    uint64_t last = (start + bytes) / PAGE * PAGE;
    struct allocation found;
    bool own = find_allocation(start, bytes, &found) && found.kind != MEMORY_REGISTERED;
    int advice = own && found.shared ? MADV_REMOVE : MADV_DONTNEED;
    if (!own || first >= last || madvise((void *)first, last - first, advice) != 0) {
        memset((void *)start, 0, bytes);
        return;
    }
    memset((void *)start, 0, first - start);
    memset((void *)last, 0, start + bytes - last);
}

static void fill_row(char *row, uint32_t value, size_t element, size_t count) {
    if (value == 0) {
        zero((uint64_t)row, element * count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        memcpy(row + i * element, &value, element);
}

static CUresult fill(CUdeviceptr pointer, size_t pitch, uint32_t value, size_t element,
                     size_t width, size_t height, CUstream stream, bool wait) {
    TRY(ordered(stream, wait));
    if (width == 0 || height == 0)
        return CUDA_SUCCESS;
    REQUIRE(width <= SIZE_MAX / element && (height == 1 || pitch >= width * element),
            CUDA_ERROR_INVALID_VALUE);
    REQUIRE(pointer % element == 0 && on_gpu(pointer, pitch * (height - 1) + width * element),
            CUDA_ERROR_INVALID_VALUE);
    for (size_t row = 0; row < height; row++)
        fill_row((char *)pointer + row * pitch, value, element, width);
    return CUDA_SUCCESS;
}

/* The fills of one element type, each in four forms as above. */
#define FILL(bits, type)                                                                           \
    API cuMemsetD##bits##_v2(CUdeviceptr pointer, type value, size_t count) {                      \
        return fill(pointer, 0, value, sizeof(type), count, 1, CU_STREAM_LEGACY, true);            \
    }                                                                                              \
    API cuMemsetD##bits##_v2_ptds(CUdeviceptr pointer, type value, size_t count) {                 \
        return fill(pointer, 0, value, sizeof(type), count, 1, CU_STREAM_PER_THREAD, true);        \
    }                                                                                              \
    API cuMemsetD##bits##Async(CUdeviceptr pointer, type value, size_t count, CUstream stream) {   \
        return fill(pointer, 0, value, sizeof(type), count, 1, stream, false);                     \
    }                                                                                              \
    API cuMemsetD##bits##Async_ptsz(CUdeviceptr pointer, type value, size_t count,                 \
                                    CUstream stream) {                                             \
        return fill(pointer, 0, value, sizeof(type), count, 1, per_thread(stream), false);         \
    }                                                                                              \
    API cuMemsetD2D##bits##_v2(CUdeviceptr pointer, size_t pitch, type value, size_t width,        \
                               size_t height) {                                                    \
        return fill(pointer, pitch, value, sizeof(type), width, height, CU_STREAM_LEGACY, true);   \
    }                                                                                              \
    API cuMemsetD2D##bits##_v2_ptds(CUdeviceptr pointer, size_t pitch, type value, size_t width,   \
                                    size_t height) {                                               \
        return fill(pointer, pitch, value, sizeof(type), width, height, CU_STREAM_PER_THREAD,      \
                    true);                                                                         \
    }                                                                                              \
    API cuMemsetD2D##bits##Async(CUdeviceptr pointer, size_t pitch, type value, size_t width,      \
                                 size_t height, CUstream stream) {                                 \
        return fill(pointer, pitch, value, sizeof(type), width, height, stream, false);            \
    }                                                                                              \
    API cuMemsetD2D##bits##Async_ptsz(CUdeviceptr pointer, size_t pitch, type value, size_t width, \
                                      size_t height, CUstream stream) {                            \
        return fill(pointer, pitch, value, sizeof(type), width, height, per_thread(stream),        \
                    false);                                                                        \
    }

FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, unsigned int)
