/* Mipmapped arrays: an array in every size from the first down. */
#include <stdlib.h>

#include "array.h"

static struct CUmipmappedArray_st *mipmaps; /* driver.lock */

static size_t halved(size_t side, unsigned level) {
    size_t shorter = side >> level;
    return side == 0 ? 0 : shorter == 0 ? 1 : shorter;
}

static CUDA_ARRAY3D_DESCRIPTOR at_level(const CUDA_ARRAY3D_DESCRIPTOR *first, unsigned level) {
    CUDA_ARRAY3D_DESCRIPTOR shorter = *first;
    bool layered = (first->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    shorter.Width = halved(first->Width, level);
    shorter.Height = halved(first->Height, level);
    shorter.Depth = layered ? first->Depth : halved(first->Depth, level);
    return shorter;
}

static unsigned most_levels(const CUDA_ARRAY3D_DESCRIPTOR *first) {
    size_t longest = first->Width > first->Height ? first->Width : first->Height;
    bool layered = (first->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    if (!layered && first->Depth > longest)
        longest = first->Depth;
    unsigned levels = 1;
    while (levels < MIPMAP_LEVELS_MAX && longest >> levels != 0)
        levels++;
    return levels;
}

/* driver.lock held. */
static void end(struct CUmipmappedArray_st *mipmap) {
    struct CUmipmappedArray_st **place = &mipmaps;
    while (*place != NULL && *place != mipmap)
        place = &(*place)->next;
    if (*place != NULL)
        *place = mipmap->next;
    for (unsigned level = 0; level < mipmap->levels; level++)
        if (mipmap->level[level] != NULL)
            array_end(mipmap->level[level]);
    tiles_end(&mipmap->tiles);
    if (mipmap->charged > 0)
        device_uncharge(mipmap->context->device, mipmap->charged);
    free(mipmap);
}

void release_mipmaps_of(const struct CUctx_st *context) {
    struct CUmipmappedArray_st *next;
    for (struct CUmipmappedArray_st *mipmap = mipmaps; mipmap != NULL; mipmap = next) {
        next = mipmap->next;
        if (mipmap->context == context)
            end(mipmap);
    }
}

CUresult find_mipmap(CUmipmappedArray handle, struct CUmipmappedArray_st **mipmap) {
    TRY(driver_ready());
    pthread_mutex_lock(&driver.lock);
    struct CUmipmappedArray_st *known = mipmaps;
    while (known != NULL && known != handle)
        known = known->next;
    pthread_mutex_unlock(&driver.lock);
    REQUIRE(known != NULL, CUDA_ERROR_INVALID_HANDLE);
    *mipmap = known;
    return CUDA_SUCCESS;
}

static CUresult fill(struct CUmipmappedArray_st *mipmap, bool charged) {
    uint64_t tiled = 0;
    for (unsigned level = 0; level < mipmap->levels; level++) {
        CUDA_ARRAY3D_DESCRIPTOR descriptor = at_level(&mipmap->descriptor, level);
        TRY(array_make(mipmap->context, &descriptor, &mipmap->level[level]));
        mipmap->level[level]->whole = mipmap;
        tiled += mipmap->level[level]->tiled;
    }
    mipmap->required = round_up(tiled, ARRAY_UNIT);
    uint64_t charge = charged ? array_price(&mipmap->descriptor, mipmap->required) : 0;
    REQUIRE(charge == 0 || device_charge(mipmap->context->device, charge),
            CUDA_ERROR_OUT_OF_MEMORY);
    mipmap->charged = charge;
    return CUDA_SUCCESS;
}

CUresult mipmap_make(struct CUctx_st *context, const CUDA_ARRAY3D_DESCRIPTOR *wanted,
                     unsigned levels, bool charged, CUmipmappedArray *handle) {
    struct CUmipmappedArray_st *mipmap = calloc(1, sizeof *mipmap);
    REQUIRE(mipmap != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    unsigned most = most_levels(wanted);
    mipmap->context = owning_context(context);
    mipmap->descriptor = *wanted;
    mipmap->levels = levels < 1 ? 1 : levels > most ? most : levels;
    CUresult result = fill(mipmap, charged);
    pthread_mutex_lock(&driver.lock);
    if (result == CUDA_SUCCESS) {
        for (unsigned level = 0; level < mipmap->levels; level++)
            array_list(mipmap->level[level]);
        mipmap->next = mipmaps;
        mipmaps = mipmap;
        *handle = mipmap;
    } else {
        end(mipmap);
    }
    pthread_mutex_unlock(&driver.lock);
    return result;
}

/* ---- the calls ------------------------------------------------------------------ */

API cuMipmappedArrayCreate(CUmipmappedArray *handle, const CUDA_ARRAY3D_DESCRIPTOR *wanted,
                           unsigned int levels) {
    struct CUctx_st *context;
    TRY(current_context(&context));
    REQUIRE(handle != NULL && wanted != NULL, CUDA_ERROR_INVALID_VALUE);
    return mipmap_make(context, wanted, levels, true, handle);
}

API cuMipmappedArrayGetLevel(CUarray *array, CUmipmappedArray handle, unsigned int level) {
    struct CUmipmappedArray_st *mipmap;
    TRY(find_mipmap(handle, &mipmap));
    REQUIRE(array != NULL && level < mipmap->levels, CUDA_ERROR_INVALID_VALUE);
    *array = mipmap->level[level];
    return CUDA_SUCCESS;
}

API cuMipmappedArrayDestroy(CUmipmappedArray handle) {
    struct CUmipmappedArray_st *mipmap;
    TRY(find_mipmap(handle, &mipmap));
    context_wait(mipmap->context);
    pthread_mutex_lock(&driver.lock);
    end(mipmap);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

API cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements,
                                          CUmipmappedArray handle, CUdevice ordinal) {
    struct CUmipmappedArray_st *mipmap;
    struct device *device;
    TRY(find_device(ordinal, &device));
    TRY(find_mipmap(handle, &mipmap));
    REQUIRE(requirements != NULL && (mipmap->descriptor.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING) != 0,
            CUDA_ERROR_INVALID_VALUE);
    *requirements = (CUDA_ARRAY_MEMORY_REQUIREMENTS){mipmap->required, ARRAY_UNIT, {0}};
    return CUDA_SUCCESS;
}
