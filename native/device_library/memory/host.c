/*
 * Memory of the host that the program pins for the GPUs: counted for people, not limited. The
 * kernel limits the memory of the container, in its cgroup.
 */
#include "account.h"
#include "context.h"
#include "lookup/real.h"
#include "memory/allocations.h"
#include "session.h"

#include <stddef.h>

/* What cannot be recorded is not counted. */
static CUresult pinned(enum ks_kind kind, const void *pointer, uint64_t bytes, CUresult result) {
    if (result != CUDA_SUCCESS || !ks_session_is_open())
        return result;
    const struct ks_allocation allocation = {
        .handle = (uint64_t)(uintptr_t)pointer,
        .bytes = bytes,
        .owner = (uint64_t)(uintptr_t)ks_owning_context(),
        .kind = (uint16_t)kind,
    };
    if (ks_account_pin(bytes) && !ks_allocations_add(&allocation))
        ks_account_unpin(bytes);
    return result;
}

/* The body of a call that ends it. The pointer leaves the table before the driver can hand it out
 * again. */
#define KS_UNPIN(kind, pointer, call)                                                              \
    struct ks_allocation allocation;                                                               \
    if (!ks_allocations_take(kind, (uint64_t)(uintptr_t)(pointer), &allocation))                   \
        return (call);                                                                             \
    ks_account_unpin(allocation.bytes);                                                            \
    const CUresult result = (call);                                                                \
    if (result != CUDA_SUCCESS && ks_allocations_add(&allocation))                                 \
        ks_account_pin(allocation.bytes);                                                          \
    return result

#define KS_PIN(kind, place, call)                                                                  \
    const CUresult result = (call);                                                                \
    return pinned(kind, result == CUDA_SUCCESS ? (place) : NULL, bytes, result)

int cuMemAllocHost(void **pointer, unsigned int bytes) {
    KS_PIN(KS_HOST_MEMORY, *pointer, KS_REAL(cuMemAllocHost)(pointer, bytes));
}

int cuMemAllocHost_v2(void **pointer, size_t bytes) {
    KS_PIN(KS_HOST_MEMORY, *pointer, KS_REAL(cuMemAllocHost_v2)(pointer, bytes));
}

int cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags) {
    KS_PIN(KS_HOST_MEMORY, *pointer, KS_REAL(cuMemHostAlloc)(pointer, bytes, flags));
}

int cuMemHostRegister(void *pointer, size_t bytes, unsigned int flags) {
    KS_PIN(KS_HOST_REGISTERED, pointer, KS_REAL(cuMemHostRegister)(pointer, bytes, flags));
}

int cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags) {
    KS_PIN(KS_HOST_REGISTERED, pointer, KS_REAL(cuMemHostRegister_v2)(pointer, bytes, flags));
}

int cuMemFreeHost(void *pointer) {
    KS_UNPIN(KS_HOST_MEMORY, pointer, KS_REAL(cuMemFreeHost)(pointer));
}

int cuMemHostUnregister(void *pointer) {
    KS_UNPIN(KS_HOST_REGISTERED, pointer, KS_REAL(cuMemHostUnregister)(pointer));
}
