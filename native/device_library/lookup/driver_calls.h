/*
 * The driver's functions that the library calls itself, past its own hooks.
 */
#ifndef KS_DRIVER_CALLS_H
#define KS_DRIVER_CALLS_H

#include "driver.h"

#include <stdbool.h>

/* CALL(our name, exported name, parameters) */
#define KS_DRIVER_CALLS                                                                            \
    CALL(context_get_device, "cuCtxGetDevice", (CUdevice * device))                                \
    CALL(context_get_current, "cuCtxGetCurrent", (CUcontext * context))                            \
    CALL(context_push, "cuCtxPushCurrent_v2", (CUcontext context))                                 \
    CALL(context_pop, "cuCtxPopCurrent_v2", (CUcontext * context))                                 \
    CALL(context_get_id, "cuCtxGetId", (CUcontext context, unsigned long long *id))                \
    CALL(context_synchronize, "cuCtxSynchronize", (void))                                          \
    CALL(context_record_event, "cuCtxRecordEvent", (CUcontext context, CUevent event))             \
    CALL(primary_retain, "cuDevicePrimaryCtxRetain", (CUcontext * context, CUdevice device))       \
    CALL(primary_release, "cuDevicePrimaryCtxRelease_v2", (CUdevice device))                       \
    CALL(primary_get_state, "cuDevicePrimaryCtxGetState",                                          \
         (CUdevice device, unsigned int *flags, int *active))                                      \
    CALL(context_of_green, "cuCtxFromGreenCtx", (CUcontext * context, CUgreenCtx green))           \
    CALL(green_record_event, "cuGreenCtxRecordEvent", (CUgreenCtx green, CUevent event))           \
    CALL(device_get_count, "cuDeviceGetCount", (int *count))                                       \
    CALL(device_get_uuid, "cuDeviceGetUuid", (CUuuid * uuid, CUdevice device))                     \
    CALL(device_get_uuid_v2, "cuDeviceGetUuid_v2", (CUuuid * uuid, CUdevice device))               \
    CALL(event_create, "cuEventCreate", (CUevent * event, unsigned int flags))                     \
    CALL(event_destroy, "cuEventDestroy_v2", (CUevent event))                                      \
    CALL(event_record, "cuEventRecord", (CUevent event, CUstream stream))                          \
    CALL(event_query, "cuEventQuery", (CUevent event))                                             \
    CALL(event_elapsed, "cuEventElapsedTime", (float *milliseconds, CUevent start, CUevent end))   \
    CALL(stream_create, "cuStreamCreate", (CUstream * stream, unsigned int flags))                 \
    CALL(stream_destroy, "cuStreamDestroy_v2", (CUstream stream))                                  \
    CALL(stream_get_context, "cuStreamGetCtx", (CUstream stream, CUcontext * context))             \
    CALL(stream_is_capturing, "cuStreamIsCapturing", (CUstream stream, int *status))               \
    CALL(stream_wait_event, "cuStreamWaitEvent",                                                   \
         (CUstream stream, CUevent event, unsigned int flags))                                     \
    CALL(stream_synchronize, "cuStreamSynchronize", (CUstream stream))                             \
    CALL(launch_host_function, "cuLaunchHostFunc",                                                 \
         (CUstream stream, void (*function)(void *), void *data))                                  \
    CALL(memory_free_async, "cuMemFreeAsync", (CUdeviceptr pointer, CUstream stream))              \
    CALL(physical_properties, "cuMemGetAllocationPropertiesFromHandle",                            \
         (struct ks_allocation_properties * properties, CUmemGenericAllocationHandle handle))      \
    CALL(granularity, "cuMemGetAllocationGranularity",                                             \
         (size_t *bytes, const struct ks_allocation_properties *properties, int option))           \
    CALL(pool_of_device, "cuDeviceGetMemPool", (CUmemoryPool * pool, CUdevice device))             \
    CALL(default_pool, "cuDeviceGetDefaultMemPool", (CUmemoryPool * pool, CUdevice device))        \
    CALL(pool_get, "cuMemPoolGetAttribute", (CUmemoryPool pool, int attribute, void *value))       \
    CALL(pool_trim, "cuMemPoolTrimTo", (CUmemoryPool pool, size_t bytes))                          \
    CALL(pool_destroy, "cuMemPoolDestroy", (CUmemoryPool pool))                                    \
    CALL(graph_memory_get, "cuDeviceGetGraphMemAttribute",                                         \
         (CUdevice device, int attribute, void *value))                                            \
    CALL(graph_memory_trim, "cuDeviceGraphMemTrim", (CUdevice device))                             \
    CALL(graph_nodes, "cuGraphGetNodes", (CUgraph graph, CUgraphNode * nodes, size_t *count))      \
    CALL(graph_node_type, "cuGraphNodeGetType", (CUgraphNode node, int *type))                     \
    CALL(graph_node_child, "cuGraphChildGraphNodeGetGraph", (CUgraphNode node, CUgraph * graph))   \
    CALL(graph_node_allocation, "cuGraphMemAllocNodeGetParams",                                    \
         (CUgraphNode node, struct ks_allocation_node * parameters))                               \
    CALL(graph_exec_destroy, "cuGraphExecDestroy", (CUgraphExec executable))                       \
    CALL(array_requirements, "cuArrayGetMemoryRequirements",                                       \
         (struct ks_array_requirements * requirements, CUarray array, CUdevice device))            \
    CALL(mipmapped_array_requirements, "cuMipmappedArrayGetMemoryRequirements",                    \
         (struct ks_array_requirements * requirements, CUmipmappedArray array, CUdevice device))   \
    CALL(limit_get, "cuCtxGetLimit", (size_t *value, int limit))                                   \
    CALL(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, CUdevice device))   \
    CALL(get_proc_address, "cuGetProcAddress",                                                     \
         (const char *symbol, void **function, int version, uint64_t flags))                       \
    CALL(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", (int *mode))                  \
    CALL(pointer_get_attribute, "cuPointerGetAttribute",                                           \
         (void *value, int attribute, CUdeviceptr pointer))                                        \
    CALL(nvml_device_get_uuid, "nvmlDeviceGetUUID",                                                \
         (nvmlDevice_t device, char *uuid, unsigned int length))

#define CALL(member, name, parameters) typedef int ks_type_of_##member parameters;
KS_DRIVER_CALLS
#undef CALL

enum ks_driver_call {
#define CALL(member, name, parameters) KS_CALL_##member,
    KS_DRIVER_CALLS
#undef CALL
        KS_CALLS
};

/* The function behind a call; if the driver lacks it, one that returns "not found". */
void *ks_driver_call(enum ks_driver_call call);

/* Whether the driver has it. */
bool ks_driver_has(enum ks_driver_call call);

#define KS_DRIVER(member) ((ks_type_of_##member *)ks_driver_call(KS_CALL_##member))

#endif
