/*
 * Compares the formula for the size of arrays with the driver's figure, for every format and
 * many shapes. Prints each difference, and how many sizes were compared.
 */
#include "memory/array_size.h"

#include <stdio.h>

/* Of the driver's ABI; its types are those of the library here. */
CUresult cuInit(unsigned int flags);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuArray3DCreate_v2(CUarray *array, const struct ks_array_3d *description);
CUresult cuArrayDestroy(CUarray array);
CUresult cuArrayGetMemoryRequirements(struct ks_array_requirements *requirements, CUarray array,
                                      CUdevice device);
CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const struct ks_array_3d *description,
                                unsigned int levels);
CUresult cuMipmappedArrayDestroy(CUmipmappedArray array);
CUresult cuMipmappedArrayGetMemoryRequirements(struct ks_array_requirements *requirements,
                                               CUmipmappedArray array, CUdevice device);

static const size_t shapes[][3] = {
    {1,    0,   0 },
    {1000, 0,   0 },
    {64,   64,  0 },
    {1001, 333, 0 },
    {4096, 17,  0 },
    {130,  66,  34},
};

static const unsigned int flags[] = {0, CUDA_ARRAY3D_LAYERED};

static int compared, differences;

static void compare(const struct ks_array_3d *description, unsigned int levels, uint64_t expected) {
    const uint64_t computed = ks_array_bytes(description, levels);
    compared++;
    if (computed == expected)
        return;
    differences++;
    printf("format %#x, %u channels, %zux%zux%zu, flags %#x, %u levels: %llu, not %llu\n",
           (unsigned)description->format, description->channels, description->width,
           description->height, description->depth, description->flags, levels,
           (unsigned long long)computed, (unsigned long long)expected);
}

static void check_array(struct ks_array_3d description) {
    struct ks_array_requirements expected;
    CUarray array;
    description.flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
    if (cuArray3DCreate_v2(&array, &description) != CUDA_SUCCESS)
        return;
    if (cuArrayGetMemoryRequirements(&expected, array, 0) == CUDA_SUCCESS)
        compare(&description, 1, expected.bytes);
    cuArrayDestroy(array);
}

static void check_mipmap(struct ks_array_3d description) {
    struct ks_array_requirements expected;
    CUmipmappedArray array;
    description.flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
    if (cuMipmappedArrayCreate(&array, &description, 3) != CUDA_SUCCESS)
        return;
    if (cuMipmappedArrayGetMemoryRequirements(&expected, array, 0) == CUDA_SUCCESS)
        compare(&description, 3, expected.bytes);
    cuMipmappedArrayDestroy(array);
}

static void check_format(int format, unsigned int channels) {
    for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++) {
        for (size_t flag = 0; flag < sizeof flags / sizeof *flags; flag++) {
            const struct ks_array_3d description = {.width = shapes[shape][0],
                                                    .height = shapes[shape][1],
                                                    .depth = shapes[shape][2],
                                                    .format = format,
                                                    .channels = channels,
                                                    .flags = flags[flag]};
            check_array(description);
            check_mipmap(description);
        }
    }
}

int main(void) {
    CUcontext context;
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS)
        return 3;
    for (int format = 0; format < 256; format++) {
        for (unsigned int channels = 1; channels <= 4; channels++)
            check_format(format, channels);
    }
    printf("%d sizes compared\n", compared);
    return differences == 0 ? 0 : 1;
}
