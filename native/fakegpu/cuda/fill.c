/* Fills. Their bytes are written as those of copies are. None waits, but for its stream. */
#include <string.h>
#include <sys/mman.h>

#include "allocation.h"
#include "copy.h"
#include "transfer.h"

#define PAGE UINT64_C(4096)

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

CUresult fill_operation(struct operation *operation, const CUDA_MEMSET_NODE_PARAMS *form) {
    REQUIRE(form != NULL &&
                (form->elementSize == 1 || form->elementSize == 2 || form->elementSize == 4) &&
                form->width > 0 && form->height > 0,
            CUDA_ERROR_INVALID_VALUE);
    REQUIRE(form->width <= SIZE_MAX / form->elementSize &&
                (form->height == 1 || form->pitch >= form->width * form->elementSize),
            CUDA_ERROR_INVALID_VALUE);
    REQUIRE(
        form->dst % form->elementSize == 0 &&
            on_gpu(form->dst, form->pitch * (form->height - 1) + form->width * form->elementSize),
        CUDA_ERROR_INVALID_VALUE);
    *operation = (struct operation){.kind = OPERATION_FILL, .fill = *form};
    set_fill_time(operation, form->elementSize * form->width * form->height);
    return CUDA_SUCCESS;
}

void fill_bytes(const CUDA_MEMSET_NODE_PARAMS *form) {
    for (size_t row = 0; row < form->height; row++)
        fill_row((char *)form->dst + row * form->pitch, form->value, form->elementSize,
                 form->width);
}

static CUresult fill(CUdeviceptr pointer, size_t pitch, uint32_t value, unsigned element,
                     size_t width, size_t height, CUstream handle) {
    const CUDA_MEMSET_NODE_PARAMS form = {pointer, pitch, value, element, width, height};
    struct CUstream_st *stream;
    struct operation operation;
    TRY(find_stream(handle, &stream));
    if (width == 0 || height == 0)
        return CUDA_SUCCESS;
    TRY(fill_operation(&operation, &form));
    return stream_do(stream, &operation);
}

/* The fills of one element type, each in four forms as above. */
#define FILL(bits, type)                                                                           \
    API cuMemsetD##bits##_v2(CUdeviceptr pointer, type value, size_t count) {                      \
        return fill(pointer, 0, value, sizeof(type), count, 1, CU_STREAM_LEGACY);                  \
    }                                                                                              \
    API cuMemsetD##bits##_v2_ptds(CUdeviceptr pointer, type value, size_t count) {                 \
        return fill(pointer, 0, value, sizeof(type), count, 1, CU_STREAM_PER_THREAD);              \
    }                                                                                              \
    API cuMemsetD##bits##Async(CUdeviceptr pointer, type value, size_t count, CUstream stream) {   \
        return fill(pointer, 0, value, sizeof(type), count, 1, stream);                            \
    }                                                                                              \
    API cuMemsetD##bits##Async_ptsz(CUdeviceptr pointer, type value, size_t count,                 \
                                    CUstream stream) {                                             \
        return fill(pointer, 0, value, sizeof(type), count, 1, per_thread(stream));                \
    }                                                                                              \
    API cuMemsetD2D##bits##_v2(CUdeviceptr pointer, size_t pitch, type value, size_t width,        \
                               size_t height) {                                                    \
        return fill(pointer, pitch, value, sizeof(type), width, height, CU_STREAM_LEGACY);         \
    }                                                                                              \
    API cuMemsetD2D##bits##_v2_ptds(CUdeviceptr pointer, size_t pitch, type value, size_t width,   \
                                    size_t height) {                                               \
        return fill(pointer, pitch, value, sizeof(type), width, height, CU_STREAM_PER_THREAD);     \
    }                                                                                              \
    API cuMemsetD2D##bits##Async(CUdeviceptr pointer, size_t pitch, type value, size_t width,      \
                                 size_t height, CUstream stream) {                                 \
        return fill(pointer, pitch, value, sizeof(type), width, height, stream);                   \
    }                                                                                              \
    API cuMemsetD2D##bits##Async_ptsz(CUdeviceptr pointer, size_t pitch, type value, size_t width, \
                                      size_t height, CUstream stream) {                            \
        return fill(pointer, pitch, value, sizeof(type), width, height, per_thread(stream));       \
    }

FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, unsigned int)
