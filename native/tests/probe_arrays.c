/*
 * Arrays, in every shape and ABI, and what is mapped into them.
 */
#include "probe_forms.h"

static int make_array(struct held *held, size_t depth, unsigned flags) {
    const CUDA_ARRAY3D_DESCRIPTOR description = {.Width = 1024,
                                                 .Height = held->bytes /
                                                           (4096 * (depth != 0 ? depth : 1)),
                                                 .Depth = depth,
                                                 .Format = CU_AD_FORMAT_FLOAT,
                                                 .NumChannels = 1,
                                                 .Flags = flags};
    return driver.array_3d(&held->array, &description);
}

static int hold_array(struct held *held) {
    const CUDA_ARRAY_DESCRIPTOR description = {.Width = 1024,
                                               .Height = held->bytes / 4096,
                                               .Format = CU_AD_FORMAT_FLOAT,
                                               .NumChannels = 1};
    return driver.array(&held->array, &description);
}

/* In the ABI of CUDA 2. */
static int hold_array_v1(struct held *held) {
    const CUDA_ARRAY_DESCRIPTOR_v1 description = {.Width = 1024,
                                                  .Height = (unsigned)(held->bytes / 4096),
                                                  .Format = CU_AD_FORMAT_FLOAT,
                                                  .NumChannels = 1};
    return driver.array_v1(&held->array, &description);
}

static int hold_array_3d_v1(struct held *held) {
    const CUDA_ARRAY3D_DESCRIPTOR_v1 description = {.Width = 1024,
                                                    .Height = (unsigned)(held->bytes / 16384),
                                                    .Depth = 4,
                                                    .Format = CU_AD_FORMAT_FLOAT,
                                                    .NumChannels = 1};
    return driver.array_3d_v1(&held->array, &description);
}

static int hold_array_3d(struct held *held) {
    return make_array(held, 4, 0);
}

static int hold_layered_array(struct held *held) {
    return make_array(held, 4, CUDA_ARRAY3D_LAYERED);
}

static int hold_sparse_array(struct held *held) {
    return make_array(held, 0, CUDA_ARRAY3D_SPARSE);
}

static int hold_deferred_array(struct held *held) {
    return make_array(held, 0, CUDA_ARRAY3D_DEFERRED_MAPPING);
}

/* A format in blocks, of half a byte an element. */
static int hold_compressed_array(struct held *held) {
    const CUDA_ARRAY3D_DESCRIPTOR description = {.Width = 8192,
                                                 .Height = held->bytes / 4096,
                                                 .Format = CU_AD_FORMAT_BC1_UNORM,
                                                 .NumChannels = 4};
    return driver.array_3d(&held->array, &description);
}

static int drop_array(struct held *held) {
    return driver.array_destroy(held->array);
}

static int map_into_array(struct held *held, CUmemOperationType operation) {
    CUarrayMapInfo mapping = {
        .resourceType = CU_RESOURCE_TYPE_ARRAY,
        .resource.array = held->array,
        .subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL,
        .subresource.sparseLevel = {.extentWidth = 1024, .extentHeight = 512, .extentDepth = 1},
        .memOperationType = operation,
        .memHandleType = CU_MEM_HANDLE_TYPE_GENERIC,
        .deviceBitMask = 1
    };
    if (operation == CU_MEM_OPERATION_TYPE_MAP)
        mapping.memHandle.memHandle = held->physical;
    return driver.array_map(&mapping, 1, NULL);
}

/* Only the array keeps the memory. */
static int hold_tile(struct held *held) {
    int result = hold_physical(held);
    if (result != 0)
        return result;
    result = hold_sparse_array(held);
    result = first(result, map_into_array(held, CU_MEM_OPERATION_TYPE_MAP));
    return first(result, drop_physical(held));
}

static int drop_tile(struct held *held) {
    const int result = map_into_array(held, CU_MEM_OPERATION_TYPE_UNMAP);
    return first(result, drop_array(held));
}

static int hold_mipmapped_array(struct held *held) {
    const CUDA_ARRAY3D_DESCRIPTOR description = {.Width = 1024,
                                                 .Height = held->bytes / 4096,
                                                 .Format = CU_AD_FORMAT_FLOAT,
                                                 .NumChannels = 1};
    return driver.mipmap(&held->mipmap, &description, 4);
}

static int drop_mipmapped_array(struct held *held) {
    return driver.mipmap_destroy(held->mipmap);
}

const struct form array_forms[] = {
    {"array-v1",         hold_array_v1,         drop_array          },
    {"array-3d-v1",      hold_array_3d_v1,      drop_array          },
    {"array",            hold_array,            drop_array          },
    {"array-3d",         hold_array_3d,         drop_array          },
    {"array-layered",    hold_layered_array,    drop_array          },
    {"array-sparse",     hold_sparse_array,     drop_array          },
    {"tile",             hold_tile,             drop_tile           },
    {"tile-of-array",    hold_tile,             drop_array          },
    {"array-deferred",   hold_deferred_array,   drop_array          },
    {"array-compressed", hold_compressed_array, drop_array          },
    {"mipmapped",        hold_mipmapped_array,  drop_mipmapped_array},
    {NULL,               NULL,                  NULL                },
};
