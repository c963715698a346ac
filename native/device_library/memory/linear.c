/*
 * Linear and pitched memory, allocated at once in the current context.
 */
#include "account.h"
#include "lookup/driver_calls.h"
#include "lookup/real.h"
#include "memory/charge.h"
#include "memory/pools.h"
#include "memory/spill.h"

/* Rows of a pitched allocation are padded at least to this. */
#define PITCH_GRANULE 512u

static void undo(uint64_t pointer) {
    KS_REAL(cuMemFree_v2)(pointer);
}

int cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int bytes) {
    KS_ALLOCATE(KS_MEMORY, ks_taken(bytes), pointer, pointer == NULL,
                KS_REAL(cuMemAlloc)(pointer, bytes), undo);
}

int cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    KS_ALLOCATE_AND(KS_MEMORY, ks_taken(bytes), pointer, pointer == NULL,
                    KS_REAL(cuMemAlloc_v2)(pointer, bytes),
                    ks_spill(&allocation, result, pointer, bytes), undo);
}

/* Charged in full wherever its pages are: all of it may be on the GPU at once. */
int cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags) {
    KS_ALLOCATE(KS_MEMORY, ks_taken(bytes), pointer,
                pointer == NULL || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST),
                KS_REAL(cuMemAllocManaged)(pointer, bytes, flags), undo);
}

/* ---- pitched: the size is known afterwards ---------------------------------- */

/* The least that a pitched allocation takes; UINT64_MAX on overflow. */
static uint64_t pitched_bytes(uint64_t width, uint64_t height) {
    uint64_t bytes;
    if (__builtin_mul_overflow(ks_round_up(width, PITCH_GRANULE), height, &bytes))
        return UINT64_MAX;
    return bytes;
}

static bool is_malformed(const void *pointer, const void *pitch, unsigned int element) {
    return pointer == NULL || pitch == NULL || (element != 4 && element != 8 && element != 16);
}

/* Changes the charge from what was expected to what the driver has allocated. */
static CUresult correct(struct ks_allocation *allocation, uint64_t bytes, CUdeviceptr pointer) {
    const uint64_t taken = ks_taken(bytes);
    if (taken < allocation->bytes) {
        ks_account_give_back(allocation->cell, allocation->bytes - taken);
    } else if (taken > allocation->bytes &&
               ks_charge(allocation->cell, taken - allocation->bytes) != CUDA_SUCCESS) {
        undo(pointer);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocation->bytes = taken;
    return CUDA_SUCCESS;
}

static CUresult spill_pitched(struct ks_allocation *allocation, CUresult result,
                              CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height) {
    result = ks_spill(allocation, result, pointer, pitched_bytes(width, height));
    if (result == CUDA_SUCCESS && allocation->kind == KS_SPILLED)
        *pitch = ks_round_up(width, PITCH_GRANULE);
    return result;
}

#define KS_ALLOCATE_PITCHED(call, after)                                                           \
    struct ks_allocation allocation;                                                               \
    CUresult result;                                                                               \
    if (!ks_describe(&allocation, KS_MEMORY, ks_taken(pitched_bytes(width, height)), &result))     \
        return (call);                                                                             \
    if (result == CUDA_SUCCESS)                                                                    \
        result = ks_charge(allocation.cell, allocation.bytes);                                     \
    if (result != CUDA_SUCCESS)                                                                    \
        return ks_refused(result, is_malformed(pointer, pitch, element));                          \
    result = (call);                                                                               \
    result = (after);                                                                              \
    if (result == CUDA_SUCCESS)                                                                    \
        result = correct(&allocation, (uint64_t)*pitch * height, *pointer);                        \
    return ks_book(&allocation, KS_HANDLE(result, pointer), result, undo)

int cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width,
                    unsigned int height, unsigned int element) {
    KS_ALLOCATE_PITCHED(KS_REAL(cuMemAllocPitch)(pointer, pitch, width, height, element), result);
}

int cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                       unsigned int element) {
    KS_ALLOCATE_PITCHED(KS_REAL(cuMemAllocPitch_v2)(pointer, pitch, width, height, element),
                        spill_pitched(&allocation, result, pointer, pitch, width, height));
}

/* ---- free -------------------------------------------------------------------- */

/* Frees memory of a pool too. An unknown pointer only concerns the driver. */
#define KS_FREE_ANY(call)                                                                          \
    struct ks_allocation allocation;                                                               \
    if (ks_allocations_take(KS_MEMORY, pointer, &allocation))                                      \
        return ks_freed(&allocation, call);                                                        \
    if (ks_pool_frees(pointer, &allocation))                                                       \
        return ks_pool_freed(&allocation, call);                                                   \
    if (ks_allocations_take(KS_SPILLED, pointer, &allocation))                                     \
        return ks_freed(&allocation, call);                                                        \
    if (ks_spill_is_freed(pointer))                                                                \
        return CUDA_ERROR_INVALID_VALUE;                                                           \
    return (call)

int cuMemFree(CUdeviceptr_v1 pointer) {
    KS_FREE_ANY(KS_REAL(cuMemFree)(pointer));
}

int cuMemFree_v2(CUdeviceptr pointer) {
    KS_FREE_ANY(KS_REAL(cuMemFree_v2)(pointer));
}
