/*
 * Physical memory mapped into arrays, sparse and deferred ones. An array's
 * bytes are its own here whatever is mapped: what counts is that the physical
 * memory lives as long as its mapping.
 */
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "virtual.h"

struct tile {
    struct physical *physical;
    CUarrayMapInfo place; /* with nothing set but the subresource */
    struct tile *next;
};

/* driver.lock held. */
void tiles_end(struct tile **tiles) {
    while (*tiles != NULL) {
        struct tile *tile = *tiles;
        *tiles = tile->next;
        tile->physical->mappings--;
        physical_put(tile->physical);
        free(tile);
    }
}

/* The list of the array that an operation names, or NULL where it cannot be mapped into. */
static struct tile **tiles_of(const CUarrayMapInfo *operation) {
    struct CUarray_st *array;
    struct CUmipmappedArray_st *mipmap;
    if (operation->resourceType == CU_RESOURCE_TYPE_ARRAY)
        return find_array(operation->resource.array, &array) == CUDA_SUCCESS &&
                       array_price(&array->descriptor, 1) == 0
                   ? &array->tiles
                   : NULL;
    return operation->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY &&
                   find_mipmap(operation->resource.mipmap, &mipmap) == CUDA_SUCCESS &&
                   array_price(&mipmap->descriptor, 1) == 0
               ? &mipmap->tiles
               : NULL;
}

static CUarrayMapInfo subresource_of(const CUarrayMapInfo *operation) {
    CUarrayMapInfo place;
    memset(&place, 0, sizeof place);
    place.subresourceType = operation->subresourceType;
    if (operation->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
        place.subresource.miptail.layer = operation->subresource.miptail.layer;
        place.subresource.miptail.offset = operation->subresource.miptail.offset;
        return place;
    }
    place.subresource.sparseLevel.level = operation->subresource.sparseLevel.level;
    place.subresource.sparseLevel.layer = operation->subresource.sparseLevel.layer;
    place.subresource.sparseLevel.offsetX = operation->subresource.sparseLevel.offsetX;
    place.subresource.sparseLevel.offsetY = operation->subresource.sparseLevel.offsetY;
    place.subresource.sparseLevel.offsetZ = operation->subresource.sparseLevel.offsetZ;
    return place;
}

/* What was mapped at a place goes, as when a page is mapped anew. driver.lock held. */
static void unmap(struct tile **tiles, const CUarrayMapInfo *place) {
    while (*tiles != NULL) {
        struct tile *tile = *tiles;
        if (memcmp(&tile->place, place, sizeof *place) != 0) {
            tiles = &tile->next;
            continue;
        }
        *tiles = tile->next;
        tile->next = NULL;
        tiles_end(&tile);
    }
}

static CUresult map(struct tile **tiles, const CUarrayMapInfo *place,
                    CUmemGenericAllocationHandle handle) {
    struct physical *physical = physical_of(handle);
    REQUIRE(physical != NULL, CUDA_ERROR_INVALID_VALUE);
    struct tile *tile = malloc(sizeof *tile);
    REQUIRE(tile != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    *tile = (struct tile){physical, *place, *tiles};
    physical->mappings++;
    *tiles = tile;
    return CUDA_SUCCESS;
}

API cuMemMapArrayAsync(CUarrayMapInfo *operations, unsigned int count, CUstream handle) {
    struct CUstream_st *stream;
    CUresult result = CUDA_SUCCESS;
    TRY(find_stream(handle, &stream));
    REQUIRE(operations != NULL && count > 0, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; result == CUDA_SUCCESS && i < count; i++) {
        const CUarrayMapInfo *operation = &operations[i];
        struct tile **tiles = tiles_of(operation);
        bool mapping = operation->memOperationType == CU_MEM_OPERATION_TYPE_MAP;
        REQUIRE(tiles != NULL && operation->memHandleType == CU_MEM_HANDLE_TYPE_GENERIC &&
                    (mapping || operation->memOperationType == CU_MEM_OPERATION_TYPE_UNMAP),
                CUDA_ERROR_INVALID_VALUE);
        CUarrayMapInfo place = subresource_of(operation);
        pthread_mutex_lock(&driver.lock);
        unmap(tiles, &place);
        if (mapping)
            result = map(tiles, &place, operation->memHandle.memHandle);
        pthread_mutex_unlock(&driver.lock);
    }
    return result;
}
