/* Arrays: made, described and destroyed. */
#include "array.h"

#include <stdlib.h>
#include <sys/mman.h>

static struct CUarray_st *arrays; /* driver.lock */

/* ---- beginning and end ------------------------------------------------------- */

static uint64_t content(const struct CUarray_st *array) {
    return array->row * array->rows * array->slices;
}

CUresult array_make(struct CUctx_st *context, const CUDA_ARRAY3D_DESCRIPTOR *wanted,
                    struct CUarray_st **made) {
    struct CUarray_st *array = calloc(1, sizeof *array);
    REQUIRE(array != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    if (!array_layout(wanted, array)) {
        free(array);
        return CUDA_ERROR_INVALID_VALUE;
    }
    void *mapped = mmap(NULL, content(array), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
        free(array);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    array->bytes = mapped;
    array->context = owning_context(context);
    *made = array;
    return CUDA_SUCCESS;
}

uint64_t array_price(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, uint64_t required) {
    bool mapped_later =
        (descriptor->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0;
    return mapped_later ? 0 : required;
}

void array_list(struct CUarray_st *array) {
    array->next = arrays;
    arrays = array;
}

/* What it points to is NULL where there is no such array. driver.lock held. */
static struct CUarray_st **place_of(const struct CUarray_st *handle) {
    struct CUarray_st **place = &arrays;
    while (*place != NULL && *place != handle)
        place = &(*place)->next;
    return place;
}

void array_end(struct CUarray_st *array) {
    struct CUarray_st **place = place_of(array);
    if (*place != NULL)
        *place = array->next;
    tiles_end(&array->tiles);
    munmap(array->bytes, content(array));
    if (array->charged > 0)
        device_uncharge(array->context->device, array->charged);
    free(array);
}

void release_arrays_of(const struct CUctx_st *context) {
    struct CUarray_st *next;
    for (struct CUarray_st *array = arrays; array != NULL; array = next) {
        next = array->next;
        if (array->context == context)
            array_end(array);
    }
}

CUresult find_array(CUarray handle, struct CUarray_st **array) {
    TRY(driver_ready());
    pthread_mutex_lock(&driver.lock);
    bool known = handle != NULL && *place_of(handle) != NULL;
    pthread_mutex_unlock(&driver.lock);
    REQUIRE(known, CUDA_ERROR_INVALID_HANDLE);
    *array = handle;
    return CUDA_SUCCESS;
}

/* ---- the calls ------------------------------------------------------------------ */

API cuArray3DCreate_v2(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *wanted) {
    struct CUctx_st *context;
    struct CUarray_st *array = NULL;
    TRY(current_context(&context));
    REQUIRE(handle != NULL && wanted != NULL, CUDA_ERROR_INVALID_VALUE);
    TRY(array_make(context, wanted, &array));
    uint64_t charge = array_price(wanted, round_up(array->tiled, ARRAY_UNIT));
    bool charged = charge == 0 || device_charge(context->device, charge);
    pthread_mutex_lock(&driver.lock);
    if (charged) {
        array->charged = charge;
        array_list(array);
        *handle = array;
    } else {
        array_end(array);
    }
    pthread_mutex_unlock(&driver.lock);
    return charged ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuArray3DCreate(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *wanted) {
    REQUIRE(wanted != NULL, CUDA_ERROR_INVALID_VALUE);
    CUDA_ARRAY3D_DESCRIPTOR wide = {.Width = wanted->Width,
                                    .Height = wanted->Height,
                                    .Depth = wanted->Depth,
                                    .Format = wanted->Format,
                                    .NumChannels = wanted->NumChannels,
                                    .Flags = wanted->Flags};
    return cuArray3DCreate_v2(handle, &wide);
}

API cuArrayCreate_v2(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR *wanted) {
    REQUIRE(wanted != NULL, CUDA_ERROR_INVALID_VALUE);
    CUDA_ARRAY3D_DESCRIPTOR wide = {.Width = wanted->Width,
                                    .Height = wanted->Height,
                                    .Format = wanted->Format,
                                    .NumChannels = wanted->NumChannels};
    return cuArray3DCreate_v2(handle, &wide);
}

API cuArrayCreate(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR_v1 *wanted) {
    REQUIRE(wanted != NULL, CUDA_ERROR_INVALID_VALUE);
    CUDA_ARRAY_DESCRIPTOR wide = {wanted->Width, wanted->Height, wanted->Format,
                                  wanted->NumChannels};
    return cuArrayCreate_v2(handle, &wide);
}

API cuArrayDestroy(CUarray handle) {
    struct CUarray_st *array;
    TRY(find_array(handle, &array));
    REQUIRE(array->whole == NULL, CUDA_ERROR_INVALID_HANDLE);
    context_wait(array->context);
    pthread_mutex_lock(&driver.lock);
    array_end(array);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

/* ---- descriptions --------------------------------------------------------------- */

API cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray handle) {
    struct CUarray_st *array;
    TRY(find_array(handle, &array));
    REQUIRE(descriptor != NULL, CUDA_ERROR_INVALID_VALUE);
    *descriptor = array->descriptor;
    return CUDA_SUCCESS;
}

API cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor, CUarray handle) {
    struct CUarray_st *array;
    TRY(find_array(handle, &array));
    REQUIRE(descriptor != NULL, CUDA_ERROR_INVALID_VALUE);
    const CUDA_ARRAY3D_DESCRIPTOR *wide = &array->descriptor;
    *descriptor = (CUDA_ARRAY3D_DESCRIPTOR_v1){.Width = (unsigned)wide->Width,
                                               .Height = (unsigned)wide->Height,
                                               .Depth = (unsigned)wide->Depth,
                                               .Format = wide->Format,
                                               .NumChannels = wide->NumChannels,
                                               .Flags = wide->Flags};
    return CUDA_SUCCESS;
}

API cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *descriptor, CUarray handle) {
    struct CUarray_st *array;
    TRY(find_array(handle, &array));
    REQUIRE(descriptor != NULL, CUDA_ERROR_INVALID_VALUE);
    const CUDA_ARRAY3D_DESCRIPTOR *wide = &array->descriptor;
    *descriptor =
        (CUDA_ARRAY_DESCRIPTOR){wide->Width, wide->Height, wide->Format, wide->NumChannels};
    return CUDA_SUCCESS;
}

API cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1 *descriptor, CUarray handle) {
    struct CUarray_st *array;
    TRY(find_array(handle, &array));
    REQUIRE(descriptor != NULL, CUDA_ERROR_INVALID_VALUE);
    const CUDA_ARRAY3D_DESCRIPTOR *wide = &array->descriptor;
    *descriptor = (CUDA_ARRAY_DESCRIPTOR_v1){(unsigned)wide->Width, (unsigned)wide->Height,
                                             wide->Format, wide->NumChannels};
    return CUDA_SUCCESS;
}

/* Only an array into which memory is mapped has requirements. */
API cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements, CUarray handle,
                                 CUdevice ordinal) {
    struct CUarray_st *array;
    struct device *device;
    TRY(find_device(ordinal, &device));
    TRY(find_array(handle, &array));
    REQUIRE(requirements != NULL && (array->descriptor.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING) != 0,
            CUDA_ERROR_INVALID_VALUE);
    *requirements =
        (CUDA_ARRAY_MEMORY_REQUIREMENTS){round_up(array->tiled, ARRAY_UNIT), ARRAY_UNIT, {0}};
    return CUDA_SUCCESS;
}
