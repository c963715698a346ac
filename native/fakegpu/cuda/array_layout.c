/*
 * How much memory an array takes. A GPU keeps an array in tiles of 64 bytes by
 * 8 rows; how it arranges them is not documented, and not needed: the figure
 * here is the tiles, in units of 64 KiB.
 */
#include "array.h"

#define TILE_BYTES UINT64_C(64)
#define TILE_ROWS  UINT64_C(8)
#define LARGEST    (UINT64_C(1) << 20) /* of any side, in elements */

/* The elements of a format come in blocks: 4 by 4 for the compressed ones, and for the video ones
 * as many pixels as share a sample of colour. */
struct format {
    CUarray_format format;
    uint8_t width, height, bytes; /* of a block */
    bool by_channel;              /* `bytes` is of one channel */
};

/* clang-format off */
static const struct format formats[] = {
    {CU_AD_FORMAT_UNSIGNED_INT8, 1, 1, 1, true},
    {CU_AD_FORMAT_UNSIGNED_INT16, 1, 1, 2, true},
    {CU_AD_FORMAT_UNSIGNED_INT32, 1, 1, 4, true},
    {CU_AD_FORMAT_SIGNED_INT8, 1, 1, 1, true},
    {CU_AD_FORMAT_SIGNED_INT16, 1, 1, 2, true},
    {CU_AD_FORMAT_SIGNED_INT32, 1, 1, 4, true},
    {CU_AD_FORMAT_HALF, 1, 1, 2, true},
    {CU_AD_FORMAT_FLOAT, 1, 1, 4, true},
    {CU_AD_FORMAT_UNORM_INT_101010_2, 1, 1, 4, false},
    {CU_AD_FORMAT_UNORM_INT8X1, 1, 1, 1, false},
    {CU_AD_FORMAT_UNORM_INT8X2, 1, 1, 2, false},
    {CU_AD_FORMAT_UNORM_INT8X4, 1, 1, 4, false},
    {CU_AD_FORMAT_UNORM_INT16X1, 1, 1, 2, false},
    {CU_AD_FORMAT_UNORM_INT16X2, 1, 1, 4, false},
    {CU_AD_FORMAT_UNORM_INT16X4, 1, 1, 8, false},
    {CU_AD_FORMAT_SNORM_INT8X1, 1, 1, 1, false},
    {CU_AD_FORMAT_SNORM_INT8X2, 1, 1, 2, false},
    {CU_AD_FORMAT_SNORM_INT8X4, 1, 1, 4, false},
    {CU_AD_FORMAT_SNORM_INT16X1, 1, 1, 2, false},
    {CU_AD_FORMAT_SNORM_INT16X2, 1, 1, 4, false},
    {CU_AD_FORMAT_SNORM_INT16X4, 1, 1, 8, false},
    {CU_AD_FORMAT_BC1_UNORM, 4, 4, 8, false},
    {CU_AD_FORMAT_BC1_UNORM_SRGB, 4, 4, 8, false},
    {CU_AD_FORMAT_BC2_UNORM, 4, 4, 16, false},
    {CU_AD_FORMAT_BC2_UNORM_SRGB, 4, 4, 16, false},
    {CU_AD_FORMAT_BC3_UNORM, 4, 4, 16, false},
    {CU_AD_FORMAT_BC3_UNORM_SRGB, 4, 4, 16, false},
    {CU_AD_FORMAT_BC4_UNORM, 4, 4, 8, false},
    {CU_AD_FORMAT_BC4_SNORM, 4, 4, 8, false},
    {CU_AD_FORMAT_BC5_UNORM, 4, 4, 16, false},
    {CU_AD_FORMAT_BC5_SNORM, 4, 4, 16, false},
    {CU_AD_FORMAT_BC6H_UF16, 4, 4, 16, false},
    {CU_AD_FORMAT_BC6H_SF16, 4, 4, 16, false},
    {CU_AD_FORMAT_BC7_UNORM, 4, 4, 16, false},
    {CU_AD_FORMAT_BC7_UNORM_SRGB, 4, 4, 16, false},
    {CU_AD_FORMAT_NV12, 2, 2, 6, false},
    {CU_AD_FORMAT_P010, 2, 2, 12, false},
    {CU_AD_FORMAT_P016, 2, 2, 12, false},
    {CU_AD_FORMAT_NV16, 2, 1, 4, false},
    {CU_AD_FORMAT_P210, 2, 1, 8, false},
    {CU_AD_FORMAT_P216, 2, 1, 8, false},
    {CU_AD_FORMAT_YUY2, 2, 1, 4, false},
    {CU_AD_FORMAT_Y210, 2, 1, 8, false},
    {CU_AD_FORMAT_Y216, 2, 1, 8, false},
    {CU_AD_FORMAT_AYUV, 1, 1, 4, false},
    {CU_AD_FORMAT_Y410, 1, 1, 4, false},
    {CU_AD_FORMAT_Y416, 1, 1, 8, false},
    {CU_AD_FORMAT_Y444_PLANAR8, 1, 1, 3, false},
    {CU_AD_FORMAT_Y444_PLANAR10, 1, 1, 6, false},
    {CU_AD_FORMAT_YUV444_8bit_SemiPlanar, 1, 1, 3, false},
    {CU_AD_FORMAT_YUV444_16bit_SemiPlanar, 1, 1, 6, false},
    {CU_AD_FORMAT_UINT8_PACKED_422, 2, 1, 4, false},
    {CU_AD_FORMAT_UINT8_PACKED_444, 1, 1, 4, false},
    {CU_AD_FORMAT_UINT8_SEMIPLANAR_420, 2, 2, 6, false},
    {CU_AD_FORMAT_UINT16_SEMIPLANAR_420, 2, 2, 12, false},
    {CU_AD_FORMAT_UINT8_SEMIPLANAR_422, 2, 1, 4, false},
    {CU_AD_FORMAT_UINT16_SEMIPLANAR_422, 2, 1, 8, false},
    {CU_AD_FORMAT_UINT8_SEMIPLANAR_444, 1, 1, 3, false},
    {CU_AD_FORMAT_UINT16_SEMIPLANAR_444, 1, 1, 6, false},
    {CU_AD_FORMAT_UINT8_PLANAR_420, 2, 2, 6, false},
    {CU_AD_FORMAT_UINT16_PLANAR_420, 2, 2, 12, false},
    {CU_AD_FORMAT_UINT8_PLANAR_422, 2, 1, 4, false},
    {CU_AD_FORMAT_UINT16_PLANAR_422, 2, 1, 8, false},
    {CU_AD_FORMAT_UINT8_PLANAR_444, 1, 1, 3, false},
    {CU_AD_FORMAT_UINT16_PLANAR_444, 1, 1, 6, false},
};
/* clang-format on */

static const struct format *format_of(CUarray_format wanted) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].format == wanted)
            return &formats[i];
    return NULL;
}

static bool has_a_shape(const CUDA_ARRAY3D_DESCRIPTOR *wanted) {
    if (wanted->Width == 0 || wanted->Width > LARGEST || wanted->Height > LARGEST ||
        wanted->Depth > LARGEST || wanted->NumChannels == 0 || wanted->NumChannels > 4)
        return false;
    if (wanted->Flags & CUDA_ARRAY3D_CUBEMAP)
        return wanted->Width == wanted->Height && wanted->Depth > 0 && wanted->Depth % 6 == 0;
    if (wanted->Flags & CUDA_ARRAY3D_LAYERED)
        return wanted->Depth > 0;
    return wanted->Height > 0 || wanted->Depth == 0;
}

bool array_layout(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, struct CUarray_st *array) {
    const struct format *format = format_of(descriptor->Format);
    if (format == NULL || !has_a_shape(descriptor))
        return false;
    uint64_t height = descriptor->Height == 0 ? 1 : descriptor->Height;
    uint64_t channels = format->by_channel ? descriptor->NumChannels : 1;
    array->descriptor = *descriptor;
    array->row =
        round_up(descriptor->Width, format->width) / format->width * format->bytes * channels;
    array->rows = round_up(height, format->height) / format->height;
    array->slices = descriptor->Depth == 0 ? 1 : descriptor->Depth;
    uint64_t tiled_rows = descriptor->Height == 0 ? 1 : round_up(array->rows, TILE_ROWS);
    array->tiled = round_up(array->row, TILE_BYTES) * tiled_rows * array->slices;
    return true;
}
