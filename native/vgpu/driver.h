/*
 * The few types and numbers of the CUDA driver API and of NVML that the library needs.
 *
 * The real headers may not be shipped, and only the binary interface matters
 * here: handles are pointers, enumerations are ints, sizes are fixed.
 */
#ifndef KS_DRIVER_H
#define KS_DRIVER_H

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
    CUDA_ERROR_NOT_PERMITTED = 800,
};

enum { CU_EVENT_DEFAULT = 0, CU_EVENT_BLOCKING_SYNC = 1 };
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_STREAM_CAPTURE_MODE_RELAXED = 2 };
enum { CU_STREAM_CAPTURE_STATUS_NONE = 0 };
enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_UNIFIED = 4 };
enum { CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2 };
enum { CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = 2 };

/* The default stream that each thread has of its own, by its handle. */
#define CU_STREAM_PER_THREAD ((CUstream)2)

/* Which stream an argument means: to the `_ptsz` and `_ptds` twins NULL is the thread's own. */
#define KS_STREAM_LEGACY(stream)     (stream)
#define KS_STREAM_PER_THREAD(stream) ((stream) != NULL ? (stream) : CU_STREAM_PER_THREAD)

/* What cuLaunchKernelEx is given. */
struct ks_launch_configuration {
    unsigned int grid[3];
    unsigned int block[3];
    unsigned int shared_bytes;
    CUstream stream;
    void *attributes;
    unsigned int attributes_count;
};

typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;

enum {
    NVML_SUCCESS = 0,
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

#endif
