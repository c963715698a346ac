/*
 * How memory is charged: to the session before the driver is called, so the limit
 * holds at every moment. The charge is given back if the driver refuses, and when
 * the memory is freed.
 */
#ifndef KS_MEMORY_CHARGE_H
#define KS_MEMORY_CHARGE_H

#include "driver.h"
#include "memory/allocations.h"
#include "memory/rounding.h"

#include <stdbool.h>
#include <stdint.h>

#define KS_PAGE_BYTES (UINT64_C(2) << 20)

/* Bytes of a GPU that the driver takes for an allocation: units of 512 bytes below 1 MiB, pages of
 * 2 MiB from there on; UINT64_MAX on overflow. */
uint64_t ks_taken(uint64_t bytes);

/* Fills in an allocation of so many bytes in the current context. False: there is no session or no
 * context, and the driver is called without a charge (it returns the error). `refusal` is
 * CUDA_SUCCESS, or the result for the application instead of a call of the driver. */
bool ks_describe(struct ks_allocation *allocation, enum ks_kind kind, uint64_t bytes,
                 CUresult *refusal);

/* The same for memory of any device. */
bool ks_describe_on(struct ks_allocation *allocation, enum ks_kind kind, CUdevice device,
                    uint64_t bytes, CUresult *refusal);

/* Charges bytes, and has the reserves of this process returned if it must. Returns CUDA_SUCCESS or
 * CUDA_ERROR_OUT_OF_MEMORY. */
CUresult ks_charge(unsigned cell, uint64_t bytes);

/* The result for the application after `refusal`. What the driver refuses however much is left (a
 * call with `malformed` arguments) has the driver's error. */
static inline CUresult ks_refused(CUresult refusal, bool malformed) {
    return refusal == CUDA_ERROR_OUT_OF_MEMORY && malformed ? CUDA_ERROR_INVALID_VALUE : refusal;
}

/* Charges bytes if that many are left of the limit, without returning reserves. */
bool ks_fits(unsigned cell, uint64_t bytes);

/* Charges what the driver has taken already, even beyond the limit. */
void ks_charge_anyway(unsigned cell, uint64_t bytes);

/* Records what the driver has allocated as `handle`, or gives the charge back if `result` is an
 * error. `undo` frees what cannot be recorded. */
CUresult ks_book(struct ks_allocation *allocation, uint64_t handle, CUresult result,
                 void (*undo)(uint64_t handle));

/* After the driver was called to free an allocation that was taken from the table: gives the charge
 * back, or records the allocation again if the driver refused. */
CUresult ks_freed(const struct ks_allocation *allocation, CUresult result);

/* After a context has ended, and with it all that was allocated in it; see ks_context_listener. */
void ks_memory_of_context_ended(CUcontext context, uint64_t before);

/* The handle or pointer that the driver has written; 0 if it failed. */
#define KS_HANDLE(result, place) ((result) == CUDA_SUCCESS ? (uint64_t)(uintptr_t)*(place) : 0)

/* The body of an allocation in the current context whose size is known beforehand: `call` calls the
 * driver, which writes to `place`. `malformed` is looked at only after a refusal: ks_refused. */
#define KS_ALLOCATE(kind, size, place, malformed, call, undo)                                      \
    KS_ALLOCATE_AND(kind, size, place, malformed, call, result, undo)

/* The same; `after` is what the driver's `result` becomes. */
#define KS_ALLOCATE_AND(kind, size, place, malformed, call, after, undo)                           \
    struct ks_allocation allocation;                                                               \
    CUresult result;                                                                               \
    if (!ks_describe(&allocation, kind, size, &result))                                            \
        return (call);                                                                             \
    if (result == CUDA_SUCCESS)                                                                    \
        result = ks_charge(allocation.cell, allocation.bytes);                                     \
    if (result != CUDA_SUCCESS)                                                                    \
        return ks_refused(result, malformed);                                                      \
    result = (call);                                                                               \
    result = (after);                                                                              \
    return ks_book(&allocation, KS_HANDLE(result, place), result, undo)

/* The body of a free. The handle leaves the table before the driver can hand it out again. */
#define KS_FREE(kind, handle, call)                                                                \
    struct ks_allocation allocation;                                                               \
    if (!ks_allocations_take(kind, (uint64_t)(uintptr_t)(handle), &allocation))                    \
        return (call);                                                                             \
    return ks_freed(&allocation, call)

#endif
