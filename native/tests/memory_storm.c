/*
 * Threads that allocate and free in every way, at random, until standard input ends.
 *
 *   memory-storm THREADS SEED
 *
 * An answer is success or out of memory; any other ends the program with 1. At
 * the end it frees all that it holds, prints a line, and ends with 0.
 */
#include <cuda.h>
#include <cuda_memory.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS_MAX 64
#define HELD_MAX    6
#define MIB         ((size_t)1 << 20)

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags);
CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *description);
CUresult cuArrayDestroy(CUarray array);
CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties);
CUresult cuMemPoolDestroy(CUmemoryPool pool);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                 CUstream stream);

enum form { NONE, LINEAR, MANAGED, STREAM, POOL, PHYSICAL, ARRAY, FORMS };

struct held {
    enum form form;
    CUmemoryPool pool;
    union {
        CUdeviceptr pointer;
        CUmemGenericAllocationHandle physical;
        CUarray array;
    };
};

static CUcontext context;
static atomic_bool stop, failed;

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* A pool of its own for each; the pool may be gone before its memory. */
static CUresult allocate_in_pool(struct held *held, size_t bytes) {
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUresult result = cuMemPoolCreate(&held->pool, &properties);
    if (result == CUDA_SUCCESS) {
        result = cuMemAllocFromPoolAsync(&held->pointer, bytes, held->pool, NULL);
        if (result != CUDA_SUCCESS)
            cuMemPoolDestroy(held->pool);
    }
    return result;
}

static CUresult free_in_pool(const struct held *held) {
    const bool pool_first = held->pointer / 512 % 2 == 0;
    const CUresult destroyed = pool_first ? cuMemPoolDestroy(held->pool) : CUDA_SUCCESS;
    const CUresult freed = cuMemFreeAsync(held->pointer, NULL);
    const CUresult last = pool_first ? destroyed : cuMemPoolDestroy(held->pool);
    return freed == CUDA_SUCCESS ? last : freed;
}

static CUresult allocate(struct held *held, uint64_t random) {
    const size_t pages = 1 + random % 16;
    const CUmemAllocationProp on_gpu = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                        .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
    const CUDA_ARRAY_DESCRIPTOR flat = {
        .Width = 1024, .Height = pages * 256, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    held->form = (enum form)(1 + random / 16 % (FORMS - 1));
    switch (held->form) {
    case LINEAR:
        return cuMemAlloc(&held->pointer, pages * MIB - random % MIB);
    case MANAGED:
        return cuMemAllocManaged(&held->pointer, pages * 1024, 1);
    case STREAM:
        return cuMemAllocAsync(&held->pointer, pages * MIB, NULL);
    case POOL:
        return allocate_in_pool(held, pages * MIB);
    case PHYSICAL:
        return cuMemCreate(&held->physical, pages * 2 * MIB, &on_gpu, 0);
    default:
        return cuArrayCreate_v2(&held->array, &flat);
    }
}

static CUresult give_back(const struct held *held) {
    switch (held->form) {
    case STREAM:
        return cuMemFreeAsync(held->pointer, NULL);
    case POOL:
        return free_in_pool(held);
    case PHYSICAL:
        return cuMemRelease(held->physical);
    case ARRAY:
        return cuArrayDestroy(held->array);
    default:
        return cuMemFree(held->pointer);
    }
}

static void expect(const char *what, enum form form, CUresult result) {
    if (result == CUDA_SUCCESS || (result == CUDA_ERROR_OUT_OF_MEMORY && *what == 'a'))
        return;
    fprintf(stderr, "memory-storm: %s of form %d: %d\n", what, (int)form, (int)result);
    atomic_store(&failed, true);
}

static void step(struct held *held, uint64_t random) {
    if (held->form != NONE) {
        expect("free", held->form, give_back(held));
        held->form = NONE;
        return;
    }
    const CUresult result = allocate(held, random);
    expect("allocation", held->form, result);
    if (result != CUDA_SUCCESS)
        held->form = NONE;
}

static void *storm(void *seed) {
    uint64_t state = (uint64_t)(uintptr_t)seed;
    struct held held[HELD_MAX];
    memset(held, 0, sizeof held);
    cuCtxSetCurrent(context);
    while (!atomic_load(&stop) && !atomic_load(&failed)) {
        const uint64_t random = next(&state);
        step(&held[random % HELD_MAX], random / HELD_MAX);
    }
    for (int i = 0; i < HELD_MAX; i++) {
        if (held[i].form != NONE)
            step(&held[i], 0);
    }
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t threads[THREADS_MAX];
    char byte;
    const int asked = count == 3 ? atoi(arguments[1]) : 0;
    if (asked < 1 || asked > THREADS_MAX || cuInit(0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS) {
        fprintf(stderr, "memory-storm: usage: memory-storm THREADS SEED, where a GPU is\n");
        return 2;
    }
    const uint64_t seed = strtoull(arguments[2], NULL, 10) * THREADS_MAX + 1;
    for (int i = 0; i < asked; i++)
        pthread_create(&threads[i], NULL, storm,
                       (void *)(uintptr_t)((seed + (uint64_t)i) * 2654435761u));
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    atomic_store(&stop, true);
    for (int i = 0; i < asked; i++)
        pthread_join(threads[i], NULL);
    expect("wait", NONE, cuCtxSynchronize());
    if (!atomic_load(&failed))
        puts("{\"freed\": true}");
    return atomic_load(&failed) ? 1 : 0;
}
