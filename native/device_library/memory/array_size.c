#include "memory/array_size.h"

#include "memory/rounding.h"

#include <stdbool.h>
#include <stddef.h>

/* The GPU lays arrays out in tiles of TILE_BYTES by TILE_ROWS rows. */
#define TILE_BYTES 64u
#define TILE_ROWS  8u
#define UNIT_BYTES (UINT64_C(64) << 10) /* memory is taken in these units */

/* The smallest block of a format: its elements, and the bytes that they take. */
struct block {
    unsigned int width, height, bytes;
};

/* No format takes more than 16 bytes per element. */
static const struct block largest = {1, 1, 16};

/* First and last number of the formats with this block. */
static const struct row {
    int first, last;
    struct block block;
} rows[] = {
    {0x50, 0x50, {1, 1, 4} }, /* UNORM_INT_101010_2 */
    {0x51, 0x51, {2, 1, 4} }, /* UINT8_PACKED_422 */
    {0x52, 0x52, {1, 1, 4} }, /* UINT8_PACKED_444 */
    {0x53, 0x53, {2, 2, 6} }, /* UINT8_SEMIPLANAR_420 */
    {0x54, 0x54, {2, 2, 12}}, /* UINT16_SEMIPLANAR_420 */
    {0x55, 0x55, {2, 1, 4} }, /* UINT8_SEMIPLANAR_422 */
    {0x56, 0x56, {2, 1, 8} }, /* UINT16_SEMIPLANAR_422 */
    {0x57, 0x57, {1, 1, 3} }, /* UINT8_SEMIPLANAR_444 */
    {0x58, 0x58, {1, 1, 6} }, /* UINT16_SEMIPLANAR_444 */
    {0x59, 0x59, {2, 2, 6} }, /* UINT8_PLANAR_420 */
    {0x5a, 0x5a, {2, 2, 12}}, /* UINT16_PLANAR_420 */
    {0x5b, 0x5b, {2, 1, 4} }, /* UINT8_PLANAR_422 */
    {0x5c, 0x5c, {2, 1, 8} }, /* UINT16_PLANAR_422 */
    {0x5d, 0x5d, {1, 1, 3} }, /* UINT8_PLANAR_444 */
    {0x5e, 0x5e, {1, 1, 6} }, /* UINT16_PLANAR_444 */
    {0x91, 0x92, {4, 4, 8} }, /* BC1 */
    {0x93, 0x96, {4, 4, 16}}, /* BC2, BC3 */
    {0x97, 0x98, {4, 4, 8} }, /* BC4 */
    {0x99, 0x9e, {4, 4, 16}}, /* BC5, BC6H, BC7 */
    {0x9f, 0x9f, {2, 2, 12}}, /* P010 */
    {0xa1, 0xa1, {2, 2, 12}}, /* P016 */
    {0xa2, 0xa2, {2, 1, 4} }, /* NV16 */
    {0xa3, 0xa4, {2, 1, 8} }, /* P210, P216 */
    {0xa5, 0xa5, {2, 1, 4} }, /* YUY2 */
    {0xa6, 0xa7, {2, 1, 8} }, /* Y210, Y216 */
    {0xa8, 0xa9, {1, 1, 4} }, /* AYUV, Y410 */
    {0xb0, 0xb0, {2, 2, 6} }, /* NV12 */
    {0xb1, 0xb1, {1, 1, 8} }, /* Y416 */
    {0xb2, 0xb2, {1, 1, 3} }, /* Y444_PLANAR8 */
    {0xb3, 0xb3, {1, 1, 6} }, /* Y444_PLANAR10 */
    {0xb4, 0xb4, {1, 1, 3} }, /* YUV444_8bit_SemiPlanar */
    {0xb5, 0xb5, {1, 1, 6} }, /* YUV444_16bit_SemiPlanar */
    {0xc0, 0xc0, {1, 1, 1} }, /* UNORM_INT8X1 */
    {0xc1, 0xc1, {1, 1, 2} }, /* UNORM_INT8X2 */
    {0xc2, 0xc2, {1, 1, 4} }, /* UNORM_INT8X4 */
    {0xc3, 0xc3, {1, 1, 2} }, /* UNORM_INT16X1 */
    {0xc4, 0xc4, {1, 1, 4} }, /* UNORM_INT16X2 */
    {0xc5, 0xc5, {1, 1, 8} }, /* UNORM_INT16X4 */
    {0xc6, 0xc6, {1, 1, 1} }, /* SNORM_INT8X1 */
    {0xc7, 0xc7, {1, 1, 2} }, /* SNORM_INT8X2 */
    {0xc8, 0xc8, {1, 1, 4} }, /* SNORM_INT8X4 */
    {0xc9, 0xc9, {1, 1, 2} }, /* SNORM_INT16X1 */
    {0xca, 0xca, {1, 1, 4} }, /* SNORM_INT16X2 */
    {0xcb, 0xcb, {1, 1, 8} }, /* SNORM_INT16X4 */
};

/* Bytes of one channel, for formats with separate channels; 0 for all others. */
static unsigned int bytes_of_channel(int format) {
    switch (format) {
    case 0x01: /* UNSIGNED_INT8 */
    case 0x08: /* SIGNED_INT8 */
        return 1;
    case 0x02: /* UNSIGNED_INT16 */
    case 0x09: /* SIGNED_INT16 */
    case 0x10: /* HALF */
        return 2;
    case 0x03: /* UNSIGNED_INT32 */
    case 0x0a: /* SIGNED_INT32 */
    case 0x20: /* FLOAT */
        return 4;
    default:
        return 0;
    }
}

static struct block block_of(const struct ks_array_3d *description) {
    const unsigned int channel = bytes_of_channel(description->format);
    if (channel != 0)
        return (struct block){1, 1, channel * description->channels};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].first <= description->format && description->format <= rows[i].last)
            return rows[i].block;
    }
    return largest;
}

/* Length of an edge at a level of a mipmap; 0 means that the array lacks this dimension. */
static uint64_t edge(uint64_t length, unsigned int level) {
    const uint64_t shrunk = level < 64 ? length >> level : 0;
    return shrunk != 0 ? shrunk : 1;
}

static uint64_t blocks(uint64_t length, unsigned int block) {
    return length / block + (length % block != 0);
}

static uint64_t bytes_of_level(const struct ks_array_3d *description, unsigned int level) {
    const struct block block = block_of(description);
    const bool layers = (description->flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    const uint64_t depth = edge(description->depth, layers ? 0 : level);
    const uint64_t height = blocks(edge(description->height, level), block.height);
    const uint64_t tiled = description->height != 0 ? ks_round_up(height, TILE_ROWS) : 1;
    uint64_t bytes;
    if (__builtin_mul_overflow(blocks(edge(description->width, level), block.width), block.bytes,
                               &bytes) ||
        __builtin_mul_overflow(ks_round_up(bytes, TILE_BYTES), tiled, &bytes) ||
        __builtin_mul_overflow(bytes, depth, &bytes))
        return UINT64_MAX;
    return bytes;
}

uint64_t ks_array_bytes(const struct ks_array_3d *description, unsigned int levels) {
    uint64_t bytes = 0;
    for (unsigned int level = 0; level < levels && level < 64; level++) {
        if (__builtin_add_overflow(bytes, bytes_of_level(description, level), &bytes))
            return UINT64_MAX;
    }
    return ks_round_up(bytes, UNIT_BYTES);
}
