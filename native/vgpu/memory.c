/*
 * Memory: charged to the claim before the driver is asked, so the limit holds
 * at every moment; given back when the driver refuses, and when it is freed.
 */
#include "memory.h"
#include "account.h"
#include "allocations.h"
#include "claim.h"
#include "context.h"
#include "driver_calls.h"
#include "hooks.h"
#include "system.h"

#include <stdbool.h>

/* Rows of a pitched allocation are padded at least to this. */
#define PITCH_GRANULE 512u

/* Whether this call is ours to account: not where there is no context (the
 * driver says so itself). */
static bool describe(struct ks_allocation *allocation, uint64_t bytes, CUresult *refusal) {
    int cell;
    *refusal = CUDA_SUCCESS;
    if (!ks_claim_is_open() || !ks_current_cell(&cell))
        return false;
    if (cell == KS_NO_CELL || ks_claim_is_revoked())
        *refusal = CUDA_ERROR_NOT_PERMITTED;
    *allocation = (struct ks_allocation){
        .bytes = bytes, .context = ks_current_context(), .cell = (unsigned)cell};
    return true;
}

static CUresult charge(unsigned cell, uint64_t bytes) {
    if (ks_account_charge(cell, bytes, ks_claim_memory_limit(cell)))
        return CUDA_SUCCESS;
    ks_debug("refused %llu bytes: the limit is %llu", (unsigned long long)bytes,
             (unsigned long long)ks_claim_memory_limit(cell));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Books what the driver has allocated at `pointer`. */
static CUresult book(struct ks_allocation *allocation, CUdeviceptr pointer, CUresult result) {
    if (result == CUDA_SUCCESS) {
        allocation->pointer = pointer;
        if (ks_allocations_add(allocation))
            return CUDA_SUCCESS;
        KS_REAL(cuMemFree_v2)(pointer);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    ks_account_give_back(allocation->cell, allocation->bytes);
    return result;
}

/* The body of an allocation whose size is known before: `call` is the driver's. */
#define KS_ALLOCATE(size, call)                                                                    \
    struct ks_allocation allocation;                                                               \
    CUresult result;                                                                               \
    if (!describe(&allocation, size, &result))                                                     \
        return (call);                                                                             \
    if (result == CUDA_SUCCESS)                                                                    \
        result = charge(allocation.cell, allocation.bytes);                                        \
    if (result != CUDA_SUCCESS)                                                                    \
        return result;                                                                             \
    result = (call);                                                                               \
    return book(&allocation, result == CUDA_SUCCESS ? *pointer : 0, result)

int cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int bytes) {
    KS_ALLOCATE(bytes, KS_REAL(cuMemAlloc)(pointer, bytes));
}

int cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    KS_ALLOCATE(bytes, KS_REAL(cuMemAlloc_v2)(pointer, bytes));
}

int cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags) {
    KS_ALLOCATE(bytes, KS_REAL(cuMemAllocManaged)(pointer, bytes, flags));
}

/* ---- pitched: the size is known afterwards ---------------------------------- */

/* The least that a pitched allocation takes; more than any limit when it overflows. */
static uint64_t pitched_bytes(uint64_t width, uint64_t height) {
    uint64_t row, bytes;
    if (__builtin_add_overflow(width, PITCH_GRANULE - 1, &row) ||
        __builtin_mul_overflow(row / PITCH_GRANULE * PITCH_GRANULE, height, &bytes))
        return UINT64_MAX;
    return bytes;
}

/* Brings the charge from what was expected to what the driver has allocated. */
static CUresult correct(struct ks_allocation *allocation, uint64_t bytes, CUdeviceptr pointer) {
    if (bytes < allocation->bytes) {
        ks_account_give_back(allocation->cell, allocation->bytes - bytes);
    } else if (bytes > allocation->bytes &&
               charge(allocation->cell, bytes - allocation->bytes) != CUDA_SUCCESS) {
        KS_REAL(cuMemFree_v2)(pointer);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocation->bytes = bytes;
    return CUDA_SUCCESS;
}

#define KS_ALLOCATE_PITCHED(call)                                                                  \
    struct ks_allocation allocation;                                                               \
    CUresult result;                                                                               \
    if (!describe(&allocation, pitched_bytes(width, height), &result))                             \
        return (call);                                                                             \
    if (result == CUDA_SUCCESS)                                                                    \
        result = charge(allocation.cell, allocation.bytes);                                        \
    if (result != CUDA_SUCCESS)                                                                    \
        return result;                                                                             \
    result = (call);                                                                               \
    if (result == CUDA_SUCCESS)                                                                    \
        result = correct(&allocation, (uint64_t)*pitch * height, *pointer);                        \
    return book(&allocation, result == CUDA_SUCCESS ? *pointer : 0, result)

int cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width,
                    unsigned int height, unsigned int element) {
    KS_ALLOCATE_PITCHED(KS_REAL(cuMemAllocPitch)(pointer, pitch, width, height, element));
}

int cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                       unsigned int element) {
    KS_ALLOCATE_PITCHED(KS_REAL(cuMemAllocPitch_v2)(pointer, pitch, width, height, element));
}

/* ---- free -------------------------------------------------------------------- */

/* The pointer is forgotten before the driver can hand it out again. */
#define KS_FREE(call)                                                                              \
    struct ks_allocation allocation;                                                               \
    const bool known = ks_allocations_take(pointer, &allocation);                                  \
    const CUresult result = (call);                                                                \
    if (known && result == CUDA_SUCCESS)                                                           \
        ks_account_give_back(allocation.cell, allocation.bytes);                                   \
    else if (known)                                                                                \
        ks_allocations_add(&allocation);                                                           \
    return result

int cuMemFree(CUdeviceptr_v1 pointer) {
    KS_FREE(KS_REAL(cuMemFree)(pointer));
}

int cuMemFree_v2(CUdeviceptr pointer) {
    KS_FREE(KS_REAL(cuMemFree_v2)(pointer));
}

/* ---- questions ------------------------------------------------------------------ */

void ks_memory_as_seen(unsigned cell, uint64_t *available, uint64_t *total) {
    const uint64_t limit = ks_claim_memory_limit(cell);
    const uint64_t charged = ks_account_charged(cell);
    const uint64_t left = charged < limit ? limit - charged : 0;
    if (limit < *total)
        *total = limit;
    if (left < *available)
        *available = left;
}

/* The driver is asked through variables of our own: either pointer may be NULL. */
static CUresult memory_info(uint64_t *available, uint64_t *total) {
    size_t real_available, real_total;
    int cell;
    const CUresult result = KS_REAL(cuMemGetInfo_v2)(&real_available, &real_total);
    *available = real_available;
    *total = real_total;
    if (result == CUDA_SUCCESS && ks_current_cell(&cell) && cell != KS_NO_CELL)
        ks_memory_as_seen((unsigned)cell, available, total);
    return result;
}

static unsigned int in_32_bits(uint64_t bytes) {
    return bytes < UINT32_MAX ? (unsigned int)bytes : UINT32_MAX;
}

int cuMemGetInfo(unsigned int *available, unsigned int *total) {
    uint64_t seen_available, seen_total;
    const CUresult result = memory_info(&seen_available, &seen_total);
    if (result == CUDA_SUCCESS && available != NULL)
        *available = in_32_bits(seen_available);
    if (result == CUDA_SUCCESS && total != NULL)
        *total = in_32_bits(seen_total);
    return result;
}

int cuMemGetInfo_v2(size_t *available, size_t *total) {
    uint64_t seen_available, seen_total;
    const CUresult result = memory_info(&seen_available, &seen_total);
    if (result == CUDA_SUCCESS && available != NULL)
        *available = seen_available;
    if (result == CUDA_SUCCESS && total != NULL)
        *total = seen_total;
    return result;
}

static uint64_t total_as_seen(CUdevice device, uint64_t total) {
    const int cell = ks_cell_of_device(device);
    if (cell == KS_NO_CELL || ks_claim_memory_limit((unsigned)cell) > total)
        return total;
    return ks_claim_memory_limit((unsigned)cell);
}

int cuDeviceTotalMem(unsigned int *bytes, CUdevice device) {
    size_t total;
    if (bytes == NULL)
        return KS_REAL(cuDeviceTotalMem)(bytes, device);
    const CUresult result = KS_REAL(cuDeviceTotalMem_v2)(&total, device);
    if (result == CUDA_SUCCESS)
        *bytes = in_32_bits(total_as_seen(device, total));
    return result;
}

int cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    const CUresult result = KS_REAL(cuDeviceTotalMem_v2)(bytes, device);
    if (result == CUDA_SUCCESS)
        *bytes = total_as_seen(device, *bytes);
    return result;
}
