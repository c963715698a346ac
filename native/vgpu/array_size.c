#include "array_size.h"

#include "memory_charge.h"

/* The GPU lays arrays out in blocks of so many bytes of so many rows. */
#define BLOCK_BYTES 64u
#define BLOCK_ROWS  8u
#define UNIT_BYTES  (UINT64_C(64) << 10) /* what it takes of its memory for them at once */

#define MOST_BITS 128u /* of an element of any format */

/* Formats whose channels all have a size of their own. */
static unsigned int bits_of_channel(int format) {
    switch (format) {
    case 0x01: /* UNSIGNED_INT8 */
    case 0x08: /* SIGNED_INT8 */
        return 8;
    case 0x02: /* UNSIGNED_INT16 */
    case 0x09: /* SIGNED_INT16 */
    case 0x10: /* HALF */
        return 16;
    case 0x03: /* UNSIGNED_INT32 */
    case 0x0a: /* SIGNED_INT32 */
    case 0x20: /* FLOAT */
        return 32;
    default:
        return 0;
    }
}

/* Bits of an element, all channels and planes together; of those in blocks the average. */
static unsigned int bits_of_format(int format) {
    switch (format) {
    case 0x91: /* BC1_UNORM */
    case 0x92: /* BC1_UNORM_SRGB */
    case 0x97: /* BC4_UNORM */
    case 0x98: /* BC4_SNORM */
        return 4;
    case 0x93: /* BC2_UNORM */
    case 0x94: /* BC2_UNORM_SRGB */
    case 0x95: /* BC3_UNORM */
    case 0x96: /* BC3_UNORM_SRGB */
    case 0x99: /* BC5_UNORM */
    case 0x9a: /* BC5_SNORM */
    case 0x9b: /* BC6H_UF16 */
    case 0x9c: /* BC6H_SF16 */
    case 0x9d: /* BC7_UNORM */
    case 0x9e: /* BC7_UNORM_SRGB */
    case 0xc0: /* UNORM_INT8X1 */
    case 0xc6: /* SNORM_INT8X1 */
        return 8;
    case 0x53: /* UINT8_SEMIPLANAR_420 */
    case 0x59: /* UINT8_PLANAR_420 */
    case 0xb0: /* NV12 */
        return 12;
    case 0x51: /* UINT8_PACKED_422 */
    case 0x55: /* UINT8_SEMIPLANAR_422 */
    case 0x5b: /* UINT8_PLANAR_422 */
    case 0xa2: /* NV16 */
    case 0xa5: /* YUY2 */
    case 0xc1: /* UNORM_INT8X2 */
    case 0xc3: /* UNORM_INT16X1 */
    case 0xc7: /* SNORM_INT8X2 */
    case 0xc9: /* SNORM_INT16X1 */
        return 16;
    case 0x54: /* UINT16_SEMIPLANAR_420 */
    case 0x57: /* UINT8_SEMIPLANAR_444 */
    case 0x5a: /* UINT16_PLANAR_420 */
    case 0x5d: /* UINT8_PLANAR_444 */
    case 0x9f: /* P010 */
    case 0xa1: /* P016 */
    case 0xb2: /* Y444_PLANAR8 */
    case 0xb4: /* YUV444_8bit_SemiPlanar */
        return 24;
    case 0x50: /* UNORM_INT_101010_2 */
    case 0x52: /* UINT8_PACKED_444 */
    case 0x56: /* UINT16_SEMIPLANAR_422 */
    case 0x5c: /* UINT16_PLANAR_422 */
    case 0xa3: /* P210 */
    case 0xa4: /* P216 */
    case 0xa6: /* Y210 */
    case 0xa7: /* Y216 */
    case 0xa8: /* AYUV */
    case 0xa9: /* Y410 */
    case 0xc2: /* UNORM_INT8X4 */
    case 0xc4: /* UNORM_INT16X2 */
    case 0xc8: /* SNORM_INT8X4 */
    case 0xca: /* SNORM_INT16X2 */
        return 32;
    case 0x58: /* UINT16_SEMIPLANAR_444 */
    case 0x5e: /* UINT16_PLANAR_444 */
    case 0xb3: /* Y444_PLANAR10 */
    case 0xb5: /* YUV444_16bit_SemiPlanar */
        return 48;
    case 0xb1: /* Y416 */
    case 0xc5: /* UNORM_INT16X4 */
    case 0xcb: /* SNORM_INT16X4 */
        return 64;
    default:
        return MOST_BITS;
    }
}

static unsigned int bits_of_element(const struct ks_array_3d *description) {
    const unsigned int channel = bits_of_channel(description->format);
    return channel != 0 ? channel * description->channels : bits_of_format(description->format);
}

/* Length of an edge at a level of a mipmap; dimensions that an array does not have are 0. */
static uint64_t edge(uint64_t length, unsigned int level) {
    const uint64_t shrunk = level < 64 ? length >> level : 0;
    return shrunk != 0 ? shrunk : 1;
}

static uint64_t bytes_of_level(const struct ks_array_3d *description, unsigned int level) {
    const unsigned int layers = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP;
    const uint64_t depth = edge(description->depth, description->flags & layers ? 0 : level);
    const uint64_t height = edge(description->height, level);
    const uint64_t rows = description->height != 0 ? ks_round_up(height, BLOCK_ROWS) : 1;
    uint64_t bytes;
    if (__builtin_mul_overflow(edge(description->width, level), bits_of_element(description),
                               &bytes) ||
        __builtin_mul_overflow(ks_round_up(bytes / 8 + (bytes % 8 != 0), BLOCK_BYTES), rows,
                               &bytes) ||
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
