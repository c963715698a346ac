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

static uint64_t bytes_of_array(const struct ks_array_3d *description) {
    const struct ks_array_3d twin = deferred(description);
    struct ks_array_requirements requirements;
    CUdevice device;
    CUarray array;
    if ((description->flags & WITHOUT_MEMORY) != 0)
        return 0;
    if (KS_DRIVER(context_get_device)(&device) != CUDA_SUCCESS ||
        KS_REAL(cuArray3DCreate_v2)(&array, &twin) != CUDA_SUCCESS)
        return ks_array_bytes(description, 1);
    const CUresult result = KS_DRIVER(array_requirements)(&requirements, array, device);
    KS_REAL(cuArrayDestroy)(array);
    return result == CUDA_SUCCESS ? requirements.bytes : ks_array_bytes(description, 1);
}

static uint64_t bytes_of_mipmapped_array(const struct ks_array_3d *description,
                                         unsigned int levels) {
    const struct ks_array_3d twin = deferred(description);
    struct ks_array_requirements requirements;
    CUdevice device;
    CUmipmappedArray array;
    if ((description->flags & WITHOUT_MEMORY) != 0)
        return 0;
    if (KS_DRIVER(context_get_device)(&device) != CUDA_SUCCESS ||
        KS_REAL(cuMipmappedArrayCreate)(&array, &twin, levels) != CUDA_SUCCESS)
        return ks_array_bytes(description, levels);
    const CUresult result = KS_DRIVER(mipmapped_array_requirements)(&requirements, array, device);
    KS_REAL(cuMipmappedArrayDestroy)(array);
    return result == CUDA_SUCCESS ? requirements.bytes : ks_array_bytes(description, levels);
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

#define KS_CREATE_ARRAY(description_3d, call)                                                      \
    if (description == NULL)                                                                       \
        return (call);                                                                             \
    KS_ALLOCATE(KS_ARRAY, bytes_of_array(description_3d), array, call, undo)

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
    if (description == NULL)
        return KS_REAL(cuMipmappedArrayCreate)(array, description, levels);
    KS_ALLOCATE(KS_MIPMAPPED_ARRAY, bytes_of_mipmapped_array(description, levels), array,
                KS_REAL(cuMipmappedArrayCreate)(array, description, levels), undo_mipmapped);
}

int cuMipmappedArrayDestroy(CUmipmappedArray array) {
    KS_FREE(KS_MIPMAPPED_ARRAY, array, ended(array, KS_REAL(cuMipmappedArrayDestroy)(array)));
}
