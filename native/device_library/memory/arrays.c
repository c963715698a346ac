/*
 * Arrays. The driver tells the size of an array only if its memory is bound
 * later: so a deferred twin is created, asked for its size and destroyed before
 * the array itself is created.
 */
#include "context.h"
#include "lookup/driver_calls.h"
#include "lookup/real.h"
#include "memory/array_size.h"
#include "memory/charge.h"
#include "memory/tiles.h"

/* The application binds memory to these arrays, and was charged for it when it allocated it. */
#define WITHOUT_MEMORY (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)

static struct ks_array_3d deferred(const struct ks_array_3d *description) {
    struct ks_array_3d twin = *description;
    twin.flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
    return twin;
}

struct size {
    uint64_t bytes;
    CUresult refused; /* the driver's result for such an array; CUDA_SUCCESS if it has none */
};

/* A driver that knows such twins refuses only that of an array which it refuses too. */
static struct size estimate(const struct ks_array_3d *description, unsigned int levels,
                            CUdevice device, CUresult refused) {
    int defers = 0;
    KS_DRIVER(device_attribute)(&defers, CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_SUPPORTED, device);
    return (struct size){ks_array_bytes(description, levels), defers != 0 ? refused : CUDA_SUCCESS};
}

static struct size size_of_array(const struct ks_array_3d *description) {
    const struct ks_array_3d twin = deferred(description);
    struct ks_array_requirements requirements;
    CUdevice device;
    CUarray array;
    if ((description->flags & WITHOUT_MEMORY) != 0 ||
        KS_DRIVER(context_get_device)(&device) != CUDA_SUCCESS)
        return (struct size){0, CUDA_SUCCESS};
    CUresult result = KS_REAL(cuArray3DCreate_v2)(&array, &twin);
    if (result != CUDA_SUCCESS)
        return estimate(description, 1, device, result);
    result = KS_DRIVER(array_requirements)(&requirements, array, device);
    KS_REAL(cuArrayDestroy)(array);
    return result == CUDA_SUCCESS ? (struct size){requirements.bytes, CUDA_SUCCESS}
                                  : estimate(description, 1, device, CUDA_SUCCESS);
}

static struct size size_of_mipmapped_array(const struct ks_array_3d *description,
                                           unsigned int levels) {
    const struct ks_array_3d twin = deferred(description);
    struct ks_array_requirements requirements;
    CUdevice device;
    CUmipmappedArray array;
    if ((description->flags & WITHOUT_MEMORY) != 0 ||
        KS_DRIVER(context_get_device)(&device) != CUDA_SUCCESS)
        return (struct size){0, CUDA_SUCCESS};
    CUresult result = KS_REAL(cuMipmappedArrayCreate)(&array, &twin, levels);
    if (result != CUDA_SUCCESS)
        return estimate(description, levels, device, result);
    result = KS_DRIVER(mipmapped_array_requirements)(&requirements, array, device);
    KS_REAL(cuMipmappedArrayDestroy)(array);
    return result == CUDA_SUCCESS ? (struct size){requirements.bytes, CUDA_SUCCESS}
                                  : estimate(description, levels, device, CUDA_SUCCESS);
}

static void undo(uint64_t array) {
    KS_REAL(cuArrayDestroy)((CUarray)array);
}

static void undo_mipmapped(uint64_t array) {
    KS_REAL(cuMipmappedArrayDestroy)((CUmipmappedArray)array);
}

/* A description of any of the four forms as the largest of them. */
#define KS_FLAT(description)                                                                       \
    (&(const struct ks_array_3d){.width = (description)->width,                                    \
                                 .height = (description)->height,                                  \
                                 .format = (description)->format,                                  \
                                 .channels = (description)->channels})
#define KS_DEEP(description)                                                                       \
    (&(const struct ks_array_3d){.width = (description)->width,                                    \
                                 .height = (description)->height,                                  \
                                 .depth = (description)->depth,                                    \
                                 .format = (description)->format,                                  \
                                 .channels = (description)->channels,                              \
                                 .flags = (description)->flags})

/* What exceeds the limit is refused with the driver's own error if the driver would refuse it. */
#define KS_CREATE_SIZED(kind, size_expression, call, undo)                                         \
    if (description == NULL || array == NULL)                                                      \
        return (call);                                                                             \
    const struct size size = size_expression;                                                      \
    struct ks_allocation allocation;                                                               \
    CUresult result;                                                                               \
    if (!ks_describe(&allocation, kind, size.bytes, &result))                                      \
        return (call);                                                                             \
    if (result == CUDA_SUCCESS && ks_charge(allocation.cell, allocation.bytes) != CUDA_SUCCESS)    \
        result = size.refused != CUDA_SUCCESS ? size.refused : CUDA_ERROR_OUT_OF_MEMORY;           \
    if (result != CUDA_SUCCESS)                                                                    \
        return result;                                                                             \
    result = (call);                                                                               \
    return ks_book(&allocation, KS_HANDLE(result, array), result, undo)

#define KS_CREATE_ARRAY(description_3d, call)                                                      \
    KS_CREATE_SIZED(KS_ARRAY, size_of_array(description_3d), call, undo)

int cuArrayCreate(CUarray *array, const struct ks_array_v1 *description) {
    KS_CREATE_ARRAY(KS_FLAT(description), KS_REAL(cuArrayCreate)(array, description));
}

int cuArrayCreate_v2(CUarray *array, const struct ks_array *description) {
    KS_CREATE_ARRAY(KS_FLAT(description), KS_REAL(cuArrayCreate_v2)(array, description));
}

int cuArray3DCreate(CUarray *array, const struct ks_array_3d_v1 *description) {
    KS_CREATE_ARRAY(KS_DEEP(description), KS_REAL(cuArray3DCreate)(array, description));
}

int cuArray3DCreate_v2(CUarray *array, const struct ks_array_3d *description) {
    KS_CREATE_ARRAY(description, KS_REAL(cuArray3DCreate_v2)(array, description));
}

static CUresult ended(void *array, CUresult result) {
    if (result == CUDA_SUCCESS)
        ks_tiles_of_array_ended((uint64_t)(uintptr_t)array);
    return result;
}

int cuArrayDestroy(CUarray array) {
    KS_FREE(KS_ARRAY, array, ended(array, KS_REAL(cuArrayDestroy)(array)));
}

int cuMipmappedArrayCreate(CUmipmappedArray *array, const struct ks_array_3d *description,
                           unsigned int levels) {
    KS_CREATE_SIZED(KS_MIPMAPPED_ARRAY, size_of_mipmapped_array(description, levels),
                    KS_REAL(cuMipmappedArrayCreate)(array, description, levels), undo_mipmapped);
}

int cuMipmappedArrayDestroy(CUmipmappedArray array) {
    KS_FREE(KS_MIPMAPPED_ARRAY, array, ended(array, KS_REAL(cuMipmappedArrayDestroy)(array)));
}
