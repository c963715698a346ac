/* Every way to memory, as one thread of many uses it. */
#include <string.h>

#include "stress.h"

#define PAGE ((size_t)2 << 20)

/* The first bytes of some memory are this thread's alone. */
static void mark_and_check(CUdeviceptr memory, size_t bytes, unsigned char mark) {
    unsigned char back[32];
    GOOD(cuMemsetD8(memory, mark, bytes));
    GOOD(cuMemcpyDtoH(back, memory + bytes - sizeof back, sizeof back));
    for (size_t i = 0; i < sizeof back; i++)
        REQUIRE(back[i] == mark);
}

static void use_a_pool(CUstream stream, unsigned char mark) {
    CUdeviceptr small, large;
    CUmemoryPool pool;
    unsigned long long reserved;
    GOOD(cuMemAllocAsync(&small, 1000, stream));
    GOOD(cuMemAllocAsync(&large, 3 * PAGE + 7, stream));
    mark_and_check(small, 1000, mark);
    mark_and_check(large, 4096, mark);
    GOOD(cuDeviceGetDefaultMemPool(&pool, 0));
    GOOD(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    REQUIRE(reserved >= 4 * PAGE);
    GOOD(cuMemFreeAsync(large, stream));
    GOOD(cuMemPoolTrimTo(pool, 0));
    GOOD(cuMemFree(small));
    GOOD(cuStreamSynchronize(stream));
}

static void use_physical_memory(unsigned char mark) {
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}}
    };
    CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr place;
    GOOD(cuMemAddressReserve(&place, 2 * PAGE, 0, 0, 0));
    GOOD(cuMemCreate(&handle, PAGE, &properties, 0));
    GOOD(cuMemMap(place, PAGE, 0, handle, 0));
    GOOD(cuMemMap(place + PAGE, PAGE, 0, handle, 0));
    GOOD(cuMemRelease(handle));
    REQUIRE(cuMemRelease(handle) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemsetD8(place, 0, 1) == CUDA_ERROR_INVALID_VALUE);
    GOOD(cuMemSetAccess(place, 2 * PAGE, &access, 1));
    mark_and_check(place + PAGE - 2048, 4096, mark);
    GOOD(cuMemUnmap(place, 2 * PAGE));
    GOOD(cuMemAddressFree(place, 2 * PAGE));
}

static void use_arrays(void) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {256, 256, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUarray array;
    CUmipmappedArray mipmap;
    GOOD(cuArray3DCreate(&array, &shape));
    GOOD(cuMipmappedArrayCreate(&mipmap, &shape, 5));
    GOOD(cuMipmappedArrayDestroy(mipmap));
    GOOD(cuArrayDestroy(array));
}

void use_all_memory(CUstream stream, unsigned char mark) {
    use_a_pool(stream, mark);
    use_physical_memory(mark);
    use_arrays();
}
