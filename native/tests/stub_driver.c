/*
 * A driver that does next to nothing, so that what a benchmark sees of a call
 * is what the library adds to it. Its one GPU is the first of the session that the
 * environment names; its allocations are numbers. It counts what it is asked between
 * allocations: a real driver takes as long for each as the library for all else.
 */
#define __CUDA_API_VERSION_INTERNAL
#include "kubeshare_wire.h"

#include <cuda.h>
#include <cuda_memory.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define API __attribute__((visibility("default"))) CUresult

static const CUcontext only_context = (CUcontext)0x1000;
static _Atomic CUdeviceptr next_pointer = 0x10000000;
static _Atomic unsigned long questions;

/* Of one thread: an increment that is atomic as a whole would be most of what is measured. */
static void count_question(void) {
    const unsigned long before = atomic_load_explicit(&questions, memory_order_relaxed);
    atomic_store_explicit(&questions, before + 1, memory_order_relaxed);
}

/* How often it was asked for anything that changes nothing. */
__attribute__((visibility("default"))) unsigned long stub_driver_questions(void) {
    return atomic_load_explicit(&questions, memory_order_relaxed);
}

API cuInit(unsigned int flags) {
    return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    char path[4096];
    snprintf(path, sizeof path, "%s/page", getenv(KS_CLAIM_FOLDER_ENV));
    FILE *page = device == 0 ? fopen(path, "rb") : NULL;
    const long place = sizeof(struct ks_page_header) + offsetof(struct ks_page_cell, uuid);
    const bool found = page != NULL && fseek(page, place, SEEK_SET) == 0 &&
                       fread(uuid, sizeof *uuid, 1, page) == 1;
    if (page != NULL)
        fclose(page);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    *context = only_context;
    return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuCtxSetCurrent(CUcontext context) {
    return context == only_context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuCtxGetCurrent(CUcontext *context) {
    count_question();
    *context = only_context;
    return CUDA_SUCCESS;
}

API cuCtxGetDevice(CUdevice *device) {
    count_question();
    *device = 0;
    return CUDA_SUCCESS;
}

API cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    *pointer = atomic_fetch_add_explicit(&next_pointer, bytes, memory_order_relaxed);
    return CUDA_SUCCESS;
}

/* ---- a pool that has always taken one chunk --------------------------------------- */

API cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
    count_question();
    *pool = (CUmemoryPool)0x2000;
    return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    count_question();
    *(cuuint64_t *)value = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? 32 << 20 : 0;
    return pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
    (void)stream;
    return cuMemAlloc_v2(pointer, bytes);
}

API cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
    (void)stream;
    return pointer != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuMemFree_v2(CUdeviceptr pointer) {
    return pointer != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
