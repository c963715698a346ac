/*
 * Queries about memory: answered with the session's limit, and what is left of it.
 */
#include "memory/queries.h"
#include "account.h"
#include "context.h"
#include "lookup/driver_calls.h"
#include "lookup/real.h"
#include "memory/reserve.h"
#include "session.h"

void ks_memory_as_seen(unsigned cell, uint64_t *available, uint64_t *total) {
    const uint64_t limit = ks_session_memory_limit(cell);
    const uint64_t overhead = ks_session_overhead(cell);
    ks_reserves_look(cell);
    const uint64_t charged = ks_account_charged(cell);
    const uint64_t rest = overhead < limit ? limit - overhead : 0;
    const uint64_t left = charged < rest ? rest - charged : 0;
    /* Where what does not fit is spilled, all of the limit can be allocated. */
    const bool spills = ks_session_is_oversubscribed(cell);
    if (limit < *total || spills)
        *total = limit;
    if (left < *available || spills)
        *available = left;
}

/* With variables of its own, because either pointer of the application may be NULL. */
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
    if (cell == KS_NO_CELL)
        return total;
    const uint64_t limit = ks_session_memory_limit((unsigned)cell);
    return limit < total || ks_session_is_oversubscribed((unsigned)cell) ? limit : total;
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
