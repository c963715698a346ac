/* How sparse arrays are divided into tiles of 64 KiB, and where their mip tail begins. */
#include "array.h"

/* The shape of a tile by the bytes of an element (1, 2, 4, 8, 16), as of the graphics interfaces'
 * standard block shapes. */
static const struct {
    unsigned flat[2], solid[3];
} tiles[] = {
    {{256, 256}, {64, 32, 32}},
    {{256, 128}, {32, 32, 32}},
    {{128, 128}, {32, 32, 16}},
    {{128, 64},  {32, 16, 16}},
    {{64, 64},   {16, 16, 16}},
};

static bool is_layered(const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
    return (descriptor->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
}

/* Only elements of one pixel and a power of two bytes have tiles. */
static CUresult describe(const struct CUarray_st *first, CUDA_ARRAY_SPARSE_PROPERTIES *properties) {
    const CUDA_ARRAY3D_DESCRIPTOR *descriptor = &first->descriptor;
    uint64_t bytes = first->row / descriptor->Width;
    size_t size = 0;
    while (size < sizeof tiles / sizeof *tiles && UINT64_C(1) << size != bytes)
        size++;
    REQUIRE((descriptor->Flags & CUDA_ARRAY3D_SPARSE) != 0, CUDA_ERROR_INVALID_VALUE);
    MODELLED(size < sizeof tiles / sizeof *tiles && first->row % descriptor->Width == 0,
             "a sparse array of this format");
    bool solid = descriptor->Depth > 0 && !is_layered(descriptor);
    const unsigned *tile = solid ? tiles[size].solid : tiles[size].flat;
    *properties = (CUDA_ARRAY_SPARSE_PROPERTIES){
        .tileExtent = {tile[0], tile[1], solid ? tile[2] : 1}
    };
    return CUDA_SUCCESS;
}

API cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *properties, CUarray handle) {
    struct CUarray_st *array;
    TRY(find_array(handle, &array));
    REQUIRE(properties != NULL, CUDA_ERROR_INVALID_VALUE);
    return describe(array, properties);
}

/* The tail is all levels from the first on that is smaller than a tile. */
API cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *properties,
                                        CUmipmappedArray handle) {
    struct CUmipmappedArray_st *mipmap;
    TRY(find_mipmap(handle, &mipmap));
    REQUIRE(properties != NULL, CUDA_ERROR_INVALID_VALUE);
    TRY(describe(mipmap->level[0], properties));
    unsigned level = 0;
    while (level < mipmap->levels &&
           mipmap->level[level]->descriptor.Width >= properties->tileExtent.width &&
           mipmap->level[level]->descriptor.Height >= properties->tileExtent.height)
        level++;
    properties->miptailFirstLevel = level;
    uint64_t layers = is_layered(&mipmap->descriptor) ? mipmap->descriptor.Depth : 1;
    for (; level < mipmap->levels; level++)
        properties->miptailSize += mipmap->level[level]->tiled / layers;
    properties->miptailSize = round_up(properties->miptailSize, ARRAY_UNIT);
    return CUDA_SUCCESS;
}
