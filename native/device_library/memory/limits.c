/*
 * Memory that a context sets aside on its GPU for kernels: stacks, the heap of
 * malloc, the buffer of printf. The default is part of the overhead that the node
 * agent measures; what the application asks for beyond it is charged here, before
 * the driver takes it.
 */
#include "account.h"
#include "context.h"
#include "lookup/driver_calls.h"
#include "lookup/real.h"
#include "memory/charge.h"

/* The values of a new context. */
static uint64_t default_of(int limit) {
    switch (limit) {
    case CU_LIMIT_STACK_SIZE:
        return 1 << 10;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
        return 1 << 20;
    default:
        return 8 << 20;
    }
}

/* How many times the GPU holds the amount of a limit: a stack for each thread that can run at once.
 */
static uint64_t copies_of(int limit) {
    CUdevice device;
    int processors = 0, threads = 0;
    if (limit != CU_LIMIT_STACK_SIZE)
        return 1;
    if (KS_DRIVER(context_get_device)(&device) != CUDA_SUCCESS ||
        KS_DRIVER(device_attribute)(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                    device) != CUDA_SUCCESS ||
        KS_DRIVER(device_attribute)(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                                    device) != CUDA_SUCCESS)
        return 0;
    return (uint64_t)processors * (uint64_t)threads;
}

static uint64_t bytes_beyond_default(int limit, uint64_t value) {
    uint64_t bytes;
    if (value <= default_of(limit))
        return 0;
    if (__builtin_mul_overflow(value - default_of(limit), copies_of(limit), &bytes))
        return UINT64_MAX;
    return bytes;
}

/* A handle for one limit of one context: contexts are further apart than there are limits. */
static uint64_t handle_of(CUcontext context, int limit) {
    return (uint64_t)(uintptr_t)context + (uint64_t)limit;
}

static CUresult change(struct ks_allocation *next, int limit, size_t value) {
    struct ks_allocation before = {.bytes = 0};
    const bool known = ks_allocations_take(KS_CONTEXT_LIMIT, next->handle, &before);
    const uint64_t more = next->bytes > before.bytes ? next->bytes - before.bytes : 0;
    CUresult result = more != 0 ? ks_charge(next->cell, more) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
        result = KS_REAL(cuCtxSetLimit)(limit, value);
        if (result == CUDA_SUCCESS && ks_allocations_add(next)) {
            if (next->bytes < before.bytes)
                ks_account_give_back(next->cell, before.bytes - next->bytes);
            return CUDA_SUCCESS;
        }
        ks_account_give_back(next->cell, more);
    }
    if (known)
        ks_allocations_add(&before);
    return result;
}

int cuCtxSetLimit(int limit, size_t value) {
    struct ks_allocation next;
    CUresult result;
    if (limit != CU_LIMIT_STACK_SIZE && limit != CU_LIMIT_PRINTF_FIFO_SIZE &&
        limit != CU_LIMIT_MALLOC_HEAP_SIZE)
        return KS_REAL(cuCtxSetLimit)(limit, value);
    if (!ks_describe(&next, KS_CONTEXT_LIMIT, ks_taken(bytes_beyond_default(limit, value)),
                     &result))
        return KS_REAL(cuCtxSetLimit)(limit, value);
    if (result != CUDA_SUCCESS)
        return result;
    next.handle = handle_of(ks_current_context(), limit);
    return change(&next, limit, value);
}
