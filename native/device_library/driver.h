/*
 * The types and constants of the CUDA driver API and of NVML that the library needs.
 *
 * The real headers may not be shipped, and only the binary interface matters
 * here: handles are pointers, enumerations are ints, sizes are fixed.
 */
#ifndef KS_DRIVER_H
#define KS_DRIVER_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned int CUdeviceptr_v1; /* of the 32-bit ABI of CUDA 2 */
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUarray_st *CUarray;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUextMemory_st *CUexternalMemory;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct {
    unsigned char bytes[16];
} CUuuid;

/* Where memory is: passed by value. */
typedef struct {
    int type;
    int id;
} CUmemLocation;

/* Copies of rows and of slices; first those of the 32-bit ABI of CUDA 2. */
typedef struct {
    unsigned int source_x_bytes, source_y;
    int source_memory_type;
    void *source_host;
    CUdeviceptr_v1 source_device;
    CUarray source_array;
    unsigned int source_pitch;
    unsigned int destination_x_bytes, destination_y;
    int destination_memory_type;
    void *destination_host;
    CUdeviceptr_v1 destination_device;
    CUarray destination_array;
    unsigned int destination_pitch;
    unsigned int width_bytes, height;
} CUDA_MEMCPY2D_v1;

typedef struct {
    size_t source_x_bytes, source_y;
    int source_memory_type;
    void *source_host;
    CUdeviceptr source_device;
    CUarray source_array;
    size_t source_pitch;
    size_t destination_x_bytes, destination_y;
    int destination_memory_type;
    void *destination_host;
    CUdeviceptr destination_device;
    CUarray destination_array;
    size_t destination_pitch;
    size_t width_bytes, height;
} CUDA_MEMCPY2D;

typedef struct {
    unsigned int source_x_bytes, source_y, source_z, source_level;
    int source_memory_type;
    void *source_host;
    CUdeviceptr_v1 source_device;
    CUarray source_array;
    void *source_reserved;
    unsigned int source_pitch, source_height;
    unsigned int destination_x_bytes, destination_y, destination_z, destination_level;
    int destination_memory_type;
    void *destination_host;
    CUdeviceptr_v1 destination_device;
    CUarray destination_array;
    void *destination_reserved;
    unsigned int destination_pitch, destination_height;
    unsigned int width_bytes, height, depth;
} CUDA_MEMCPY3D_v1;

typedef struct {
    size_t source_x_bytes, source_y, source_z, source_level;
    int source_memory_type;
    void *source_host;
    CUdeviceptr source_device;
    CUarray source_array;
    void *source_reserved;
    size_t source_pitch, source_height;
    size_t destination_x_bytes, destination_y, destination_z, destination_level;
    int destination_memory_type;
    void *destination_host;
    CUdeviceptr destination_device;
    CUarray destination_array;
    void *destination_reserved;
    size_t destination_pitch, destination_height;
    size_t width_bytes, height, depth;
} CUDA_MEMCPY3D;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
    CUDA_ERROR_NOT_PERMITTED = 800,
    CUDA_ERROR_STREAM_DETACHED = 917,
};

enum { CU_EVENT_DEFAULT = 0, CU_EVENT_BLOCKING_SYNC = 1, CU_EVENT_DISABLE_TIMING = 2 };
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_STREAM_CAPTURE_MODE_RELAXED = 2 };
enum { CU_STREAM_CAPTURE_STATUS_NONE = 0 };
enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_UNIFIED = 4 };
enum { CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2 };
enum { CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = 2 };

/* The handle of the default stream of each thread. */
#define CU_STREAM_PER_THREAD ((CUstream)2)

/* The stream that an argument names: for the `_ptsz` and `_ptds` twins NULL is the thread's own. */
#define KS_STREAM_LEGACY(stream)     (stream)
#define KS_STREAM_PER_THREAD(stream) ((stream) != NULL ? (stream) : CU_STREAM_PER_THREAD)

/* The argument of cuLaunchKernelEx. */
struct ks_launch_configuration {
    unsigned int grid[3];
    unsigned int block[3];
    unsigned int shared_bytes;
    CUstream stream;
    void *attributes;
    unsigned int attributes_count;
};

/* ---- memory ------------------------------------------------------------------- */

enum {
    CU_MEM_LOCATION_TYPE_NONE = 0,
    CU_MEM_LOCATION_TYPE_DEVICE = 1,
    CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN = 6,
};

/* CUmemLocation */
struct ks_location {
    int type;
    union {
        int id;
        struct {
            unsigned char device, domain;
        };
    };
};

/* CUmemPoolProps */
struct ks_pool_properties {
    int allocation_type;
    int handle_types;
    struct ks_location location;
    void *security;
    size_t most_bytes;
    unsigned short usage;
    unsigned char reserved[54];
};

/* CUmemAllocationProp */
struct ks_allocation_properties {
    int allocation_type;
    int handle_types;
    struct ks_location location;
    void *security;
    unsigned char flags[8];
};

enum { CU_MEM_ATTACH_GLOBAL = 1, CU_MEM_ATTACH_HOST = 2 };
enum { CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0 };
enum {
    CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
    CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7,
    CU_MEMPOOL_ATTR_LOCATION_ID = 11,
    CU_MEMPOOL_ATTR_LOCATION_TYPE = 12,
};

enum { CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT = 2 };
enum { CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD = 2 };
enum { CU_GRAPH_NODE_TYPE_GRAPH = 4, CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10 };

/* CUDA_MEM_ALLOC_NODE_PARAMS */
struct ks_allocation_node {
    struct ks_pool_properties pool;
    const void *accesses;
    size_t accesses_count;
    size_t bytes;
    CUdeviceptr pointer;
};

/* CUDA_ARRAY_DESCRIPTOR, in the 32-bit ABI of CUDA 2 and since */
struct ks_array_v1 {
    unsigned int width, height;
    int format;
    unsigned int channels;
};
struct ks_array {
    size_t width, height;
    int format;
    unsigned int channels;
};

/* CUDA_ARRAY3D_DESCRIPTOR, likewise */
struct ks_array_3d_v1 {
    unsigned int width, height, depth;
    int format;
    unsigned int channels;
    unsigned int flags;
};
struct ks_array_3d {
    size_t width, height, depth;
    int format;
    unsigned int channels;
    unsigned int flags;
};

enum {
    CUDA_ARRAY3D_LAYERED = 0x01,
    CUDA_ARRAY3D_CUBEMAP = 0x04,
    CUDA_ARRAY3D_SPARSE = 0x40,
    CUDA_ARRAY3D_DEFERRED_MAPPING = 0x80,
};

/* CUDA_ARRAY_MEMORY_REQUIREMENTS */
struct ks_array_requirements {
    size_t bytes, alignment;
    unsigned int reserved[4];
};

enum { CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL = 1 };
enum { CU_MEM_OPERATION_TYPE_MAP = 1, CU_MEM_OPERATION_TYPE_UNMAP = 2 };

/* CUarrayMapInfo: memory for a part of an array */
struct ks_array_mapping {
    int resource_type;
    void *array; /* or a mipmapped one */
    int part_type;
    union {
        struct {
            unsigned int level, layer, start[3], extent[3];
        };
        struct {
            unsigned int layer;
            unsigned long long offset, bytes;
        } tail;
    };
    int operation;
    int handle_type;
    CUmemGenericAllocationHandle handle;
    unsigned long long offset;
    unsigned int devices, flags, reserved[2];
};
static_assert(sizeof(struct ks_array_mapping) == 96, "as the driver has it");

/* CUDA_EXTERNAL_MEMORY_HANDLE_DESC */
struct ks_external_memory {
    int type;
    union {
        int descriptor;
        void *handles[2];
    };
    unsigned long long bytes;
    unsigned int flags;
    unsigned int reserved[16];
};

enum {
    CU_LIMIT_STACK_SIZE = 0,
    CU_LIMIT_PRINTF_FIFO_SIZE = 1,
    CU_LIMIT_MALLOC_HEAP_SIZE = 2,
};
enum {
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
    CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_SUPPORTED = 121,
};

/* ---- NVML ----------------------------------------------------------------------- */

typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
};
enum { NVML_DEVICE_UUID_V2_BUFFER_SIZE = 96 };

typedef struct {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
} nvmlMemory_t;

typedef struct {
    unsigned int version;
    unsigned long long total;
    unsigned long long reserved;
    unsigned long long free;
    unsigned long long used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
} nvmlBAR1Memory_t;

/* Percent of the time in which a kernel ran, and in which memory was read or written. */
typedef struct {
    unsigned int gpu;
    unsigned int memory;
} nvmlUtilization_t;

/* A process that uses a GPU: in the first version of a list, in later ones, in the detailed list.
 */
typedef struct {
    unsigned int pid;
    unsigned long long bytes;
} nvmlProcessInfo_v1_t;

typedef struct {
    unsigned int pid;
    unsigned long long bytes;
    unsigned int gpu_instance, compute_instance;
} nvmlProcessInfo_t;

typedef struct {
    unsigned int pid;
    unsigned long long bytes;
    unsigned int gpu_instance, compute_instance;
    unsigned long long protected_bytes;
} nvmlProcessDetail_v1_t;

typedef struct {
    unsigned int version;
    unsigned int mode;
    unsigned int count;
    nvmlProcessDetail_v1_t *processes;
} nvmlProcessDetailList_t;

enum { NVML_PROCESS_MODE_COMPUTE = 0, NVML_PROCESS_MODE_ALL = 3 };
enum { NVML_NO_INSTANCE = -1 };

/* How much a process uses a GPU, in per cent of its parts. */
typedef struct {
    unsigned int pid;
    unsigned long long time;
    unsigned int parts[4];
} nvmlProcessUtilizationSample_t;

typedef struct {
    unsigned long long time;
    unsigned int pid;
    unsigned int parts[6];
} nvmlProcessUtilizationInfo_v1_t;

typedef struct {
    unsigned int version;
    unsigned int count;
    unsigned long long last_seen;
    nvmlProcessUtilizationInfo_v1_t *processes;
} nvmlProcessesUtilizationInfo_t;

#endif
