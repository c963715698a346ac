/*
 * How memory is charged: to the session before the driver is asked, so the limit
 * holds at every moment; given back when the driver refuses, and when it is freed.
 */
#ifndef KS_MEMORY_CHARGE_H
#define KS_MEMORY_CHARGE_H

#include "driver.h"
#include "memory/allocations.h"
#include "memory/rounding.h"

#include <stdbool.h>
#include <stdint.h>

#define KS_PAGE_BYTES (UINT64_C(2) << 20)

/* Bytes of a GPU that the driver takes for an allocation: whole units of 512 bytes below 1 MiB,
 * whole pages of 2 MiB from there on; UINT64_MAX where that overflows. */
uint64_t ks_taken(uint64_t bytes);

/* Fills in an allocation of so many bytes in the current context. False: not ours to account, since
 * there is no session or no context (the driver says so itself). `refusal` is CUDA_SUCCESS, or what
 * the application is told instead of calling the driver. */
bool ks_describe(struct ks_allocation *allocation, enum ks_kind kind, uint64_t bytes,
                 CUresult *refusal);

/* The same for memory of a device that need not be the current one. */
bool ks_describe_on(struct ks_allocation *allocation, enum ks_kind kind, CUdevice device,
                    uint64_t bytes, CUresult *refusal);

/* Charges bytes, after what this process keeps in reserve was returned if it has to be:
 * CUDA_SUCCESS or CUDA_ERROR_OUT_OF_MEMORY. */
CUresult ks_charge(unsigned cell, uint64_t bytes);

/* Charges bytes if that many are left of the limit as it is. */
bool ks_fits(unsigned cell, uint64_t bytes);

/* Charges what the driver has taken already, whatever the limit. */
void ks_charge_anyway(unsigned cell, uint64_t bytes);

/* Books what the driver has allocated as `handle`, or gives the charge back when `result` says
 * that it has not. `undo` frees what cannot be booked. */
CUresult ks_book(struct ks_allocation *allocation, uint64_t handle, CUresult result,
                 void (*undo)(uint64_t handle));

/* After the driver was asked to free what was known: gives the charge back, or, where it has
 * refused, remembers the allocation again. */
CUresult ks_freed(const struct ks_allocation *allocation, CUresult result);

/* After a context has ended, and with it what was in it. */
void ks_memory_of_context_ended(CUcontext context);

/* Of a handle or a pointer that the driver has written, when it has. */
#define KS_HANDLE(result, place) ((result) == CUDA_SUCCESS ? (uint64_t)(uintptr_t)*(place) : 0)

/* The body of an allocation in the current context whose size is known before: `call` is the
 * driver's, which writes to `place`. */
#define KS_ALLOCATE(kind, size, place, call, undo)                                                 \
    struct ks_allocation allocation;                                                               \
    CUresult result;                                                                               \
    if (!ks_describe(&allocation, kind, size, &result))                                            \
        return (call);                                                                             \
    if (result == CUDA_SUCCESS)                                                                    \
        result = ks_charge(allocation.cell, allocation.bytes);                                     \
    if (result != CUDA_SUCCESS)                                                                    \
        return result;                                                                             \
    result = (call);                                                                               \
    return ks_book(&allocation, KS_HANDLE(result, place), result, undo)

/* The body of a free. The handle is forgotten before the driver can hand it out again. */
#define KS_FREE(kind, handle, call)                                                                \
    struct ks_allocation allocation;                                                               \
    if (!ks_allocations_take(kind, (uint64_t)(uintptr_t)(handle), &allocation))                    \
        return (call);                                                                             \
    return ks_freed(&allocation, call)

#endif
