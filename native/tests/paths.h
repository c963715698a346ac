/*
 * The ways by which programs get the driver's functions.
 *
 *   direct       linked to libcuda.so.1 (probe-linked only)
 *   default      dlsym(RTLD_DEFAULT, …) after dlopen(…, RTLD_GLOBAL)
 *   dlsym        dlsym(handle, …)
 *   dlsym-ptsz   the same, `_ptsz` and `_ptds` twins where there are any
 *   dlvsym       dlsym itself found by dlvsym, for both of its versions
 *   address      cuGetProcAddress with four arguments (CUDA 11.3)
 *   address-v2   with five (CUDA 12)
 *   address-ptsz with five and the flag for per-thread default streams
 */
#ifndef PATHS_H
#define PATHS_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cuda_memory.h>
#include <cuda_work.h>
#include <stdbool.h>

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml_memory_v2 {
    unsigned int version;
    unsigned long long total, reserved, free, used;
};

#define KERNEL_ARGUMENTS                                                                           \
    CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream

#define MEMORY_CALLS                                                                               \
    CALL(host_alloc, cuMemHostAlloc, , 2020, , (void **, size_t, unsigned))                        \
    CALL(host_free, cuMemFreeHost, , 2000, , (void *))                                             \
    CALL(host_register, cuMemHostRegister, _v2, 6050, , (void *, size_t, unsigned))                \
    CALL(host_unregister, cuMemHostUnregister, , 4000, , (void *))                                 \
    CALL(alloc_async, cuMemAllocAsync, , 11020, _ptsz, (CUdeviceptr *, size_t, CUstream))          \
    CALL(alloc_from_pool, cuMemAllocFromPoolAsync, , 11020, _ptsz,                                 \
         (CUdeviceptr *, size_t, CUmemoryPool, CUstream))                                          \
    CALL(free_async, cuMemFreeAsync, , 11020, _ptsz, (CUdeviceptr, CUstream))                      \
    CALL(pool_create, cuMemPoolCreate, , 11020, , (CUmemoryPool *, const CUmemPoolProps *))        \
    CALL(pool_destroy, cuMemPoolDestroy, , 11020, , (CUmemoryPool))                                \
    CALL(pool_trim, cuMemPoolTrimTo, , 11020, , (CUmemoryPool, size_t))                            \
    CALL(pool_of_device, cuDeviceGetMemPool, , 11020, , (CUmemoryPool *, CUdevice))                \
    CALL(pool_choose, cuDeviceSetMemPool, , 11020, , (CUdevice, CUmemoryPool))                     \
    CALL(pool_set, cuMemPoolSetAttribute, , 11020, , (CUmemoryPool, CUmemPool_attribute, void *))  \
    CALL(                                                                                          \
        physical_create, cuMemCreate, , 10020, ,                                                   \
        (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long)) \
    CALL(physical_release, cuMemRelease, , 10020, , (CUmemGenericAllocationHandle))                \
    CALL(physical_retain, cuMemRetainAllocationHandle, , 11000, ,                                  \
         (CUmemGenericAllocationHandle *, void *))                                                 \
    CALL(address_reserve, cuMemAddressReserve, , 10020, ,                                          \
         (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))                         \
    CALL(address_free, cuMemAddressFree, , 10020, , (CUdeviceptr, size_t))                         \
    CALL(map, cuMemMap, , 10020, ,                                                                 \
         (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long))          \
    CALL(unmap, cuMemUnmap, , 10020, , (CUdeviceptr, size_t))                                      \
    CALL(array, cuArrayCreate, _v2, 3020, , (CUarray *, const CUDA_ARRAY_DESCRIPTOR *))            \
    CALL(array_3d, cuArray3DCreate, _v2, 3020, , (CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *))     \
    CALL(array_v1, cuArrayCreate, , 2000, , (CUarray *, const CUDA_ARRAY_DESCRIPTOR_v1 *))         \
    CALL(array_3d_v1, cuArray3DCreate, , 2000, , (CUarray *, const CUDA_ARRAY3D_DESCRIPTOR_v1 *))  \
    CALL(array_destroy, cuArrayDestroy, , 2000, , (CUarray))                                       \
    CALL(mipmap, cuMipmappedArrayCreate, , 5000, ,                                                 \
         (CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned))                          \
    CALL(array_map, cuMemMapArrayAsync, , 11010, _ptsz, (CUarrayMapInfo *, unsigned, CUstream))    \
    CALL(physical_export, cuMemExportToShareableHandle, , 10020, ,                                 \
         (void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long))    \
    CALL(physical_import, cuMemImportFromShareableHandle, , 10020, ,                               \
         (CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType))                      \
    CALL(ipc_get, cuIpcGetMemHandle, , 4010, , (CUipcMemHandle *, CUdeviceptr))                    \
    CALL(ipc_open, cuIpcOpenMemHandle, _v2, 11000, , (CUdeviceptr *, CUipcMemHandle, unsigned))    \
    CALL(ipc_close, cuIpcCloseMemHandle, , 4010, , (CUdeviceptr))                                  \
    CALL(mipmap_destroy, cuMipmappedArrayDestroy, , 5000, , (CUmipmappedArray))                    \
    CALL(external_import, cuImportExternalMemory, , 10000, ,                                       \
         (CUexternalMemory *, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *))                           \
    CALL(external_destroy, cuDestroyExternalMemory, , 10000, , (CUexternalMemory))                 \
    CALL(set_limit, cuCtxSetLimit, , 3010, , (CUlimit, size_t))                                    \
    CALL(stream_create, cuStreamCreate, , 2000, , (CUstream *, unsigned))                          \
    CALL(stream_synchronize, cuStreamSynchronize, , 2000, _ptsz, (CUstream))                       \
    CALL(stream_destroy, cuStreamDestroy, _v2, 4000, , (CUstream))                                 \
    CALL(capture_begin, cuStreamBeginCapture, _v2, 10010, _ptsz, (CUstream, CUstreamCaptureMode))  \
    CALL(capture_end, cuStreamEndCapture, , 10000, _ptsz, (CUstream, CUgraph *))                   \
    CALL(graph_create, cuGraphCreate, , 10000, , (CUgraph *, unsigned))                            \
    CALL(graph_destroy, cuGraphDestroy, , 10000, , (CUgraph))                                      \
    CALL(graph_allocate, cuGraphAddMemAllocNode, , 11040, ,                                        \
         (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUDA_MEM_ALLOC_NODE_PARAMS *))      \
    CALL(graph_free, cuGraphAddMemFreeNode, , 11040, ,                                             \
         (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUdeviceptr))                       \
    CALL(graph_instantiate, cuGraphInstantiateWithFlags, , 11040, ,                                \
         (CUgraphExec *, CUgraph, unsigned long long))                                             \
    CALL(graph_instantiate_v1, cuGraphInstantiate, , 10000, ,                                      \
         (CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t))                                  \
    CALL(graph_instantiate_v2, cuGraphInstantiate, _v2, 11000, ,                                   \
         (CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t))                                  \
    CALL(graph_instantiate_params, cuGraphInstantiateWithParams, , 12000, _ptsz,                   \
         (CUgraphExec *, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS *))                                \
    CALL(graph_add, cuGraphAddNode, , 12020, ,                                                     \
         (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraphNodeParams *))               \
    CALL(graph_upload, cuGraphUpload, , 11010, _ptsz, (CUgraphExec, CUstream))                     \
    CALL(graph_launch, cuGraphLaunch, , 10000, _ptsz, (CUgraphExec, CUstream))                     \
    CALL(graph_exec_destroy, cuGraphExecDestroy, , 10000, , (CUgraphExec))                         \
    CALL(graph_trim, cuDeviceGraphMemTrim, , 11040, , (CUdevice))

/* CALL(member, base name, suffix of its ABI, its version, suffix of the per-thread twin,
 * parameters) */
#define CALLS                                                                                      \
    CALL(init, cuInit, , 2000, , (unsigned))                                                       \
    CALL(create, cuCtxCreate, _v2, 3020, , (CUcontext *, unsigned, CUdevice))                      \
    CALL(destroy, cuCtxDestroy, _v2, 4000, , (CUcontext))                                          \
    CALL(set_current, cuCtxSetCurrent, , 4000, , (CUcontext))                                      \
    CALL(get_current, cuCtxGetCurrent, , 4000, , (CUcontext *))                                    \
    CALL(synchronize, cuCtxSynchronize, , 2000, , (void))                                          \
    CALL(primary_retain, cuDevicePrimaryCtxRetain, , 7000, , (CUcontext *, CUdevice))              \
    CALL(primary_release, cuDevicePrimaryCtxRelease, _v2, 11000, , (CUdevice))                     \
    CALL(module_load, cuModuleLoadData, , 2000, , (CUmodule *, const void *))                      \
    CALL(module_function, cuModuleGetFunction, , 2000, , (CUfunction *, CUmodule, const char *))   \
    CALL(module_unload, cuModuleUnload, , 2000, , (CUmodule))                                      \
    CALL(alloc, cuMemAlloc, _v2, 3020, , (CUdeviceptr *, size_t))                                  \
    CALL(alloc32, cuMemAlloc, , 2000, , (unsigned *, unsigned))                                    \
    CALL(alloc_pitch, cuMemAllocPitch, _v2, 3020, ,                                                \
         (CUdeviceptr *, size_t *, size_t, size_t, unsigned))                                      \
    CALL(alloc_managed, cuMemAllocManaged, , 6000, , (CUdeviceptr *, size_t, unsigned))            \
    CALL(free, cuMemFree, _v2, 3020, , (CUdeviceptr))                                              \
    CALL(mem_info, cuMemGetInfo, _v2, 3020, , (size_t *, size_t *))                                \
    CALL(total_mem, cuDeviceTotalMem, _v2, 3020, , (size_t *, CUdevice))                           \
    CALL(memset_d8, cuMemsetD8, _v2, 3020, _ptds, (CUdeviceptr, unsigned char, size_t))            \
    CALL(launch, cuLaunchKernel, , 4000, _ptsz, (KERNEL_ARGUMENTS, void **, void **))              \
    CALL(launch_cooperative, cuLaunchCooperativeKernel, , 9000, _ptsz,                             \
         (KERNEL_ARGUMENTS, void **))                                                              \
    CALL(launch_ex, cuLaunchKernelEx, , 11060, _ptsz,                                              \
         (const CUlaunchConfig *, CUfunction, void **, void **))                                   \
    MEMORY_CALLS

struct calls {
#define CALL(member, base, suffix, version, twin, parameters) int(*member) parameters;
    CALLS
#undef CALL
};

extern struct calls driver;
extern const char path_names[];

/* Fills `driver` by a path; false when there is no such path or a function is missing. */
bool find_driver(const char *path);

/* Asks NVML for the memory of the first GPU by both versions of the call; its code. */
int nvml_memory(struct nvml_memory *memory, struct nvml_memory_v2 *memory_v2);

#endif
